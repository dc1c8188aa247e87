"""PostgreSQL: threads that take connections of a pool, and one connection that listens.

A transaction that loses a deadlock or a serialisation conflict runs again. A broken connection is replaced
by the pool; its transaction ends with 503, because the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
import psycopg
from psycopg import errors as pg_errors
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from ...clock import Clock
from ...errors import ConfigurationError, StoreFormatError
from ..errors import DatabaseUnavailableError
from ..vault import PLAIN, Vault
from .base import GroupWork, Row, Tx, carried_out
from .grouping import GroupWriter
from .queries import any_plan_queries, load_migrations, load_queries

__all__ = ["ANY_PLAN", "BY_INDEX", "PostgresDatabase", "migrate"]

A = TypeVar("A")
T = TypeVar("T")

_LOG: Final = logging.getLogger("headrace.jobs")
# What the pool warns of is told to each request that meets it, and by the part that waits for the database.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
_CHANNEL: Final = "headrace_jobs"
_MIGRATION_LOCK: Final = 0x68656164  # any number, the same for all processes
_TRIES: Final = 5
_LISTEN_CHECK_S: Final = 10.0
_RECONNECT_S: Final = 0.5
_ROOM_BYTES: Final = 2 << 20
_CONNECT_S: Final = 5.0
_GIVE_UP_S: Final = (
    0.001  # the pool does not try again by itself: whoever needs a connection lets it
)
_LOOK_S: Final = 0.1  # so often those who wait for one look whether none could be made
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
_COMMIT: Final = b"SELECT set_config('synchronous_commit', 'on', false)"
_DURABLE: Final = _COMMIT + b" WHERE current_setting('synchronous_commit') = 'off'"
"""Puts what is answered on the server's disk; whether on a replica's, too, is left as it is set."""
# Whatever the database has by default: what waited for a lock has to see what was stored meanwhile.
_BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED" + _CLOCK
_BEGIN_READING: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" + _CLOCK


_TO_INDEXES: Final = {
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    **dict.fromkeys(
        ("enable_seqscan", "enable_bitmapscan", "enable_sort"),
        "off",
    ),
    **dict.fromkeys(("enable_hashjoin", "enable_mergejoin"), "off"),
}
BY_INDEX: Final = "; ".join(
    f"SET LOCAL {name} TO {value}" for name, value in _TO_INDEXES.items()
).encode()
"""Statements about a few rows, by keys, are planned once: planning takes as long as the statement. The plan
has to be told so: it may be made for tables that are empty, and be kept while they grow, as the server
counts rows once a minute at most.
"""
ANY_PLAN: Final = "; ".join(f"SET LOCAL {name} TO DEFAULT" for name in _TO_INDEXES).encode()
"""Statements that count, or go through much of a table, are planned each time as the server thinks best."""


@cache
def _queries() -> Mapping[str, tuple[bytes, bool]]:
    """Each query, and whether it may have any plan."""
    free = any_plan_queries()
    texts = load_queries("postgres").items()
    return {name: (text.encode(), name in free) for name, text in texts}


class _Notice(msgspec.Struct):
    """Notice of one process to the others: who it is, and which consumers have new jobs."""

    origin: str
    consumers: list[int]


class _PostgresTx(Tx):
    """The queries on one connection."""

    def __init__(self, cursor: psycopg.Cursor[DictRow], now_us: int, vault: Vault) -> None:
        super().__init__(vault)
        self._cursor = cursor
        self._any_plan = False
        self._now_us = now_us
        self._queries = _queries()

    def all(self, query: str, /, **values: Any) -> Sequence[Row]:
        return self._execute(query, values).fetchall()

    def one(self, query: str, /, **values: Any) -> Row | None:
        return self._execute(query, values).fetchone()

    def run(self, query: str, /, **values: Any) -> int:
        return self._execute(query, values).rowcount

    def run_many(self, query: str, rows: Sequence[Mapping[str, Any]], /) -> None:
        self._cursor.executemany(self._planned(query), rows)

    def now_us(self) -> int:
        return self._now_us

    def _execute(self, query: str, values: dict[str, Any]) -> psycopg.Cursor[DictRow]:
        text = self._planned(query)
        return self._cursor.execute(text, values, prepare=False if self._any_plan else None)

    def _planned(self, query: str) -> bytes:
        """The query's text, after the settings of the transaction are those for its plan."""
        text, any_plan = self._queries[query]
        if any_plan is not self._any_plan:
            self._cursor.execute(ANY_PLAN if any_plan else BY_INDEX, prepare=False)
            self._any_plan = any_plan
        return text


