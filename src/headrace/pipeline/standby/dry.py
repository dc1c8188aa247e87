"""A source without rows and a sink that keeps nothing: what a query's plan is rehearsed between.

They run in the same Python processes as those of ``jetstream``, and load the same modules there. The sink
looks at its stream; neither writes a thing, nor makes a consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from ...spark import source as _source  # what the source's processes have loaded
from ...spark.error_text import in_one_sentence
from ...spark.sink.target import look
from ...spark.sink.writer import make_job

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ...spark.sink.writing import Job

DRY: Final = "headrace_rehearsal"
"""The name of both, which is registered where a query is rehearsed; nobody else finds it."""
TASKS: Final = "tasks"
STREAM_OF: Final = "streamOf"
"""An option of the sink: it is that of a ``jetstream`` sink, whose options are the others."""
_LOADED: Final = _source.JetStreamDataSource


class DrySource(DataSource):
    """Has the columns that it is given, and no rows."""

    @classmethod
    def name(cls) -> str:
        return DRY

    def schema(self) -> str:
        return "nothing int"

    def reader(self, schema: StructType) -> DataSourceReader:
        return DryReader(_tasks(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return DryStreamReader(_tasks(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DryWriter:
        return DryWriter(_job(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DryStreamWriter:  # noqa: N802
        return DryStreamWriter(_job(self.options, schema))


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In the place of users' code."""
    yield from batches


def _tasks(options: Mapping[str, str]) -> int:
    return int(options.get(TASKS, "1"))


def _job(options: Mapping[str, str], schema: StructType) -> Job | None:
    """A ``jetstream`` sink's, checked as that checks it; None for another one's."""
    ours = (TASKS.lower(), STREAM_OF.lower())
    if STREAM_OF.lower() not in {name.lower() for name in options}:
        return None
    given = {name: value for name, value in options.items() if name.lower() not in ours}
    return make_job(given, schema, overwrite=False, streaming=True)


class DryReader(DataSourceReader):
    """A batch of no rows."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())


class DryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One micro-batch of no rows."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"seq": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return {"seq": 1}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"seq": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())


class Seen(WriterCommitMessage):
    """What a task says: it has seen the stream."""


def _seen(job: Job | None, rows: Iterable[pa.RecordBatch]) -> Seen:
    for _ in rows:
        pass
    if job is not None:
        with in_one_sentence():
            look(job.options.connection, job.options, job.layout)
    return Seen()


class DryWriter(DataSourceArrowWriter):
    """Writes nothing."""

    def __init__(self, job: Job | None) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _seen(self._job, iterator)


class DryStreamWriter(DataSourceStreamArrowWriter):
    """Writes nothing, batch by batch."""

    def __init__(self, job: Job | None) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _seen(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing, as nothing was written."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing, as nothing was written."""
