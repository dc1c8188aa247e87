"""A session of Spark that does something of everything; its classes are what an archive keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...ready.dry import DRY, DrySource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WITHIN_S: Final = 300
COLUMNS: Final = "subject string, data binary, sequence bigint, timestamp timestamp"


def _unchanged(frames: Iterator[Any]) -> Iterator[Any]:
    yield from frames


def _write_nowhere(frame: DataFrame, _batch: int) -> None:
    frame.write.format("noop").mode("overwrite").save()


def exercise(spark: SparkSession, folder: Path) -> None:
    """A batch, and queries with each kind of sink: SQL, state, functions in Python, files."""
    spark.dataSource.register(DrySource)
    reader = spark.readStream.format(DRY).schema(COLUMNS)
    rows = reader.load()
    rows.createOrReplaceTempView("rows")
    text = spark.sql("SELECT sequence, CAST(data AS string) AS text FROM rows WHERE sequence > 0")
    many = spark.sql("SELECT subject, count(*) AS many, max(timestamp) FROM rows GROUP BY subject")
    mapped = rows.select("sequence").mapInArrow(_unchanged, "sequence bigint")
    _run(text.writeStream.format(DRY), folder / "1")
    _run(many.writeStream.outputMode("complete").foreachBatch(_write_nowhere), folder / "2")
    _run(mapped.writeStream.format("parquet").option("path", str(folder / "files")), folder / "3")
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    ticks = ticks.withWatermark("timestamp", "1 minute").groupBy("value").count()
    _run(ticks.writeStream.format("noop").outputMode("update"), folder / "4")
    spark.read.format(DRY).load().write.format(DRY).mode("append").save()
    spark.range(10).selectExpr("id", "named_struct('a', id) AS b").toPandas()


def _run(writer: Any, checkpoint: Path) -> None:
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    try:
        query.awaitTermination(WITHIN_S)
    finally:
        query.stop()
