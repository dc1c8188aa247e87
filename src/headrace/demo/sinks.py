"""What the pipeline of the demo does with a batch: state, Parquet, and a stream.

Spark calls it again with the same batch when it cannot know that it was finished. So files are replaced, the
state of the batch before is the beginning, and the stream knows which rows it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.demo.flights import LEG_COLUMNS, LastLeg, follow_batches
from headrace.demo.publish import LEGS
from headrace.demo.results import Results, kept

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

REHEARSAL = -1
"""The number of a batch that is none: the query is rehearsed, and nothing may be written."""


def write_legs(flights: DataFrame, number: int) -> None:
    """Follow the aircraft of one batch; each task keeps its legs as Parquet on their way to the stream."""
    spark = flights.sparkSession
    columns = ", ".join(f"{name} {kind}" for name, kind in LEG_COLUMNS.items())
    if number == REHEARSAL:
        legs = flights.mapInArrow(partial(_follow, {}, ""), columns)
        legs.write.format("noop").mode("overwrite").save()
        return
    results = Results(Path(str(spark.conf.get("spark.headrace.demo.directory"))))
    before = results.state_before(number)
    place = results.scratch(number)
    legs = flights.mapInArrow(partial(_follow, before, str(place)), columns)
    (
        legs.write.format("jetstream")
        .mode("append")
        .options(
            servers=spark.conf.get("spark.headrace.demo.server"),
            stream=LEGS,
            subject="legs.{origin}.{tailnum}",
            delivery="exactlyOnce",
            sinkId="legs",
            batchId=number,
        )
        .save()
    )
    results.complete(number, before)


def _follow(
    before: dict[str, LastLeg], place: str, flights: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The legs of one task."""
    from pyspark import TaskContext

    legs = follow_batches(before, flights)
    task = TaskContext.get()
    if not place or task is None:
        return legs
    return kept(legs, Path(place), task.partitionId(), task.taskAttemptId())
