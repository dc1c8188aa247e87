"""Everything that a database of jobs holds, in a file, and from it into another database of either kind.

A file is lines of JSON: a head, pages of rows, and an end with counts and a digest. An import is one
transaction: whole, counted and compared, or nothing.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeVar

import msgspec

from ...documents import DocumentError, read_typed
from ...errors import ConfigurationError
from ...files import opened, sync, sync_directory
from ..models import state_name
from . import Database, Row, Tx
from .queries import load_migrations
from .tables import BYTES, SETTINGS, WHOLE, whole_queries

__all__ = ["Carried", "export_to", "freeze", "import_from", "unfreeze"]

T = TypeVar("T")

_FORMAT: Final = 1
_ROWS: Final = 1000  # of a page
_ROWS_OF_MESSAGES: Final = 16  # they may be large
_encode: Final = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Carried:
    """Counts of the rows of each table, and of the jobs in each state."""

    rows: Mapping[str, int]
    states: Mapping[str, int]


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    headrace_jobs: int
    schema: int
    database: str


class _Page(msgspec.Struct, forbid_unknown_fields=True):
    table: str
    rows: list[list[Any]]


class _End(msgspec.Struct, forbid_unknown_fields=True):
    rows: dict[str, int]
    states: dict[str, int]
    last: dict[str, int]
    settings: dict[str, str]
    sha256: str


class _InterruptedError(Exception):
    """Sign that whoever waited for it has gone."""


def _schema(kind: Literal["sqlite", "postgres"]) -> int:
    return load_migrations(kind)[-1][0]


async def freeze(database: Database) -> None:
    """Let the database refuse every change, by every process, until :func:`unfreeze`."""
    await database.write(lambda tx: _run_all(tx, "whole_freeze_"))


async def unfreeze(database: Database) -> None:
    """Let it accept changes again."""
    await database.write(lambda tx: _run_all(tx, "whole_thaw_"))


def _run_all(tx: Tx, prefix: str) -> None:
    for name in whole_queries("sqlite"):  # both dialects have the same names
        if name.startswith(prefix):
            tx.run(name)


async def export_to(database: Database, path: Path) -> Carried:
    """Write everything into a new file, as of one moment. The file is there when it is whole, and durable.

    It holds tokens and secrets: only its owner can read it. Raises ConfigurationError if it exists or cannot
    be written.
    """
    stop = threading.Event()
    try:
        return await database.read(lambda tx: _write_file(tx, path, database.name, stop))
    finally:
        stop.set()


def _write_file(tx: Tx, path: Path, kind: str, stop: threading.Event) -> Carried:
    part = path.with_name(f"{path.name}.part")
    if path.exists():
        raise ConfigurationError(f"{path} exists; name a new file")
    try:
        target = opened(part, "xb")
    except FileExistsError:
        raise ConfigurationError(
            f"{part} exists: another export writes it, or was interrupted; then remove it"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from error
    try:
        with target as file:
            carried = _write(tx, file, kind, stop)
            sync(file)
        part.replace(path)
        sync_directory(path.parent)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ConfigurationError(f"{path}: {error.strerror or error}") from error
        raise
    return carried


def _write(tx: Tx, file: IO[bytes], kind: str, stop: threading.Event) -> Carried:
    digest = hashlib.sha256()
    states: dict[str, int] = {}

    def line(document: Any) -> None:
        if stop.is_set():
            raise _InterruptedError
        text = _encode(document) + b"\n"
        digest.update(text)
        file.write(text)

    line(_Head(_FORMAT, _schema("sqlite"), kind))
    rows = dict.fromkeys(WHOLE, 0)
    for table, columns in WHOLE.items():
        for page in _pages(tx, table, columns):
            line(_Page(table, [[_plain(row, column) for column in columns] for row in page]))
            rows[table] += len(page)
            if table == "job":
                for row in page:
                    name = state_name(row["state"])
                    states[name] = states.get(name, 0) + 1
    lasts = {table: _number(tx, f"whole_last_{table}", "last") for table in _numbered()}
    settings = {}
    for key in SETTINGS:
        found = tx.one("get_meta", key=key)
        if found is not None:
            settings[key] = str(found["value"])
    end = _End(rows, states, lasts, settings, digest.hexdigest())
    file.write(_encode(end) + b"\n")
    return Carried(rows, states)


def _pages(tx: Tx, table: str, columns: Sequence[str]) -> Iterator[Sequence[Row]]:
    n = _ROWS_OF_MESSAGES if table == "message" else _ROWS
    after = 0
    while rows := tx.all(f"whole_page_{table}", after=after, n=n):
        present = set(dict(rows[0]))  # type: ignore[call-overload]
        if present != set(columns):
            raise AssertionError(f"the columns of {table} are {present}, declared are {columns}")
        yield rows
        after = rows[-1][columns[0]]


def _plain(row: Row, column: str) -> Any:
    value = row[column]
    return base64.b64encode(value).decode() if column in BYTES else value


def _numbered() -> list[str]:
    return [table for table, columns in WHOLE.items() if columns[0] == "seq"]


def _number(tx: Tx, query: str, column: str) -> int:
    row = tx.one(query)
    return 0 if row is None else int(row[column])


async def import_from(database: Database, path: Path) -> Carried:
    """Store everything that a file has, in one transaction. Interrupted or refused, it leaves nothing.

    Raises ConfigurationError if the database has something, the file is not whole, or what is stored in the
    end is not what was exported.
    """
    stop = threading.Event()
    try:
        return await database.write(lambda tx: _store(tx, path, stop))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from error
    finally:
        stop.set()


def _store(tx: Tx, path: Path, stop: threading.Event) -> Carried:
    present = {table: _number(tx, f"whole_count_{table}", "n") for table in WHOLE}
    if any(present.values()):
        told = ", ".join(f"{n} in {table}" for table, n in present.items() if n)
        raise ConfigurationError(f"the database is not empty: it has rows, {told}")
    end = _store_lines(tx, path, stop)
    for table in _numbered():
        tx.run(f"whole_forget_{table}")
        if last := end.last.get(table, 0):
            tx.run(f"whole_resume_{table}", last=last)
    for key, value in end.settings.items():
        tx.run("put_meta", key=key, value=value)
    tx.run("fold_counters")
    return _compared(tx, path, end)


def _store_lines(tx: Tx, path: Path, stop: threading.Event) -> _End:
    """Store the pages of the file; its end, if it is whole and nobody has changed it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        first = file.readline()
        head = _read(path, first, _Head)
        known = _schema("sqlite")
        if (head.headrace_jobs, head.schema) != (_FORMAT, known):
            raise ConfigurationError(
                f"{path} was exported with format {head.headrace_jobs}, schema {head.schema}; this "
                f"version imports {_FORMAT}, {known}: export it with the same version"
            )
        digest.update(first)
        for text in file:
            if stop.is_set():
                raise _InterruptedError
            if text.startswith(b'{"rows"'):
                end = _read(path, text, _End)
                if end.sha256 != digest.hexdigest():
                    raise ConfigurationError(f"{path} was changed after it was exported")
                return end
            digest.update(text)
            page = _read(path, text, _Page)
            _store_page(tx, path, page)
    raise ConfigurationError(f"{path} is not whole: its end is missing")


