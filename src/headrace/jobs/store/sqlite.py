"""SQLite: one thread that writes, and commits all queued writes together; two threads that read.

WAL, synchronous=FULL: when :meth:`SqliteDatabase.write` returns, the transaction is on disk. Every write is
a savepoint of one ``BEGIN IMMEDIATE`` transaction, so a rejected one rolls back only itself, and a queue
full of waiting writes costs one sync.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from ...clock import Clock, SystemClock
from ...errors import ConfigurationError, StoreFormatError
from .. import limits
from ..errors import DatabaseUnavailableError
from ..vault import PLAIN, Vault
from .base import GroupWork, Row, Tx, carried_out, resolve
from .grouping import GroupWriter
from .moved_clock import Steady
from .queries import load_migrations, load_queries
from .tables import FROZEN

__all__ = ["SqliteDatabase", "migrate"]

T = TypeVar("T")

_LOG: Final = logging.getLogger("headrace.jobs")
_BUSY_MS: Final = 10_000
_READERS: Final = 2
_STOP: Final = object()


_Write = tuple[Callable[[Tx], Any], asyncio.Future[Any]]
_Result = tuple[asyncio.Future[Any], Any, BaseException | None]


class _SqliteTx(Tx):
    """The queries on one connection."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock, vault: Vault) -> None:
        super().__init__(vault)
        self._connection = connection
        self._clock = clock
        self._now_us: int | None = None
        self._queries = load_queries("sqlite")

    def all(self, query: str, /, **values: Any) -> Sequence[Row]:
        rows: list[Row] = self._connection.execute(self._queries[query], values).fetchall()
        return rows

    def one(self, query: str, /, **values: Any) -> Row | None:
        rows = self._connection.execute(self._queries[query], values).fetchall()
        return rows[0] if rows else None

    def run(self, query: str, /, **values: Any) -> int:
        return self._connection.execute(self._queries[query], values).rowcount

    def run_many(self, query: str, rows: Sequence[Mapping[str, Any]], /) -> None:
        self._connection.executemany(self._queries[query], rows)

    def now_us(self) -> int:
        """The time, which is one in all of a transaction; few ask."""
        if self._now_us is None:
            self._now_us = self._clock.now_ns() // 1000
        return self._now_us


