"""A real Spark session begins no task in Python for a small batch; ``test_handing_over`` has the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headrace.spark.source import JetStreamDataSource, JetStreamStreamReader

from .conftest import Feed
from .test_source import run_available

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_spark_begins_no_task_in_python_for_a_small_batch(
    spark: SparkSession, feed: Feed, checkpoint: str
) -> None:
    class Refusing(JetStreamDataSource):
        """No task of it reads anything."""

        @classmethod
        def name(cls) -> str:
            return "refusing"

        def streamReader(self, schema: StructType) -> JetStreamStreamReader:
            reader = super().streamReader(schema)

            def refuse(partition: InputPartition) -> Iterator[pa.RecordBatch]:
                raise AssertionError("a task was to read it")

            reader.read = refuse  # type: ignore[method-assign]
            return reader

    spark.dataSource.register(Refusing)
    feed.publish_numbers(1, 100)
    options = {"servers": feed.url, "stream": feed.name, "maxOffsetsPerTrigger": "50"}
    df = spark.readStream.format("refusing").options(**options).load()
    seen = []
    run_available(
        df,
        checkpoint,
        lambda rows, _: seen.append([row.sequence for row in rows.select("sequence").collect()]),
    )
    assert [*map(sorted, seen)] == [[*range(1, 51)], [*range(51, 101)]]
