"""Which task of which batch this is, as far as Spark tells its Python workers."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...errors import ConfigurationError

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
