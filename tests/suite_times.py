"""How long the tests take: from reports of pytest to ``tests/seconds.txt`` and the table of CONTRIBUTING.md.

``python tests/suite_times.py REPORT…``; a report is what ``pytest --junitxml=REPORT`` wrote. It may be of
some files only: of the others stays what was known. ``make test-seconds`` runs all tests and does this.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as xml
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from suite_order import SECONDS, Taken, known

__all__ = ["PAGE", "main", "room_of", "table", "taken_in", "with_table", "written"]

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "CONTRIBUTING.md"
SHARED: Final = "tests/*.py"
HEAD: Final = "| Room | Tests | Seconds |\n| --- | ---: | ---: |\n"


def written(files: Mapping[str, Taken]) -> str:
    """The text of ``tests/seconds.txt``, in the order of the names."""
    return "".join(
        f"{file} {each.tests} {each.seconds:.1f}\n" for file, each in sorted(files.items())
    )


def taken_in(report: Path, root: Path = ROOT) -> dict[str, Taken]:
    """What each file took in a run, by pytest's report of it (``--junitxml``)."""
    found: dict[str, Taken] = {}
    for case in xml.parse(report).iter("testcase"):
        file = _file_of(case.get("classname", ""), root)
        before = found.get(file, Taken(0, 0.0))
        found[file] = Taken(before.tests + 1, before.seconds + float(case.get("time", "0")))
    return found


def _file_of(dotted: str, root: Path) -> str:
    """The file of a test: what is left of its dotted name without its classes."""
    parts = dotted.split(".")
    while parts:
        file = Path(*parts).with_suffix(".py")
        if (root / file).is_file():
            return file.as_posix()
        parts.pop()
    raise ValueError(f"the report names {dotted!r}, and there is no such file of tests")


def room_of(file: str) -> str:
    """The folder below ``tests`` in which a file is, as ``PYTEST_ARGS`` names it."""
    parts = Path(file).parts[1:-1]
    deep = 2 if parts[:1] == ("broker",) else 1
    return "/".join(("tests", *parts[:deep])) if parts else SHARED


def table(files: Mapping[str, Taken]) -> str:
    """The rooms, the longest first."""
    rooms: dict[str, Taken] = {}
    for file, each in files.items():
        before = rooms.get(room_of(file), Taken(0, 0.0))
        rooms[room_of(file)] = Taken(before.tests + each.tests, before.seconds + each.seconds)
    ordered = sorted(rooms.items(), key=lambda item: (-item[1].seconds, item[0]))
    rows = [f"| `{room}` | {each.tests:,} | {each.seconds:.0f} |\n" for room, each in ordered]
    return HEAD + "".join(rows)


def with_table(page: str, files: Mapping[str, Taken]) -> str:
    """The page, with the table of these files instead of its own."""
    before, head, rest = page.partition(HEAD)
    if not head:
        raise ValueError(f"{PAGE.name} has no table {HEAD.splitlines()[0]!r}")
    lines = rest.splitlines(keepends=True)
    while lines and lines[0].startswith("|"):
        lines.pop(0)
    return before + table(files) + "".join(lines)


def main(reports: Iterable[str]) -> int:
    """Put what the reports say in the place of what is known of their files."""
    files = known()
    for report in reports:
        files |= taken_in(Path(report))
    files = {file: each for file, each in files.items() if (ROOT / file).is_file()}
    SECONDS.write_text(written(files))
    PAGE.write_text(with_table(PAGE.read_text(), known()))  # as it is read again
    print(table(files), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
