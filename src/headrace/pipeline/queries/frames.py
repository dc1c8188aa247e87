"""A sink's rows as a DataFrame of Spark, and the query that writes them."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import HeadraceError
from ...spark.options.source import Use
from ..checkpoints.checkpoint import Generation, Skipped, losses_of, read_skipped
from ..checkpoints.fingerprints import Fingerprint, mixture, note, noted, of_frame
from ..checkpoints.results_folder import bind, check_results, tidy
from ..graph import quarantined, sources_of, upstream
from ..model import (
    NO_CONSENT,
    Consent,
    Declared,
    Function,
    PipelineError,
    Place,
    Problem,
    Sink,
    Source,
    did_you_mean,
)
from ..options import (
    columns_of_place,
    options_of_sink,
    options_of_source,
    place_of_results,
    source_options,
)
from ..spark_errors import sentence_of
from ..triggers import Trigger
from . import conditions
from .handlers import handler_of_query, numbered_write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Frames:
    """The DataFrames of one query, made in order; each is known to SQL by its name.

    Args:
        bounds: options of the sources that replace theirs, by source, for a run over a fixed range.
        skipped: messages that are left out.
        run: the same for all sources of one start of the query, and for no other.
    """

    def __init__(
        self,
        spark: SparkSession,
        declared: Declared,
        query: str,
        generation: Generation | None = None,
        bounds: Mapping[str, Mapping[str, str]] | None = None,
        skipped: Sequence[Skipped] = (),
        run: str = "",
    ) -> None:
        self._spark = spark
        self._declared = declared
        self._query = query
        self._generation = generation
        self._bounds = bounds
        self._skipped = skipped
        self._run = run or secrets.token_hex(8)
        self._made: dict[str, DataFrame] = {}

    def of(self, name: str) -> DataFrame:
        """The rows of a source or view. Raises PipelineError, as ``of_sink``."""
        for each in upstream(self._declared, name):
            self._make(each)
        return self._made[name]

    def of_sink(self, sink: Sink) -> DataFrame:
        """The rows of a sink. Raises PipelineError: Spark refuses a part, in the line of that part."""
        view, expectations = quarantined(self._declared, sink)
        for name in upstream(self._declared, sink.of or view):
            if name != view:
                self._make(name)
        if not view:
            return self._made[sink.of]
        rows = self._at(self._declared.views[view].place, lambda: self._rows_of(view))

        def rejected() -> DataFrame:
            rejects = rows.filter(conditions.quarantine(expectations))
            return rejects.selectExpr(
                "*", f"{conditions.reasons(expectations)} AS {conditions.FAILED_COLUMN}"
            )

        return self._at(expectations[0].place, rejected)

    def _make(self, name: str) -> DataFrame:
        if name not in self._made:
            source = self._declared.sources.get(name)
            place = source.place if source is not None else self._declared.views[name].place
            frame = self._at(place, lambda: self._read(source) if source else self._rows_of(name))
            frame = self._timed(name, self._expected(name, frame))
            frame.createOrReplaceTempView(name)
            self._made[name] = frame
        return self._made[name]

    def _read(self, source: Source) -> DataFrame:
        options = options_of_source(self._declared, source, self._query, self._generation)
        if source.format == "jetstream" and source.streaming and self._generation is not None:
            options["pipeline"] = self._use_of(source, self._generation).text
        bounds = (self._bounds or {}).get(source.name)
        if bounds is not None:
            options = {
                name: value for name, value in options.items() if not _is_replaced(name, bounds)
            }
        streaming = source.streaming and self._bounds is None
        reader: Any = self._spark.readStream if streaming else self._spark.read
        reader = reader.format(source.format).options(**(options | dict(bounds or {})))
        if source.schema:
            reader = reader.schema(source.schema)
        loaded: DataFrame = reader.load()
        return self._without_skipped(source, loaded)

    def _without_skipped(self, source: Source, frame: DataFrame) -> DataFrame:
        """Without the messages that the query leaves out, as its code fails on them."""
        skipped = [each for each in self._skipped if each.source == source.name]
        if not skipped:
            return frame
        sequence, stream = columns_of_place(source)
        streams = sorted({each.stream for each in skipped})
        tests = []
        for name in streams:
            numbers = ", ".join(str(each.sequence) for each in skipped if each.stream == name)
            one = f"`{sequence}` IN ({numbers})"
            if len(source_options(source).streams) > 1:
                one = f"`{stream}` = '{name}' AND {one}"
            tests.append(f"({one})")
        return frame.filter(f"NOT ({' OR '.join(tests)})")

    def _use_of(self, source: Source, generation: Generation) -> Use:
        """What a source is told of the query it belongs to."""
        sink = self._declared.sinks[self._query]
        all_ = sources_of(self._declared, sink.of or quarantined(self._declared, sink)[0])
        others = tuple(each.name for each in all_ if each.streaming and each is not source)
        query = f"{self._declared.name}/{self._query}"
        losses = losses_of(self._declared, generation, self._query)
        return Use(source.name, others, query, self._run, str(losses))

    def _rows_of(self, name: str) -> DataFrame:
        view = self._declared.views[name]
        if view.function is None:
            return self._spark.sql(view.sql)
        function = loaded(view.function)
        given = [self._made[each] for each in view.inputs]
        if view.function.parameters[:1] == ("spark",):
            given.insert(0, self._spark)  # type: ignore[arg-type]
        made = function(*given)
        if made is None:
            raise TypeError(f"{view.function.name} returned nothing; it has to return a DataFrame")
        frame: DataFrame = made
        return frame

    def _expected(self, name: str, frame: DataFrame) -> DataFrame:
        """The rows that fulfil a view's expectations; all are counted."""
        view = self._declared.views.get(name)
        if view is None or not view.expectations:
            return frame
        from pyspark.sql import functions as F  # noqa: N812

        for each in view.expectations:
            self._at(each.place, partial(frame.selectExpr, conditions.failed(each)))
        columns = [F.expr(text) for text in conditions.counts(view.expectations)]
        if self._bounds is None:
            frame = frame.observe(name, *columns)
        return frame.filter(conditions.passes(name, view.expectations))

    def _timed(self, name: str, frame: DataFrame) -> DataFrame:
        """The rows with a view's watermark. What its expectations leave out does not move it."""
        view = self._declared.views.get(name)
        if view is None or view.watermark is None:
            return frame
        mark = view.watermark
        types = {field.name.lower(): field.dataType.simpleString() for field in frame.schema.fields}
        found = types.get(mark.column.lower())
        if found is None:
            hint = did_you_mean(mark.column, frame.columns)
            text = f"view {name!r} gives no column {mark.column!r} for its watermark{hint}"
            raise PipelineError([Problem(mark.place, text)])
        if found not in ("timestamp", "timestamp_ntz"):
            text = (
                f"column {mark.column!r} of view {name!r} is {found.upper()}, and a watermark is of a "
                f"TIMESTAMP: write CAST({mark.column} AS TIMESTAMP) AS {mark.column}"
            )
            raise PipelineError([Problem(mark.place, text)])
        return self._at(mark.place, lambda: frame.withWatermark(mark.column, mark.delay))

    def _at(self, place: Place, make: Callable[[], DataFrame]) -> DataFrame:
        try:
            return make()
        except PipelineError:
            raise
        except Exception as error:
            raise PipelineError([Problem(place, sentence_of(error))]) from error


