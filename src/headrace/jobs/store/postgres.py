"""PostgreSQL: a pool of threads with a connection each, and one connection that listens.

A transaction that loses a deadlock or a serialisation conflict runs again. A broken connection is replaced
on the next use; its transaction ends with 503, because the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final, TypeVar

import psycopg
from psycopg import errors as pg_errors
from psycopg.rows import dict_row

from ...clock import Clock
from ...errors import ConfigurationError, StoreFormatError
from ..errors import DatabaseUnavailableError
from ..vault import PLAIN, Vault
from .base import GroupWork, Row, Tx
from .brief import Done, Part
from .direct import SETTINGS, Direct, StatementError
from .queries import load_migrations, load_queries
from .together import Together

__all__ = ["PostgresDatabase", "migrate"]

A = TypeVar("A")
T = TypeVar("T")

_LOG: Final = logging.getLogger("headrace.jobs")
_CHANNEL: Final = "headrace_jobs"
_MIGRATION_LOCK: Final = 0x68656164  # any number, the same for all processes
_TRIES: Final = 5
_LISTEN_CHECK_S: Final = 10.0
_RECONNECT_S: Final = 0.5
_ROOM_BYTES: Final = 2 << 20
_BRIEF: Final = tuple(name for name in load_queries("postgres") if name.endswith("_briefly"))
_DIRECT_MAX: Final = 2  # connections for them
_MEMORY_MAX: Final = 10_000
_ANNOUNCE_S: Final = 0.02  # between two notices: each is a transaction
# ForeignKeyViolation: a consumer that another transaction deleted meanwhile is not there the second time.
_CONFLICTS: Final = (
    pg_errors.DeadlockDetected,
    pg_errors.SerializationFailure,
    pg_errors.ForeignKeyViolation,
)
# InternalError: a server that has become a standby, or was set to read only, accepts no writes.
_UNAVAILABLE: Final = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)


# Not now(): that is when the transaction began, which may have waited for its connection since.
_CLOCK: Final = b"; SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us"
_BEGIN: Final = b"BEGIN" + _CLOCK
_BEGIN_READING: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" + _CLOCK


@cache
def _queries() -> Mapping[str, bytes]:
    return {name: text.encode() for name, text in load_queries("postgres").items()}


class _PostgresTx:
    """The queries on one connection."""

    def __init__(self, cursor: psycopg.Cursor[dict[str, Any]], now_us: int, vault: Vault) -> None:
        self._cursor = cursor
        self.vault = vault
        self._now_us = now_us
        self._queries = _queries()
        self.known: dict[Hashable, Any] = {}
        self.rung: set[int] = set()

    def all(self, query: str, /, **values: Any) -> Sequence[Row]:
        return self._execute(query, values).fetchall()

    def one(self, query: str, /, **values: Any) -> Row | None:
        return self._execute(query, values).fetchone()

    def run(self, query: str, /, **values: Any) -> int:
        return self._execute(query, values).rowcount

    def run_many(self, query: str, rows: Sequence[Mapping[str, Any]], /) -> None:
        self._cursor.executemany(self._queries[query], rows)

    def now_us(self) -> int:
        return self._now_us

    def once(self, key: Hashable, made: Callable[[], T], /) -> T:
        if key not in self.known:
            self.known[key] = made()
        found: T = self.known[key]
        return found

    def ring(self, consumers: Sequence[int], /) -> None:
        self.rung.update(consumers)

    def _execute(self, query: str, values: dict[str, Any]) -> psycopg.Cursor[dict[str, Any]]:
        return self._cursor.execute(self._queries[query], values)


class PostgresDatabase:
    """See :class:`~headrace.jobs.store.base.Database`."""

    name = "postgresql"

    def __init__(
        self, url: str, *, threads: int, clock: Clock | None = None, vault: Vault = PLAIN
    ) -> None:
        self._url = url
        self._vault = vault
        self._clock = clock
        self._threads = threads
        self._hear: Callable[[Sequence[int]], None] = lambda _: None
        self._pool: ThreadPoolExecutor | None = None
        self._local = threading.local()
        # With the server's number of each.
        self._connections: dict[psycopg.Connection[dict[str, Any]], int] = {}
        self._listener: asyncio.Task[None] | None = None
        self._memory: dict[Hashable, Any] = {}
        self._directs: list[Direct] = []
        self._connecting: asyncio.Task[None] | None = None
        self._together = Together(self.write, self._run_briefly, self._memory)
        self._lacked_room = False
        self._unannounced: set[int] = set()
        self._announcing: asyncio.Task[None] | None = None

    def on_ring(self, hear: Callable[[Sequence[int]], None], /) -> None:
        self._hear = hear

    async def find_room(self) -> None:
        """A small write goes into pages that are there, so it says nothing about a full disk."""
        if self._lacked_room:
            await self._submit(self._fill, _ROOM_BYTES)
            self._lacked_room = False

    def _fill(self, size: int) -> None:
        """Take so many bytes of the disk and give them back."""
        connection = self._connection()
        with connection.cursor() as cursor:
            cursor.execute(b"BEGIN", prepare=False)
            try:
                cursor.execute(_queries()["take_room"], {"rows": size // 1000}, prepare=False)
            finally:
                if not connection.closed and not connection.broken:
                    connection.rollback()

    def place(self) -> str:
        parts = psycopg.conninfo.conninfo_to_dict(self._url)
        host, port = parts.get("host", "localhost"), parts.get("port", 5432)
        return f"PostgreSQL's database {parts.get('dbname', '')} at {host}:{port}"

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await asyncio.to_thread(self._migrate)
        except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
            # The server's text names host and user; the URL, which may contain a password, is not shown.
            raise ConfigurationError(f"PostgreSQL cannot be used: {_first_line(error)}") from error
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="jobs-sql")
        listening = asyncio.Event()
        self._listener = asyncio.create_task(self._listen(listening), name="jobs-listen")
        await listening.wait()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
            self._listener = None
        if self._announcing is not None:
            await asyncio.gather(self._announcing, return_exceptions=True)
        if self._connecting is not None:
            await asyncio.gather(self._connecting, return_exceptions=True)
        for direct in self._directs:
            direct.close()
        self._directs.clear()
        if self._pool is not None:
            await asyncio.to_thread(self._pool.shutdown)
            self._pool = None
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    async def write(self, work: Callable[[Tx], T], /) -> T:
        return await self._submit(self._write, work)

    async def write_together(self, work: GroupWork, item: Any, /) -> Any:
        return await self._together.write(work, item)

    async def read(self, work: Callable[[Tx], T], /) -> T:
        return await self._submit(self._read, work)

    async def _run_briefly(self, parts: Sequence[Part]) -> list[Done] | None:
        """Run these statements in one transaction. None if that has done nothing, for whatever reason."""
        direct = self._free_direct()
        if direct is None:
            return None
        now = None if self._clock is None else self._clock.now_ns() // 1000
        try:
            found = await direct.run([(part.query, {**part.values, "now": now}) for part in parts])
        except StatementError:
            return None  # the ordinary way meets the same, and knows what to do
        except _UNAVAILABLE as error:
            raise DatabaseUnavailableError(_why(error)) from error
        done = [part.read(rows) for part, rows in zip(parts, found, strict=True)]
        if rung := {consumer for one in done for consumer in one.rung}:
            self._rang(rung)
        return done

    def _free_direct(self) -> Direct | None:
        """A connection for statements that nobody uses. If there is none, one more is made meanwhile."""
        self._directs = [direct for direct in self._directs if not direct.is_lost]
        free = next((direct for direct in self._directs if not direct.is_busy), None)
        is_connecting = self._connecting is not None and not self._connecting.done()
        if free is None and len(self._directs) < _DIRECT_MAX and not is_connecting:
            self._connecting = asyncio.create_task(self._connect_direct(), name="jobs-connect")
        return free

    async def _connect_direct(self) -> None:
        if self._pool is None or not psycopg.Pipeline.is_supported():
            return
        try:
            direct = await Direct.connect(lambda: _connect(self._url), _BRIEF)
        except psycopg.Error as error:
            _LOG.warning("one more connection to PostgreSQL was not made: %s", _why(error))
            await asyncio.sleep(_RECONNECT_S)
        else:
            self._directs.append(direct)

    async def _submit(self, run: Callable[[A], T], argument: A) -> T:
        if self._pool is None:
            raise DatabaseUnavailableError("it is closed")
        try:
            return await self._loop.run_in_executor(self._pool, run, argument)
        except _UNAVAILABLE as error:
            raise DatabaseUnavailableError(_why(error)) from error

    def _write(self, work: Callable[[Tx], T]) -> T:
        tries = 0
        while True:
            tries += 1
            try:
                result, rung, known = self._transaction(_BEGIN, work)
            except _CONFLICTS:
                if tries == _TRIES:
                    raise
                continue
            except pg_errors.DiskFull:
                self._lacked_room = True
                raise
            self._remember(known)
            if rung:
                # From here, not from whoever waits for the result: that may have been cancelled meanwhile.
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    self._loop.call_soon_threadsafe(self._rang, rung)
            return result

    def _read(self, work: Callable[[Tx], T]) -> T:
        return self._transaction(_BEGIN_READING, work)[0]

    def _remember(self, known: Mapping[Hashable, Any]) -> None:
        """Keep what a transaction looked up, for statements that make sure of it."""
        if len(self._memory) > _MEMORY_MAX:
            self._memory.clear()
        self._memory.update((key, value) for key, value in known.items() if value is not None)

    def _transaction(
        self, begin: bytes, work: Callable[[Tx], T]
    ) -> tuple[T, set[int], dict[Hashable, Any]]:
        """Three answers of the server, and those of ``work``. Returns what it rang and looked up, too."""
        connection = self._connection()
        with connection.cursor() as cursor:
            try:
                tx = _PostgresTx(cursor, self._begin(cursor, begin), self._vault)
                result = work(tx)
                cursor.execute(b"COMMIT", prepare=False)
            except BaseException:
                if not connection.closed and not connection.broken:
                    connection.rollback()
                raise
        return result, tx.rung, tx.known

    def _begin(self, cursor: psycopg.Cursor[dict[str, Any]], begin: bytes) -> int:
        """Begin a transaction and ask the server's clock, in one message. Returns the time."""
        cursor.execute(begin, prepare=False)
        cursor.nextset()
        row = cursor.fetchone()
        if row is None:
            raise AssertionError("a SELECT without FROM has one row")
        return int(row["now_us"]) if self._clock is None else self._clock.now_ns() // 1000

    def _rang(self, consumers: set[int]) -> None:
        """Wake our own waiters at once, and tell other processes.

        A notice in the transaction itself would make all commits of the server wait for each other. Of one
        that is lost, with this process between commit and notice, the others hear at their next look.
        """
        self._hear(sorted(consumers))
        self._unannounced |= consumers
        if self._announcing is None or self._announcing.done():
            self._announcing = asyncio.create_task(self._announce(), name="jobs-announce")

    async def _announce(self) -> None:
        while self._unannounced:
            payload, self._unannounced = _payload(self._unannounced), set()
            try:
                await self._submit(self._notify, payload)
            except DatabaseUnavailableError as error:
                _LOG.warning("other processes were not told of new jobs: %s", error.message)
            await asyncio.sleep(_ANNOUNCE_S)

    def _notify(self, payload: str) -> None:
        self._connection().execute(_queries()["notify"], {"payload": payload})

    def _connection(self) -> psycopg.Connection[dict[str, Any]]:
        """This thread's connection, or a new one if it broke."""
        connection: psycopg.Connection[dict[str, Any]] | None = getattr(
            self._local, "connection", None
        )
        if connection is not None and not connection.closed and not connection.broken:
            return connection
        if connection is not None:
            self._connections.pop(connection, None)
            connection.close()
        connection = _connect(self._url)
        self._local.connection = connection
        self._connections[connection] = connection.info.backend_pid
        return connection

    def _migrate(self) -> None:
        with _connect(self._url) as connection:
            migrate(connection)

    async def _listen(self, listening: asyncio.Event) -> None:
        """Receive notices of other processes (and this one); polling covers the gaps."""
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
                async with connection:
                    await connection.execute(f"LISTEN {_CHANNEL}")
                    listening.set()
                    # A commit may have been missed while nothing was listening.
                    self._hear(())
                    while True:
                        async for notice in connection.notifies(timeout=_LISTEN_CHECK_S):
                            if (
                                notice.pid not in self._connections.values()
                            ):  # our own were heard at once
                                self._hear(_rung(notice.payload))
                        await connection.execute("SELECT 1")
            except Exception as error:
                # Whatever it was: without a listener each new job would wait for the next poll.
                listening.set()
                if isinstance(error, (psycopg.Error, OSError)):
                    why = _why(error) if isinstance(error, psycopg.Error) else str(error)
                    _LOG.warning("listening on PostgreSQL was interrupted: %s", why)
                else:
                    _LOG.error("listening on PostgreSQL failed, and begins anew", exc_info=error)
                await asyncio.sleep(_RECONNECT_S)


