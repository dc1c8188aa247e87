"""What the pipeline of the demo does with a batch: state, Parquet, and a stream.

Spark calls it again with the same batch when it cannot know that it was finished. So files are replaced, the
state of the batch before is the beginning, and the stream knows which rows it has.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.demo.chains import LEG_COLUMNS, follow_batches
from headrace.demo.publish import LEGS
from headrace.demo.results import Results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_legs(flights: DataFrame, number: int) -> None:
    """Follow the aircraft of one batch, and write their legs."""
    spark = flights.sparkSession
    results = Results(Path(str(spark.conf.get("spark.headrace.demo.directory"))))
    before = results.state_before(number)
    columns = ", ".join(f"{name} {kind}" for name, kind in LEG_COLUMNS.items())
    legs = flights.select("sequence", "data").mapInArrow(partial(follow_batches, before), columns)
    legs.write.mode("overwrite").parquet(str(results.scratch(number)))
    written = results.complete(number, before)
    rows = spark.read.parquet(str(written)).coalesce(1).sortWithinPartitions("sequence")
    (
        rows.write.format("jetstream")
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