class PostgresDatabase:
    """Implements :class:`~headrace.jobs.store.base.Database` with PostgreSQL."""

    name = "postgresql"

    def __init__(
        self, url: str, *, threads: int, clock: Clock | None = None, vault: Vault = PLAIN
    ) -> None:
        self._url = url
        self._vault = vault
        self._clock = clock
        self._hear: Callable[[Sequence[int]], None] = lambda _: None
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._pool: ConnectionPool[psycopg.Connection[DictRow]] = ConnectionPool(
            url,
            connection_class=psycopg.Connection[DictRow],
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "connect_timeout": round(_CONNECT_S),
            },
            configure=_configure,
            min_size=1,
            max_size=threads,
            open=False,
            reconnect_timeout=_GIVE_UP_S,
            reconnect_failed=self._not_connected,
            name="jobs",
        )
        self._connects_failed = 0
        self._listener: asyncio.Task[None] | None = None
        self._grouping = GroupWriter(self.write)
        self._lacked_room = False
        self._origin = secrets.token_hex(4)
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
        with self._connection() as connection, connection.cursor() as cursor:
            cursor.execute(b"BEGIN", prepare=False)
            cursor.execute(_queries()["take_room"][0], {"rows": size // 1000}, prepare=False)
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
        await asyncio.to_thread(self._pool.open)
        self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="jobs-sql")
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
        executor, self._executor = self._executor, None
        if executor is not None:
            await asyncio.to_thread(executor.shutdown)
        await asyncio.to_thread(self._pool.close)

    async def write(self, work: Callable[[Tx], T], /) -> T:
        return await self._submit(self._write, work)

    async def write_together(self, work: GroupWork, item: Any, /, weight: int = 1) -> Any:
        return await self._grouping.write(work, item, weight)

    async def read(self, work: Callable[[Tx], T], /) -> T:
        return await self._submit(self._read, work)

    async def _submit(self, run: Callable[[A], T], argument: A) -> T:
        if self._executor is None:
            raise DatabaseUnavailableError("it is closed")
        try:
            return await self._loop.run_in_executor(self._executor, run, argument)
        except _UNAVAILABLE as error:
            raise DatabaseUnavailableError(_why(error)) from error

    def _write(self, work: Callable[[Tx], T]) -> T:
        tries = 0
        while True:
            tries += 1
            try:
                result, rung = self._transaction(_BEGIN, work)
            except _CONFLICTS:
                if tries == _TRIES:
                    raise
                continue
            except pg_errors.DiskFull:
                self._lacked_room = True
                raise
            if rung:
                # From here, not from whoever waits for the result: that may have been cancelled meanwhile.
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    self._loop.call_soon_threadsafe(self._rang, rung)
            return result

    def _read(self, work: Callable[[Tx], T]) -> T:
        return self._transaction(_BEGIN_READING, work)[0]

    def _transaction(self, begin: bytes, work: Callable[[Tx], T]) -> tuple[T, set[int]]:
        """Three answers of the server, and those of ``work``. Returns what it rang, too."""
        with self._connection() as connection, connection.cursor() as cursor:
            tx = _PostgresTx(cursor, self._begin(cursor, begin), self._vault)
            result = carried_out(work, tx)
            cursor.execute(b"COMMIT", prepare=False)
        return result, tx.rung

    def _begin(self, cursor: psycopg.Cursor[DictRow], begin: bytes) -> int:
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
            payload = _payload(self._origin, self._unannounced)
            self._unannounced = set()
            try:
                await self._submit(self._notify, payload)
            except DatabaseUnavailableError as error:
                _LOG.warning("other processes were not told of new jobs: %s", error.message)
            await asyncio.sleep(_ANNOUNCE_S)

    def _notify(self, payload: str) -> None:
        with self._connection() as connection:
            connection.execute(_queries()["notify"][0], {"payload": payload})

    @contextlib.contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[DictRow]]:
        """A connection of the pool. Its transaction is rolled back if this ends by an error.

        Raises ``psycopg.OperationalError`` if one cannot be made, after some seconds at the latest.
        """
        failed, until_s = self._connects_failed, time.monotonic() + _CONNECT_S
        while True:
            try:
                connection = self._pool.getconn(timeout=_LOOK_S)
            except PoolTimeout:
                if self._connects_failed != failed or time.monotonic() > until_s:
                    raise
            else:
                break
        try:
            yield connection
        except BaseException:
            if not connection.closed and not connection.broken:
                connection.rollback()
            raise
        finally:
            self._pool.putconn(connection)

    def _not_connected(self, _: ConnectionPool[psycopg.Connection[DictRow]]) -> None:
        """The pool has tried to make a connection, and could not."""
        self._connects_failed += 1

    def _migrate(self) -> None:
        with psycopg.connect(
            self._url, autocommit=True, row_factory=dict_row, connect_timeout=round(_CONNECT_S)
        ) as connection:
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
                            origin, consumers = _rung(notice.payload)
                            if origin != self._origin:  # our own were heard at once
                                self._hear(consumers)
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


def migrate(connection: psycopg.Connection[DictRow]) -> None:
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


def _configure(connection: psycopg.Connection[DictRow]) -> None:
    """The settings of a connection's life; statements that need others set them for a transaction."""
    connection.execute(BY_INDEX.replace(b"SET LOCAL", b"SET"))
    connection.execute(_DURABLE)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _why(error: psycopg.Error) -> str:
    """The kind of an error, and its sentence if the server said it: that holds no address, no password."""
    sentence = error.diag.message_primary
    return f"{type(error).__name__}: {sentence}" if sentence else type(error).__name__


def _rung(payload: str) -> tuple[str | None, list[int]]:
    """Read from whom a notice is, and of whom. Anybody may send one: what cannot be read is of all."""
    try:
        found = msgspec.json.decode(payload, type=_Notice)
    except (msgspec.MsgspecError, RecursionError):
        return None, []
    return found.origin, found.consumers


def _payload(origin: str, consumers: set[int]) -> str:
    """The payload of a notice; PostgreSQL limits it to 8000 bytes, and an empty list means all waiters."""
    text = msgspec.json.encode(_Notice(origin, sorted(consumers))).decode()
    return text if len(text) < 7900 else msgspec.json.encode(_Notice(origin, [])).decode()
