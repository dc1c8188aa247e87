"""A streaming source in Python that does nothing: one row per batch, from no server.

What Spark takes for a Python source whose tasks read shows here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType


class NothingSource(DataSource):
    """``format("nothing")``."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "sequence bigint"

    def streamReader(self, schema: StructType) -> NothingReader:  # noqa: N802
        return NothingReader()


class NothingReader(DataSourceStreamReader):
    def __init__(self) -> None:
        self._last = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"seq": 0}

    def latestOffset(self, *_: object) -> dict[str, Any]:  # noqa: N802
        self._last += 1
        return {"seq": self._last}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(end["seq"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"sequence": pa.array([partition.value], pa.int64())})