def _read(path: Path, text: bytes, kind: type[T]) -> T:
    try:
        return read_typed(text, kind)
    except DocumentError as error:
        raise ConfigurationError(f"{path} is no export of jobs, or is damaged: {error}") from None


def _store_page(tx: Tx, path: Path, page: _Page) -> None:
    columns = WHOLE.get(page.table)
    if columns is None or any(len(row) != len(columns) for row in page.rows):
        raise ConfigurationError(f"{path} is damaged: rows of {page.table!r} cannot be read")
    rows = [
        {
            column: base64.b64decode(value) if column in BYTES else value
            for column, value in zip(columns, row, strict=True)
        }
        for row in page.rows
    ]
    tx.run_many(f"whole_insert_{page.table}", rows)


def _compared(tx: Tx, path: Path, end: _End) -> Carried:
    """Count what is stored now, in the database; it must be what was exported."""
    rows = {table: _number(tx, f"whole_count_{table}", "n") for table in WHOLE}
    states = {state_name(row["state"]): int(row["n"]) for row in tx.all("whole_states")}
    if (rows, states) != (end.rows, end.states):
        raise ConfigurationError(
            f"{path}: exported were {end.rows} and jobs {end.states}, stored would be {rows} and {states}"
        )
    return Carried(rows, states)
