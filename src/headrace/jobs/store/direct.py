"""A connection to PostgreSQL that the event loop drives: some statements, one transaction, one answer.

The statements of a group travel in one message. The server does them as one transaction, and says so when
that is on disk. No thread waits meanwhile, which would cost more than a short statement does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg import pq

from .queries import load_queries

__all__ = ["SETTINGS", "Direct", "Statement", "StatementError"]

_VALUE: Final = re.compile(r"%\((\w+)\)s")
_ENDED: Final = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
SETTINGS: Final = b"""
SET client_encoding TO 'UTF8'; SET plan_cache_mode TO force_generic_plan; SET jit TO off;
SET enable_seqscan TO off; SET enable_bitmapscan TO off; SET enable_sort TO off;
SET enable_hashjoin TO off; SET enable_mergejoin TO off
"""
"""Statements are planned once: planning takes as long as the statement. They have few rows, by keys, which a
plan for any values has to be told. It may be made for tables that are empty, and be kept while they grow:
the server counts rows once a minute at most."""


class StatementError(Exception):
    """The server refused a statement, and has done nothing of the group."""


class Statement:
    """A query with numbered values, which the server knows by its name."""

    def __init__(self, query: str) -> None:
        self.name = query.encode()
        self.values: list[str] = []
        self.text = _VALUE.sub(self._numbered, load_queries("postgres")[query]).encode()

    def _numbered(self, found: re.Match[str]) -> str:
        if found[1] not in self.values:
            self.values.append(found[1])
        return f"${self.values.index(found[1]) + 1}"


class Direct:
    """One connection, one group at a time. Made by :meth:`connect`; ``close`` it at the end."""

    def __init__(
        self, connection: psycopg.Connection[Any], statements: Mapping[str, Statement]
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._pg = connection.pgconn
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[list[pq.abc.PGresult]] | None = None
        self._results: list[pq.abc.PGresult] = []
        self._writes = False
        self._is_closed = False
        self._socket = self._pg.socket
        self.pid = connection.info.backend_pid
        self._loop.add_reader(self._socket, self._readable)

    @classmethod
    async def connect(
        cls, open_: Callable[[], psycopg.Connection[Any]], queries: Sequence[str]
    ) -> Direct:
        """A connection of ``open_``, which has :data:`SETTINGS`, that knows these queries."""
        statements = {query: Statement(query) for query in queries}

        def prepared() -> psycopg.Connection[Any]:
            connection = open_()
            try:
                for statement in statements.values():
                    result = connection.pgconn.prepare(statement.name, statement.text)
                    if result.status != pq.ExecStatus.COMMAND_OK:
                        raise psycopg.OperationalError(result.get_error_message())
                connection.pgconn.nonblocking = 1
                connection.pgconn.enter_pipeline_mode()
            except BaseException:
                connection.close()
                raise
            return connection

        return cls(await asyncio.to_thread(prepared), statements)

    @property
    def is_lost(self) -> bool:
        """Whether it takes no more groups."""
        return self._is_closed

    @property
    def is_busy(self) -> bool:
        """Whether a group is under way."""
        return self._future is not None

    async def run(
        self, group: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> list[list[dict[str, Any]]]:
        """The rows of each statement, when all of them are stored.

        Raises :class:`StatementError` if none is, and ``psycopg.OperationalError`` if the connection is lost:
        then they may be stored or not.
        """
        if self._future is not None:
            raise AssertionError("one group at a time")
        self._future = self._loop.create_future()
        self._results = []
        try:
            for query, values in group:
                self._send(self._statements[query], values)
            self._pg.pipeline_sync()
            self._flush()
            results = await self._future
        except BaseException:
            self.close()
            raise
        finally:
            self._future = None
        for result in results:
            if result.status not in _ENDED:
                raise StatementError(result.get_error_message())
        if len(results) != len(group):
            raise AssertionError(f"{len(results)} results of {len(group)} statements")
        return [_rows(result) for result in results]

    def close(self) -> None:
        """End the connection. What is under way has no outcome."""
        if (
            self._is_closed
        ):  # not what the library says: it calls one closed that the server has ended
            return
        self._is_closed = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._connection.close()

    def _send(self, statement: Statement, values: Mapping[str, Any]) -> None:
        given = [values[name] for name in statement.values]
        self._pg.send_query_prepared(
            statement.name,
            [_sent(value) for value in given],
            [int(isinstance(value, bytes)) for value in given],
            result_format=1,
        )

    def _flush(self) -> None:
        """Send what the socket takes, and the rest when it takes more."""
        more = self._pg.flush() == 1
        if more and not self._writes:
            self._loop.add_writer(self._socket, self._writable)
        elif self._writes and not more:
            self._loop.remove_writer(self._socket)
        self._writes = more

    def _writable(self) -> None:
        try:
            self._flush()
        except psycopg.OperationalError as error:
            self._broke(error)

    def _readable(self) -> None:
        try:
            self._pg.consume_input()
            if self._writes:
                self._flush()
            self._take()
        except psycopg.OperationalError as error:
            self._broke(error)

    def _take(self) -> None:
        """Take what has come. After each result comes nothing once; twice: there is no other."""
        between = False
        while not self._pg.is_busy():
            result = self._pg.get_result()
            if result is None:
                if between:
                    return
                between = True
                continue
            between = False
            if result.status != pq.ExecStatus.PIPELINE_SYNC:
                self._results.append(result)
            elif self._future is not None and not self._future.done():
                self._future.set_result(self._results)

    def _broke(self, error: psycopg.OperationalError) -> None:
        self.close()
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)


def _sent(value: str | bytes | int | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()


def _rows(result: pq.abc.PGresult) -> list[dict[str, Any]]:
    columns = [
        (number, (result.fname(number) or b"").decode(), _READERS.get(result.ftype(number), _text))
        for number in range(result.nfields)
    ]
    get = result.get_value
    return [
        {
            name: None if (value := get(row, number)) is None else read(value)
            for number, name, read in columns
        }
        for row in range(result.ntuples)
    ]


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _text(value: bytes) -> str:
    return value.decode()


_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    20: _number,
    21: _number,
    23: _number,
    17: bytes,
}
"""How values of bigint, smallint, integer and bytea are read; all others are text."""
