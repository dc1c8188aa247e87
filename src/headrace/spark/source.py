"""The classes that Spark calls. They only translate Spark's calls; the logic is elsewhere.

Readers are pickled into tasks, so they hold only the options. The driver object is created at the first
call in the process that runs the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ..errors import HeadraceError
from .batches.handing_over import HandingOver, small_batch
from .batches.plans import check_streams, plan_batch
from .batches.query import Queryable, exit_on_sigterm, query_of
from .catalog import keep, table_options, with_kept
from .decoding.columns import Layout, layout_of, source_schema
from .ending import is_announced
from .error_text import in_one_sentence
from .options import SourceOptions, parse_options
from .slices import Slice
from .tasks.read_slice import current_job, read_slice

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
        with in_one_sentence():
            given = table_options(self.options)
            options = parse_options(self.options if given is None else given)
            check_streams(options)
            columns = source_schema(options)
            return columns if given is None else keep(columns, given)

    def reader(self, schema: StructType) -> JetStreamBatchReader:
        with in_one_sentence():
            options = parse_options(with_kept(self.options, schema), streaming=False)
            return JetStreamBatchReader(options, layout_of(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .sink.writer import JetStreamWriter, make_job

        return JetStreamWriter(make_job(self.options, schema, overwrite, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from .sink.writer import JetStreamStreamWriter, make_job

        return JetStreamStreamWriter(make_job(self.options, schema, overwrite, streaming=True))

    def streamReader(self, schema: StructType) -> JetStreamStreamReader:  # noqa: N802
        try:
            with in_one_sentence():
                options = parse_options(with_kept(self.options, schema), streaming=True)
                reader = JetStreamStreamReader(options, layout_of(options, schema))
                # Spark wants rows that come with the plan to have the columns' metadata, which Arrow has not.
                reader.hands_over = not any(field.metadata for field in schema.fields)
                return reader
        except HeadraceError as error:
            # Raised here, Spark would tell of an unbound variable of its own instead.
            return cast("JetStreamStreamReader", RefusedReader(error))


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a reader that cannot be made: says why, whatever Spark asks first."""

    def __init__(self, error: HeadraceError) -> None:
        self._error = error

    def _refuse(self, *_: object) -> Any:
        with in_one_sentence():
            raise self._error

    getDefaultReadLimit = initialOffset = reportLatestOffset = _refuse  # noqa: N815
    prepareForTriggerAvailableNow = _refuse  # noqa: N815
    latestOffset = partitions = read = commit = _refuse  # type: ignore[assignment]  # noqa: N815


class JetStreamBatchReader(DataSourceReader):
    """A bounded range of each stream, whose edges may move between two uses of a frame (``open_ends``).

    It takes no filters (``pushFilters``): Spark keeps one plan of a read for all queries of a frame, that
    of the last filters, and the others would lose rows.
    """

    def __init__(self, options: SourceOptions, columns: Layout) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        with in_one_sentence():
            return [SlicePartition(piece) for piece in plan_batch(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # For an empty list Spark would create one partition without a value.
        if isinstance(partition, SlicePartition):
            with in_one_sentence():
                piece, job = partition.piece, current_job()
                yield from read_slice(self._options, self._columns, piece, job)


class JetStreamStreamReader(HandingOver, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches, each an exact range that can be read again."""

    hands_over = True

    def __init__(self, options: SourceOptions, columns: Layout) -> None:
        self._options = options
        self._columns = columns
        self._query: Queryable | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_columns": self._columns, "_query": None}

    @property
    def query(self) -> Queryable:
        if self._query is None:
            self._query = query_of(self._options)
            exit_on_sigterm(self._query)
        return self._query

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark has no limit of several kinds: the query knows them all, and Spark says whether they hold.
        pace = self._options.pace
        if pace.max_rows:
            return ReadMaxRows(pace.max_rows)
        if pace.max_bytes:
            return ReadMaxBytes(pace.max_bytes)
        return ReadMinRows(pace.min_rows) if pace.min_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with in_one_sentence():
            self.query.freeze_target()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        with in_one_sentence():
            return self.query.initial_offset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if is_announced(self._options.use):
            return start
        with in_one_sentence():
            return self.query.latest_offset(start, limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self.query.latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with in_one_sentence():
            pieces = self.query.plan(start, end)
            if self.hands_over:
                self.offer(small_batch(self._options, self._columns, pieces))
            return [SlicePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SlicePartition):
            with in_one_sentence():
                yield from read_slice(self._options, self._columns, partition.piece)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: it comes a batch late and never for the last; see ``batches.driver``."""

    def stop(self) -> None:
        """Let go of the connections and of the consumer that waits. Spark calls it at a query's end."""
        if self._query is not None:
            self._query.close()
            self._query = None