class SqliteDatabase:
    """Implements :class:`~headrace.jobs.store.base.Database` with SQLite."""

    name = "sqlite"

    def __init__(self, path: Path, *, clock: Clock | None = None, vault: Vault = PLAIN) -> None:
        self.path = path
        self._vault = vault
        # Every process of a SQLite database runs on its machine, so they share the machine's clock.
        self._clock = clock or SystemClock()
        self._steady = Steady(self._clock)
        self._hear: Callable[[Sequence[int]], None] = lambda _: None
        self._writes: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._waiting = 0
        self._grouping = GroupWriter(self.write)
        self._writer: threading.Thread | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._read_connections: list[sqlite3.Connection] = []

    def on_ring(self, hear: Callable[[Sequence[int]], None], /) -> None:
        self._hear = hear

    async def find_room(self) -> None:
        """Do nothing: every write is added to the file's log, so a small one finds a full disk, too."""

    def place(self) -> str:
        try:
            disk = os.statvfs(self.path.parent)
        except OSError as error:
            return f"SQLite's file {self.path} ({error.strerror})"
        return f"SQLite's file {self.path} (its disk has {disk.f_bavail * disk.f_frsize >> 20:,} MiB left)"

    async def start(self) -> None:
        if not self.path.parent.is_dir():
            raise ConfigurationError(
                f"the directory of the database does not exist: {self.path.parent}"
            )
        self._loop = asyncio.get_running_loop()
        try:
            connection = await asyncio.to_thread(self._open_writer)
        except (sqlite3.Error, OSError) as error:
            raise ConfigurationError(
                f"{self.path} cannot be used as a database: {error}"
            ) from error
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="jobs-read")
        self._writer = threading.Thread(
            target=self._write_loop, args=(connection,), name="jobs-write", daemon=True
        )
        self._writer.start()

    async def close(self) -> None:
        writer, self._writer = self._writer, None  # what comes now is refused: nobody would take it
        if writer is not None:
            self._writes.put(_STOP)
            await asyncio.to_thread(writer.join)
        if self._readers is not None:
            await asyncio.to_thread(self._readers.shutdown)
            self._readers = None
        for connection in self._read_connections:
            connection.close()
        self._read_connections.clear()

    async def write(self, work: Callable[[Tx], T], /) -> T:
        if self._writer is None:
            raise DatabaseUnavailableError("it is closed")
        if self._waiting >= limits.WRITES_PENDING_MAX:
            raise DatabaseUnavailableError("too many writes are waiting for the disk", "busy")
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting += 1
        self._writes.put((work, future))
        try:
            return await future
        finally:
            self._waiting -= 1

    async def write_together(self, work: GroupWork, item: Any, /, weight: int = 1) -> Any:
        return await self._grouping.write(work, item, weight)

    async def read(self, work: Callable[[Tx], T], /) -> T:
        if self._readers is None:
            raise DatabaseUnavailableError("it is closed")
        return await self._loop.run_in_executor(self._readers, self._read, work)

    def _read(self, work: Callable[[Tx], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = _connect(self.path)
            self._read_connections.append(connection)  # from here on it is closed with the others
            connection.execute("PRAGMA query_only = ON")
            # Only the writer checkpoints the log into the database.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            self._local.connection = connection
        try:
            connection.execute("BEGIN")
            try:
                return carried_out(work, _SqliteTx(connection, self._clock, self._vault))
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.DatabaseError as error:
            if not _is_unavailable(error):
                raise
            raise DatabaseUnavailableError(str(error)) from error

    def _open_writer(self) -> sqlite3.Connection:
        self._keep_private()
        connection = _connect(self.path)
        try:
            # Holds for a new file; for one with tables it changes nothing.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _keep_private(self) -> None:
        """Secrets of consumers are in the file: a new one is its owner's alone, and so are its log files."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            if self.path.stat().st_mode & 0o077:
                _LOG.warning(
                    "%s can be read by others, and has secrets in it: chmod 600 %s*",
                    self.path,
                    self.path,
                )

    def _write_loop(self, connection: sqlite3.Connection) -> None:
        with contextlib.closing(connection):
            while True:
                batch = [self._writes.get()]
                while len(batch) < limits.WRITES_PER_COMMIT_MAX:
                    try:
                        batch.append(self._writes.get_nowait())
                    except queue.Empty:
                        break
                stopping = any(item is _STOP for item in batch)
                todo = [item for item in batch if item is not _STOP]
                if todo:
                    settle = self._commit(connection, todo)
                    # The loop is closed if a test or a program abandoned it; then nothing waits.
                    with contextlib.suppress(RuntimeError):
                        self._loop.call_soon_threadsafe(settle)
                if stopping:
                    return

    def _commit(self, connection: sqlite3.Connection, todo: Sequence[_Write]) -> Callable[[], None]:
        """Run a batch in one transaction. Returns a function that wakes its waiters.

        Whatever is raised is the outcome of some of these writes: the thread has to go on with the next ones.
        """
        results: list[_Result] = []
        rung: set[int] = set()
        try:
            if connection.in_transaction:  # the disk has refused to roll back the last one
                connection.execute("ROLLBACK")
            self._steady.follow(connection)
            connection.execute("BEGIN IMMEDIATE")
            results = [self._run(connection, write, rung) for write in todo]
            connection.execute("COMMIT")
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):  # the disk may refuse this, too
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            failure = error
            if isinstance(error, sqlite3.Error):
                failure = DatabaseUnavailableError(str(error))
                failure.__cause__ = error
            results = [(future, None, failure) for _, future in todo]
            rung = set()

        def settle() -> None:
            for future, value, problem in results:
                resolve(future, value, problem)
            if rung:
                self._hear(sorted(rung))

        return settle

    def _run(self, connection: sqlite3.Connection, write: _Write, rung: set[int]) -> _Result:
        """Run one write; if it raises, it alone is rolled back, and gets what it has raised."""
        work, future = write
        if future.cancelled():
            return future, None, None
        connection.execute("SAVEPOINT one")
        tx = _SqliteTx(connection, self._clock, self._vault)
        try:
            value = carried_out(work, tx)
        except BaseException as error:
            if _is_unavailable(error):
                raise
            connection.execute("ROLLBACK TO one")
            connection.execute("RELEASE one")
            return future, None, error
        connection.execute("RELEASE one")
        rung |= tx.rung
        return future, value, None


def _is_unavailable(error: BaseException) -> bool:
    """Whether the file or its disk is to blame, and not a statement or its values."""
    if isinstance(error, sqlite3.IntegrityError) and str(error) == FROZEN:
        return True
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error,
        sqlite3.IntegrityError
        | sqlite3.ProgrammingError
        | sqlite3.DataError
        | sqlite3.NotSupportedError,
    )


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date; raises :class:`StoreFormatError` if it is of a later version."""
    migrations = load_migrations("sqlite")
    # Not a transaction per step: a half-made schema must not stay.
    connection.execute("BEGIN IMMEDIATE")
    try:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > migrations[-1][0]:
            raise StoreFormatError(
                f"the database has schema {version}; this version of headrace knows {migrations[-1][0]}"
            )
        for number, _, text in migrations:
            if number > version:
                for statement in _statements(text):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # of a full disk SQLite has ended it itself
            connection.execute("ROLLBACK")
        raise


def _statements(text: str) -> list[str]:
    """The statements of a script; ``executescript`` would commit in between."""
    found, current = [], ""
    for line in text.splitlines(keepends=True):
        current += line
        if current.strip() and sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA cache_size = -65536")
    except BaseException:
        connection.close()
        raise
    return connection