def _is_replaced(option: str, bounds: Mapping[str, str]) -> bool:
    """Whether an option says where reading begins or ends, or which stream is read, as the bounds do."""
    name = option.lower()
    if name in ("stream", "streams", "path"):
        return "stream" in bounds
    return name.startswith(("startingoffsets", "startingtimestamp", "endingoffsets"))


def loaded(function: Function) -> Callable[..., Any]:
    """A function of a file; workers get it, and what else its file defines, by value."""
    from pyspark import cloudpickle

    by_value: Any = cloudpickle
    found = function.load()
    module = sys.modules.get(found.__module__)
    if module is not None and module.__name__ not in by_value.list_registry_pickle_by_value():
        by_value.register_pickle_by_value(module)
    return found


class Started(NamedTuple):
    """A query that runs.

    Attributes:
        note: called when it has finished a batch, writes down what it is.
        run: what its sources know this start of it by.
    """

    query: StreamingQuery
    note: Callable[[], None]
    run: str


def start(
    spark: SparkSession,
    declared: Declared,
    sink: Sink,
    generation: Generation,
    trigger: Trigger,
    *,
    consent: Consent = NO_CONSENT,
) -> Started:
    """Start a sink's query. Raises PipelineError."""
    options = options_of_sink(declared, sink, generation.suffix)
    run = secrets.token_hex(8)
    try:
        frame, now = _checked(spark, declared, sink, generation, consent, run)
    except HeadraceError:
        raise
    except Exception as error:
        raise PipelineError([Problem(sink.place, sentence_of(error))]) from error
    if conditions.is_counted(sink):
        frame = counted(frame)
    writer = frame.writeStream.queryName(sink.name).outputMode(sink.mode)
    writer = writer.option("checkpointLocation", generation.path)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if trigger.is_bounded:
        writer = writer.trigger(availableNow=True)
    elif trigger.interval_s:
        writer = writer.trigger(processingTime=f"{round(trigger.interval_s * 1000)} milliseconds")
    try:
        if sink.function is not None:
            function = loaded(sink.function)
            handler = handler_of_query(declared, sink, generation, function, spark, consent)
            query = writer.foreachBatch(handler).start()
        elif sink.format == "jetstream" and sink.mode != "append":
            query = writer.foreachBatch(numbered_write(options)).start()
        else:
            query = writer.format(sink.format).options(**options).start()
    except Exception as error:
        raise PipelineError([Problem(sink.place, sentence_of(error))]) from error
    return Started(query, partial(note, generation, now, spark), run)


def counted(frame: DataFrame) -> DataFrame:
    """The rows of a sink, counted on their way to it."""
    from pyspark.sql import functions as F  # noqa: N812

    return frame.observe(conditions.OUT, F.expr(f"count(1) AS {conditions.ROWS}"))


def _checked(
    spark: SparkSession,
    declared: Declared,
    sink: Sink,
    generation: Generation,
    consent: Consent,
    run: str,
) -> tuple[DataFrame, Fingerprint]:
    """The rows of a query whose checkpoint and results are its own, noted as such; and what it is now."""
    place = place_of_results(declared, sink, generation.suffix)
    if place and (problem := check_results(declared, sink, generation, place, spark)):
        raise PipelineError([problem])
    skipped = read_skipped(generation)
    frame = Frames(spark, declared, sink.name, generation, skipped=skipped, run=run).of_sink(sink)
    now, before = of_frame(declared, sink, frame, spark), noted(generation, spark)
    mixed = mixture(declared, sink, before, now) if before is not None else None
    if mixed is not None and not consent.changes:
        raise PipelineError([mixed])
    if place:
        bind(declared, sink, generation, place, spark)
        tidy(sink, place)
    if before is None:
        note(generation, now, spark)
    return frame, now
