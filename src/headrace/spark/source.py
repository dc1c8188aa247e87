"""The classes that Spark calls. They only translate Spark's calls; the logic is elsewhere.

Readers are pickled into tasks, so they hold only the options. The driver object is created at the first
call in the process that runs the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from .control import Control
from .decoding.columns import Layout, layout_of, source_schema
from .driver import Driver
from .link import Link
from .loss import may_be_loss, stored_after
from .offsets import Offset, check_range
from .options import SourceOptions, parse_options
from .planning import Slice
from .plans import locate, plan_tasks
from .tasks import read_slice

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class SlicePartition(InputPartition):
    """One task's slice; contains no secret."""

    def __init__(self, piece: Slice) -> None:
        super().__init__(tuple(piece))

    @property
    def piece(self) -> Slice:
        return Slice(*self.value)


class JetStreamDataSource(DataSource):
    """``spark.read.format("jetstream")`` and ``spark.readStream.format("jetstream")``."""

    @classmethod
    def name(cls) -> str:
        return "jetstream"

    def schema(self) -> str | StructType:
        return source_schema(parse_options(self.options))

    def reader(self, schema: StructType) -> JetStreamBatchReader:
        options = parse_options(self.options, streaming=False)
        return JetStreamBatchReader(options, layout_of(options, schema))

    def streamReader(self, schema: StructType) -> JetStreamStreamReader:  # noqa: N802
        options = parse_options(self.options, streaming=True)
        return JetStreamStreamReader(options, layout_of(options, schema))


class JetStreamBatchReader(DataSourceReader):
    """A bounded range of the stream."""

    def __init__(self, options: SourceOptions, columns: Layout) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        link = Link.open(options.connection)
        try:
            control = Control(link, options.stream)
            head, config = control.head()
            if options.last_per_subject:
                return [SlicePartition(Slice(0, head.last_seq, epoch=head.epoch))]
            lo = locate(control, options.starting, head, as_end=False)
            hi = min(locate(control, options.ending, head, as_end=True), head.last_seq)
            if hi <= lo:
                return []
            since_ns = stored_after(head, lo)
            fail = options.fail_on_data_loss and may_be_loss(config, head, since_ns)
            start, end = Offset(lo, head.epoch), Offset(hi, head.epoch)
            lo, hi = check_range(start, end, head, options.stream, fail_on_loss=fail)
            pieces = plan_tasks(options, lo, hi, since_ns, control, head, config)
        finally:
            link.close()
        return [SlicePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # For an empty list Spark would create one partition without a value.
        if isinstance(partition, SlicePartition):
            yield from read_slice(self._options, self._columns, partition.piece)


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches, each an exact range that can be read again."""

    def __init__(self, options: SourceOptions, columns: Layout) -> None:
        self._options = options
        self._columns = columns
        self._driver: Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_columns": self._columns, "_driver": None}

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            self._driver = Driver(self._options)
            self._driver.install_sigterm()
        return self._driver

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_offsets_per_trigger
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.driver.freeze_target()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return dict(self.driver.initial_offset().to_dict())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return dict(self.driver.latest_offset(Offset.from_dict(start), max_rows).to_dict())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        latest = self.driver.latest
        return dict(latest.to_dict()) if latest is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        pieces = self.driver.plan(Offset.from_dict(start), Offset.from_dict(end))
        return [SlicePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SlicePartition):
            yield from read_slice(self._options, self._columns, partition.piece)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: it comes a batch late and never for the last; see ``driver``."""
