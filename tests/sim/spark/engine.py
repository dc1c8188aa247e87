"""Spark's order of calls, without Spark: offset log, planning, tasks, commit log, retries and second runs.

What is kept on disk is ``Checkpoint``; everything else is lost with the driver. The classes called are those
that Spark calls, pickled wherever Spark pickles them.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Generator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from headrace.spark.overflow.query import OverflowQuery
from headrace.spark.source import JetStreamDataSource
from sim.spark.procs import Killed, Proc

__all__ = ["HOOKS", "SCHEMA", "Attempt", "Checkpoint", "Driver", "SparkError", "key_of"]

SCHEMA = StructType(
    [
        StructField("subject", StringType()),
        StructField("data", BinaryType()),
        StructField("sequence", LongType()),
        StructField("headers", MapType(StringType(), ArrayType(StringType()))),
    ]
)
KEYS = 7
KEYED = StructType([*SCHEMA.fields, StructField("k", StringType())])
"""Rows as a sink with a key gets them."""
HOOKS = (
    "initialOffset",
    "latestOffset",
    "before offset log",
    "after offset log",
    "partitions",
    "streamWriter",
    "tasks",
    "after tasks",
    "after sink commit",
    "after commit log",
)
TASK_FAILURES_MAX = 4


class SparkError(Exception):
    """The query died; its cause is the error of a task or a hook."""


class Checkpoint:
    """The files of a query: ``offsets`` by batch (start and end as text), and batches in the commit log."""

    def __init__(self) -> None:
        self.offsets: dict[int, tuple[str, str]] = {}
        self.commits: set[int] = set()


class Attempt:
    """One try of one task, as a process."""

    def __init__(
        self, driver: Driver, batch: int, partition: int, number: int, work: bytes
    ) -> None:
        self.batch = batch
        self.partition = partition
        self.number = number
        self._driver = driver
        self._work = work
        self.seen: list[Any] = []
        name = f"{batch}.{partition}#{number}"
        self.proc = Proc(name, self._run)

    def _run(self) -> Any:
        reader, piece, writer, handed = pickle.loads(self._work)
        if self.number:  # Spark has lost what it was handed
            handed = None
        context = TaskContext()
        context._partitionId, context._attemptNumber = self.partition, self.number
        context._localProperties = {
            "streaming.sql.batchId": str(self.batch),
            "sql.streaming.queryId": "query",
        }
        TaskContext._setTaskContext(context)
        rows = self._rows(reader.read(piece) if handed is None else read_back(handed))
        try:
            return pickle.dumps(writer.write(rows))
        except Killed:
            self.proc.is_dead = True
            raise
        finally:
            rows.close()
            TaskContext._setTaskContext(None)  # this process may be a driver again

    def _rows(self, batches: Generator[Any, None, None]) -> Generator[Any, None, None]:
        try:
            for batch in batches:
                self.seen.append(batch)
                yield with_key(batch) if self._driver.sink_schema is KEYED else batch
                self.proc.pause(0.0)
        finally:
            batches.close()


def with_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with a column for their key."""
    keys = [key_of(payload) for payload in batch.column("data").to_pylist()]
    return pa.RecordBatch.from_arrays(
        [*batch.columns, pa.array(keys, pa.string())], names=[*batch.schema.names, "k"]
    )


def key_of(payload: bytes) -> str:
    """The key of a row, by the number of its message."""
    return f"k{int(payload.split(b':')[1]) % KEYS}"


def read_back(batches: list[Any]) -> Generator[Any, None, None]:
    """What the driver was handed."""
    yield from batches


class Driver:
    """One life of the driver process.

    Args:
        options: of source and sink.
        run_tasks: runs attempts until each partition has a result, or raises SparkError.
        hook: called at each of HOOKS; a seed may kill the driver there.

    Attributes:
        epoch: of the stream that the running batch is planned for, or "".
        handed_over: how many plans came with their rows.
    """

    epoch = ""
    handed_over = 0

    def __init__(
        self,
        checkpoint: Checkpoint,
        source: dict[str, str],
        sink: dict[str, str],
        run_tasks: Callable[[Driver, int, list[bytes]], list[bytes]],
        hook: Callable[[str], None],
    ) -> None:
        self.checkpoint = checkpoint
        self._run_tasks = run_tasks
        self._hook = hook
        self._sink = sink
        self.sink_schema = KEYED if "key" in sink else SCHEMA
        made = JetStreamDataSource(dict(source))
        self._reader = made.streamReader(SCHEMA)
        self._limit: ReadLimit = self._reader.getDefaultReadLimit()

    def close(self) -> None:
        """The process is gone, and its connections with it."""
        query = self._reader._query
        if isinstance(query, OverflowQuery):
            query.close()  # and what holds messages back, a thread of the process
        elif query is not None:
            query.hang_up()

    def run_batch(self) -> bool:
        """One trigger; False if there was nothing new."""
        checkpoint = self.checkpoint
        last = max(checkpoint.offsets, default=-1)
        if last < 0:
            self._hook("initialOffset")
            first = self._reader.initialOffset()
            start = json.dumps(self._reader.initialOffset() and first)
            return self._plan_batch(0, start)
        if last not in checkpoint.commits:
            self._run(last, *checkpoint.offsets[last])
            return True
        return self._plan_batch(last + 1, checkpoint.offsets[last][1])

    def _plan_batch(self, batch: int, start: str) -> bool:
        self._hook("latestOffset")
        end = json.dumps(self._reader.latestOffset(json.loads(start), self._limit))
        self._reader.reportLatestOffset()
        if end == start and batch > 0:
            return False
        self._hook("before offset log")
        self.checkpoint.offsets[batch] = (start, end)
        self._hook("after offset log")
        if batch > 0:
            self._reader.commit(json.loads(start))
        self._run(batch, start, end)
        return True

    def _run(self, batch: int, start: str, end: str) -> None:
        self._hook("partitions")
        pieces = list(self._reader.partitions(json.loads(start), json.loads(end)))
        handed = None
        if isinstance(self._reader, _SimpleStreamReaderWrapper):
            handed = [*self._reader.getCache(json.loads(start), json.loads(end))]
            self.handed_over += 1
        self._hook("streamWriter")
        # As in Spark: one for the tasks, another one for the commit.
        sink = JetStreamDataSource(dict(self._sink))
        writer: Any = sink.streamWriter(self.sink_schema, overwrite=False)
        self.epoch = writer._job.epoch
        work = [pickle.dumps((self._reader, piece, writer, handed)) for piece in pieces]
        self._hook("tasks")
        messages = [pickle.loads(each) for each in self._run_tasks(self, batch, work)]
        self._hook("after tasks")
        again = JetStreamDataSource(dict(self._sink))
        committer = again.streamWriter(self.sink_schema, overwrite=False)
        committer.commit(messages, batch)
        self._hook("after sink commit")
        self.checkpoint.commits.add(batch)
        self._hook("after commit log")