def migrate(connection: psycopg.Connection[dict[str, Any]]) -> None:
    """Bring the schema up to date; raises :class:`StoreFormatError` if it is of a later version."""
    migrations = load_migrations("postgres")
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        connection.execute(
            "CREATE TABLE IF NOT EXISTS headrace_jobs_schema "
            "(version integer PRIMARY KEY, name text NOT NULL)"
        )
        row = connection.execute(
            "SELECT coalesce(max(version), 0) AS version FROM headrace_jobs_schema"
        ).fetchone()
        version: int = row["version"] if row else 0
        if version > migrations[-1][0]:
            raise StoreFormatError(
                f"the database has schema {version}; this version of headrace knows {migrations[-1][0]}"
            )
        for number, name, text in migrations:
            if number > version:
                connection.execute(text.encode())
                connection.execute(
                    "INSERT INTO headrace_jobs_schema VALUES (%s, %s)", (number, name)
                )


def _connect(url: str) -> psycopg.Connection[dict[str, Any]]:
    """A connection whose plans go along indexes, whatever the tables had when they were made."""
    connection: psycopg.Connection[dict[str, Any]] = psycopg.connect(
        url, autocommit=True, row_factory=dict_row, connect_timeout=5
    )
    try:
        connection.execute(SETTINGS)
    except BaseException:
        connection.close()
        raise
    return connection


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _why(error: psycopg.Error) -> str:
    """The kind of an error, and its sentence if the server said it: that holds no address, no password."""
    sentence = error.diag.message_primary
    return f"{type(error).__name__}: {sentence}" if sentence else type(error).__name__


def _rung(payload: str) -> list[int]:
    """The consumers of a notice. Anybody may send one: what cannot be read wakes everybody up."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return []
    is_list = isinstance(found, list) and all(type(seq) is int for seq in found)
    return found if is_list else []


def _payload(consumers: set[int]) -> str:
    """The payload of a notice; PostgreSQL limits it to 8000 bytes, and an empty list means all waiters."""
    text = json.dumps(sorted(consumers), separators=(",", ":"))
    return text if len(text) < 7900 else "[]"
