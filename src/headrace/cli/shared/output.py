"""What a command shows: JSON, YAML, or tables and sheets for people.

On a terminal tables are drawn by rich and fit its width; elsewhere they are plain columns, complete, for
``grep`` and ``awk``. Colour needs a terminal, and NO_COLOR turns it off.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from ...files import write_whole
from .errors import Failure

if TYPE_CHECKING:
    from rich.console import Console

    from ...client import TransferProgress


_BETWEEN: Final = 3  # what rich draws beside a column, at most
_NARROWEST: Final = 8

Form = Literal["text", "json", "yaml"]


@dataclass
class Table:
    """Rows under headings.

    Attributes:
        headings: of the columns.
        rows: their cells.
        title: above it.
        right: the columns whose cells are numbers, by heading.
        empty: what is said when there are no rows, with what to do about it.
    """

    headings: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    title: str = ""
    right: frozenset[str] = frozenset()
    empty: str = "nothing to show"

    def add(self, *cells: object) -> None:
        """Append a row."""
        self.rows.append([str(cell) for cell in cells])


@dataclass
class Sheet:
    """One thing in full: sections of names and values.

    Attributes:
        title: above it.
        sections: each with its title ("" for none) and its rows.
    """

    title: str
    sections: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)

    def section(self, title: str, rows: Iterable[tuple[str, object]]) -> None:
        """Append a section; rows whose value is None or "" are left out, and so is an empty section."""
        kept = [(name, str(value)) for name, value in rows if value is not None and value != ""]
        if kept:
            self.sections.append((title, kept))


def output_options(*, hidden: bool = False) -> list[click.Option]:
    """``--json`` and ``--yaml``."""
    return [
        click.Option(
            ["--json", "-j"], is_flag=True, help="print JSON, for programs", hidden=hidden
        ),
        click.Option(["--yaml"], is_flag=True, help="print YAML, for programs", hidden=hidden),
    ]


class Output:
    """Shows results in the form asked for.

    Args:
        form: ``text`` for people, ``json`` or ``yaml`` for programs.

    Attributes:
        force, dry_run: of a command that destroys: whether it does not ask, and whether it only says what it
            would do; see ``asking.may_go_on``.
    """

    def __init__(self, form: Form = "text") -> None:
        self.form: Form = form
        self.force = self.dry_run = False

    @classmethod
    def of(cls, *, json: bool, yaml: bool) -> Output:
        """For these flags. Raises UsageError if both are given."""
        if json and yaml:
            raise click.UsageError("give --json or --yaml, not both", click.get_current_context())
        return cls("json" if json else "yaml" if yaml else "text")

    @property
    def is_text(self) -> bool:
        """Whether people read it."""
        return self.form == "text"

    def show(self, document: Any, *texts: str | Table | Sheet) -> None:
        """Print the document for programs, or the texts for people."""
        if self.form == "json":
            print(json_text(document))
        elif self.form == "yaml":
            print(yaml_text(document), end="")
        else:
            for text in texts:
                self._print(text)

    def line(self, document: Any, text: str) -> None:
        """One of many: a line of JSON, a YAML document, or a text."""
        print(printable(text) if self.is_text else one_of_many(document, self.form))

    def note(self, text: str) -> None:
        """Say something beside the result, on standard error; programs do not see it."""
        if self.is_text:
            sys.stdout.flush()
            print(printable(text), file=sys.stderr, flush=True)

    def _print(self, text: str | Table | Sheet) -> None:
        if isinstance(text, Sheet):
            _print_sheet(text)
        elif isinstance(text, str):
            print(printable(text))
        elif not text.rows:
            print(printable(text.empty))
        elif (console := terminal()) is not None:
            _print_rich(text, console)
        else:
            _print_plain(text)


def one_of_many(document: Any, form: Form) -> str:
    """A line of JSON, or a YAML document, without the last end of a line."""
    if form == "yaml":
        return f"---\n{yaml_text(document)}".rstrip("\n")
    return json_text(document, indent=0)


def json_text(document: Any, indent: int = 2) -> str:
    """Indented JSON, or one line of it. What would command a terminal is escaped, as all of JSON can be."""
    import json

    text = json.dumps(document, indent=indent or None, ensure_ascii=False, default=str)
    if _is_plain(text):
        return text
    return "".join(c if _is_plain(c) else json.dumps(c)[1:-1] for c in text)


def yaml_text(document: Any) -> str:
    """YAML. Raises ClickException without the package."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise click.ClickException(
            "--yaml needs the package pyyaml: pip install 'headrace[cli]'"
        ) from None
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    if _is_plain(text):
        return text
    escaped: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=False)
    return escaped


