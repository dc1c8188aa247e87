"""Sinks of streams in the output modes that Spark does not give them: each batch as a numbered write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ConfigurationError
from ...spark.sink.options import parse_sink_options
from ..model import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UNSORTABLE = ("map", "variant")


def numbered_write(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Writes a batch with its number, for ``foreachBatch``. Raises ConfigurationError: an option is wrong."""
    parsed = parse_sink_options(options, streaming=True)
    given = dict(options)
    # Rows of an aggregation come in no order of their own, and have to come in the same one when a batch
    # runs again. A key's value is found by the key.
    is_sorted = parsed.delivery != "atleastonce" and not parsed.key
    has_number = bool(parsed.sink_id)

    def write(batch: DataFrame, number: int) -> None:
        if is_sorted:
            kinds = {each.name: each.dataType.simpleString() for each in batch.schema.fields}
            names = [n for n, kind in kinds.items() if not any(map(kind.__contains__, _UNSORTABLE))]
            batch = batch.sortWithinPartitions(*[batch[f"`{name}`"] for name in names])
        writer: Any = batch.write.format("jetstream").mode("append").options(**given)
        if has_number:
            writer = writer.option("batchId", number)
        writer.save()

    return write


def refuse_older_values(sink: Sink, into: Sink) -> None:
    """Raise ConfigurationError if a replay of ``sink`` would put old values over the latest ones."""
    if into is sink and into.format == "jetstream" and "key" in map(str.lower, into.options):
        raise ConfigurationError(
            f"{sink.place}: sink {sink.name!r} keeps the latest value of each key, and a replay of a range "
            "would put older ones over them; replay --into a sink with another bucket or stream, or begin "
            "the query again with reset"
        )
