"""A task that writes: which of which batch it is, as far as Spark tells, and its one connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ...errors import ConfigurationError, ConnectionClosedError
from ..links.link import Link
from ..links.pool import POOL
from ..options import Connection

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
"""Local properties of a streaming query's tasks. Spark documents neither; a test pins them per version."""


class TaskIdentity(NamedTuple):
    """``batch`` and ``query`` are None and empty where Spark does not tell."""

    partition: int
    attempt: int
    batch: int | None
    query: str


def current_task() -> TaskIdentity:
    """The task that this process runs now."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise ConfigurationError("jetstream sink: rows can only be written inside a task of Spark")
    batch = context.getLocalProperty(BATCH_ID)
    return TaskIdentity(
        context.partitionId(),
        context.attemptNumber(),
        int(batch) if batch is not None and batch.isdigit() else None,
        context.getLocalProperty(QUERY_ID) or "",
    )


Connect = Callable[[], Link]


class Links:
    """Lends one connection to a task, and another one after it broke.

    Args:
        connect: opens one; default: the server that the options name.
    """

    def __init__(self, connection: Connection, connect: Connect | None = None) -> None:
        self._connection = connection
        self._connect = connect
        self._link: Link | None = None
        self._was_connected = False

    @property
    def was_connected(self) -> bool:
        """Whether this task or one before it in this process has reached the server."""
        return self._was_connected or POOL.has_reached(self._connection)

    def get(self) -> Link:
        """The connection. Raises as ``Link.open``."""
        if self._link is not None and not self._link.closed:
            return self._link
        self._link = POOL.take(self._connection, self._connect)
        self._was_connected = True
        return self._link

    def drop(self) -> None:
        """Close the connection: what it has sent is not known to have arrived."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def end(self, sid: bytes) -> None:
        """End a subscription of the task, which has heard all it wants."""
        if self._link is None or not sid:
            return
        try:
            self._link.unsubscribe(sid)
        except ConnectionClosedError:
            self.drop()  # it ended with the connection; the next task opens another one

    def give_back(self) -> None:
        """The task is done with the connection and has nothing under way on it."""
        link, self._link = self._link, None
        if link is not None and not link.closed:
            POOL.give_back(self._connection, link)
