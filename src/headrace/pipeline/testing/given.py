"""Rows that a source is given, as its DataFrame: messages are decoded as those of a stream are."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from ...errors import ConfigurationError, HeadraceError
from ...spark.decoding.columns import layout_of, source_schema
from ...spark.frames import Chunk
from ...spark.links.link import Link
from ...spark.options import SourceOptions
from ...spark.tasks.bad_messages import BadMessage, refuse
from ...spark.tasks.batch_builder import BatchBuilder, Selection
from ...wire import encode_headers
from ..model import PipelineError, Place, Problem, Source, did_you_mean
from ..options import JETSTREAM, source_options
from .cases import Given, Row

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KEYS: Final = ("data", "base64", "subject", "key", "headers", "sequence", "timestamp", "stream")
"""What a line that stands for a message may say."""

_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)


def frame_of(spark: SparkSession, source: Source, given: Sequence[Given]) -> DataFrame:
    """What a source reads where it is given these rows.

    Raises:
        PipelineError: a line is no message, or no row of the source's schema.
    """
    return (
        _messages(spark, source, given)
        if source.format == JETSTREAM
        else _table(spark, source, given)
    )


def _table(spark: SparkSession, source: Source, given: Sequence[Given]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    if not source.schema and not given:
        text = f"source {source.name!r} has no schema, so it has to be given a row"
        raise PipelineError([Problem(source.place, text)])
    texts = [json.dumps(each.row) for each in given]
    if not source.schema:
        read: DataFrame = spark.read.json(spark.sparkContext.parallelize(texts, 1))
        return read
    lines = spark.createDataFrame([(text,) for text in texts], "line string")
    row = F.from_json("line", source.schema, {"mode": "FAILFAST"})
    return lines.select(row.alias("row")).select("row.*")


def _messages(spark: SparkSession, source: Source, given: Sequence[Given]) -> DataFrame:
    import pyarrow as pa
    from pyspark.sql.types import StructType as Schema

    options = source_options(source)
    wanted = source.schema or source_schema(options)
    schema = cast("StructType", Schema.fromDDL(wanted)) if isinstance(wanted, str) else wanted
    layout = layout_of(options, schema)
    decoder = layout.decoder(options, _no_link)
    by_stream: dict[str, list[Given]] = {stream: [] for stream in options.streams}
    for each in given:
        by_stream[_stream_of(each, options)].append(each)
    batches = []
    for stream, rows in by_stream.items():
        builder = BatchBuilder(
            layout.columns,
            stream,
            partitions=options.partitions,
            rule=options.partition_rule,
            selection=Selection(options.subjects, ()),
            on_bad=refuse if options.on_bad_message.action == "fail" else _leave_out,
            decoder=decoder,
            key_begins=len(f"$KV.{options.bucket}."),
            leave_out_markers=not options.include_markers,
            null_deletions=bool(options.bucket) and not options.last_per_subject,
        )
        batches.append(builder.build(_chunk(rows, stream, options)))
    table: pa.Table = pa.Table.from_batches(batches)
    made: Any = spark
    frame: DataFrame = made.createDataFrame(table, schema)
    return frame


def _leave_out(messages: Sequence[BadMessage]) -> None:
    """Skipped messages, and those that would become dead letters, are no rows."""


def _no_link() -> Link:
    raise ConfigurationError(
        "the values' schemas are asked of a server, and a test has none; give the source a 'schema' and "
        "another valueFormat in a profile for tests"
    )


def _chunk(given: Sequence[Given], stream: str, options: SourceOptions) -> Chunk:
    """The messages, column by column; of each subject the last one, where the source reads those."""
    made = [_message(each, number, stream, options) for number, each in enumerate(given, 1)]
    if options.last_per_subject:
        made = list({message[0]: message for message in made}.values())
    subjects, payloads, headers, sequences, times = (
        [list(column) for column in zip(*made, strict=True)] if made else [[], [], [], [], []]
    )
    return Chunk(subjects, payloads, headers, [], sequences, times)


def _stream_of(each: Given, options: SourceOptions) -> str:
    unknown = [key for key in each.row if key not in KEYS]
    if unknown:
        text = f"a message has no {unknown[0]!r}{did_you_mean(unknown[0], KEYS)}"
        raise _mistake(each, text)
    stream = each.row.get("stream", options.streams[0])
    if stream not in options.streams:
        text = (
            f"the source does not read a stream {stream!r}; it reads {', '.join(options.streams)}"
        )
        raise _mistake(each, text)
    return str(stream)


def _message(
    each: Given, number: int, stream: str, options: SourceOptions
) -> tuple[bytes, bytes, bytes, int, bytes]:
    row = each.row
    subject = row.get("subject", stream)
    if "key" in row:
        subject = f"$KV.{options.bucket or stream}.{row['key']}"
    sequence = row.get("sequence", number)
    if not isinstance(subject, str) or not isinstance(sequence, int):
        raise _mistake(each, "a subject is a text, a sequence a whole number")
    when = row.get("timestamp", (_BEGIN + timedelta(seconds=number - 1)).isoformat())
    try:
        moment = datetime.fromisoformat(when)
    except (TypeError, ValueError):
        raise _mistake(each, f"timestamp is {when!r}; accepted: 2026-01-01T00:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    time = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return subject.encode(), _payload(each), _headers(each), sequence, time.encode()


def _payload(each: Given) -> bytes:
    """A text as it is, anything else as JSON; binary data as base64."""
    row = each.row
    if "base64" in row:
        try:
            return base64.b64decode(row["base64"], validate=True)
        except (TypeError, ValueError):
            raise _mistake(each, "base64 is no text in base64") from None
    data = row.get("data", "")
    if isinstance(data, str):
        return data.encode()
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def _headers(each: Given) -> bytes:
    found = each.row.get("headers", {})
    if not isinstance(found, Mapping):
        raise _mistake(each, 'headers are an object: {"name": "value"}, or a list of values')
    pairs: list[tuple[str, str]] = []
    for name, value in found.items():
        values = value if isinstance(value, list) else [value]
        pairs += [(name, str(one)) for one in values]
    try:
        return encode_headers(pairs) if pairs else b""
    except HeadraceError as error:
        raise _mistake(each, str(error)) from None


def _mistake(each: Given, text: str) -> PipelineError:
    return PipelineError([Problem(each.place, text)])


def given(rows: Sequence[Row], place: Place) -> list[Given]:
    """Rows that a program gives: their place is the source's."""
    return [Given(row, place) for row in rows]


def rows_of(table: Any) -> list[dict[str, Any]]:
    """The rows of an Arrow table; maps as such."""
    found: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="lossy")
    return found