def terminal(*, stderr: bool = False) -> Console | None:
    """rich's console, if what we write goes to a terminal and rich is installed."""
    if not (sys.stderr if stderr else sys.stdout).isatty():
        return None
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return None
    return Console(stderr=stderr, highlight=False)


def _print_rich(table: Table, console: Console) -> None:
    rows = [table.headings, *table.rows]
    widths = fitting(rows, console.width)
    if sum(widths) + _BETWEEN * len(widths) > console.width:
        _print_records(table, console)
    else:
        _print_columns(table, widths, console)


def _print_records(table: Table, console: Console) -> None:
    """A paragraph for each row: for a terminal on which the columns would be too narrow to be read."""
    from rich.text import Text

    if table.title:
        console.print(Text(printable(table.title), "bold"))
    for name, *cells in table.rows:
        console.print(Text(printable(name), "bold cyan"))
        pairs = zip(table.headings[1:], cells, strict=True)
        line, long = Text(" "), 1
        for heading, cell in ((heading, printable(cell)) for heading, cell in pairs if cell):
            size = len(heading) + len(cell) + 3
            if long > 1 and long + size > console.width:
                console.print(line, soft_wrap=True)
                line, long = Text(" "), 1
            line.append(f" {heading}", "dim").append(f" {cell} ")
            long += size
        console.print(line, soft_wrap=True)


def _print_columns(table: Table, widths: Sequence[int], console: Console) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        title=table.title or None,
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title_justify="left",
        title_style="bold",
        header_style="bold cyan",
        border_style="dim",
    )
    for heading, width in zip(table.headings, widths, strict=True):
        # What does not fit is cut: a row stays a line, and --json has the whole.
        drawn.add_column(
            heading,
            justify="right" if heading in table.right else "left",
            overflow="ellipsis",
            no_wrap=True,
            max_width=width,
        )
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    console.print(drawn)


def fitting(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Widths of columns that fit: the widest is cut first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = width - _BETWEEN * len(widths)
    while sum(widths) > room and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _print_plain(table: Table) -> None:
    rows = [[printable(cell) for cell in row] for row in (table.headings, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if heading in table.right else cell.ljust(width)
            for heading, cell, width in zip(table.headings, row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _print_sheet(sheet: Sheet) -> None:
    console = terminal()
    width = max((len(name) for _, rows in sheet.sections for name, _ in rows), default=0) + 1
    if console is None:
        _print_sheet_plain(sheet, width)
        return
    from rich.text import Text

    console.print(Text(printable(sheet.title), "bold"))
    for title, rows in sheet.sections:
        console.print()
        if title:
            console.print(Text(printable(f"{title}:"), "bold cyan"))
        for name, value in rows:
            line = Text.assemble((f"  {name + ':':{width}} ", "dim"), printable(value))
            console.print(line, soft_wrap=True)


def _print_sheet_plain(sheet: Sheet, width: int) -> None:
    print(printable(sheet.title))
    for title, rows in sheet.sections:
        print()
        if title:
            print(printable(f"{title}:"))
        for name, value in rows:
            print(f"  {name + ':':{width}} {printable(value)}")


def printable(text: str) -> str:
    """The text without what would command a terminal: control characters are shown as escapes."""
    if _is_plain(text):
        return text
    return "".join(c if _is_plain(c) else repr(c)[1:-1] for c in text)


def _is_plain(text: str) -> bool:
    return text.isprintable() or text.replace("\n", "").isprintable()


Advance = Callable[[int], None]


def telling(advance: Advance) -> Callable[[TransferProgress], None]:
    """What ``progress`` of a call of the client takes, to advance a bar."""
    shown = 0

    def tell(now: TransferProgress) -> None:
        nonlocal shown
        advance(now.nbytes - shown)
        shown = now.nbytes

    return tell


@contextmanager
def progress(
    output: Output, label: str, total: int | None, *, of_bytes: bool = False, wanted: bool = True
) -> Iterator[Advance]:
    """Yields a function that is called with how much more is done.

    Args:
        output: nothing is drawn for programs.
        label: in front of the bar.
        total: how much there is; None if nobody knows.
        of_bytes: whether it is counted in bytes.
        wanted: whether there is to be a bar at all.
    """
    console = terminal(stderr=True) if output.is_text and wanted else None
    if console is None:
        yield lambda count: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (DownloadColumn(), TransferSpeedColumn()) if of_bytes else (MofNCompleteColumn(),)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else can read, in one step. Raises Failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, text)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
