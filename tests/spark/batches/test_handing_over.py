"""Rows that Spark is handed with a plan, by Spark's own function; ``test_small_batches`` has a session."""

from __future__ import annotations

import io
import json
import pickle
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.serializers import SpecialLengths
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from headrace.spark.batches.handing_over import SMALL, SMALL_BYTES
from headrace.spark.source import JetStreamDataSource

from ..conftest import Feed

ATTEMPTS = 3  # on a busy machine a server may be so slow that a batch is left to a task
SCHEMA = (
    StructType()
    .add("subject", StringType())
    .add("data", BinaryType())
    .add("sequence", LongType())
    .add("partition", IntegerType())
)


pytestmark = pytest.mark.usefixtures("links_end")


class Planned(NamedTuple):
    """What Spark's process for a stream reader answers to a request for a plan."""

    partitions: list[Any]
    rows: list[dict[str, Any]] | None


class Query:
    """A query's reader, as Spark's process holds it."""

    def __init__(self, feed: Feed, schema: StructType = SCHEMA, **options: str) -> None:
        given = {"stream": feed.name, "servers": feed.url, "startingOffsets": "earliest", **options}
        self.source = JetStreamDataSource(given)
        self.schema = schema
        self.reader = self.source.streamReader(schema)

    def offsets(self) -> tuple[dict[str, Any], dict[str, Any]]:
        start = self.reader.initialOffset()
        return start, self.reader.latestOffset(start, self.reader.getDefaultReadLimit())

    def plan(self, *offsets: dict[str, Any]) -> Planned:
        asked, answer = io.BytesIO(), io.BytesIO()
        for offset in offsets:
            text = json.dumps(offset).encode()
            asked.write(len(text).to_bytes(4) + text)
        asked.seek(0)
        runner.partitions_func(self.reader, self.source, self.schema, 1_000, asked, answer)
        answer.seek(0)

        def number() -> int:
            return int.from_bytes(answer.read(4), signed=True)

        partitions = [pickle.loads(answer.read(number())) for _ in range(number())]
        if number() != runner.NON_EMPTY_PYARROW_RECORD_BATCHES:
            return Planned(partitions, None)
        assert number() == SpecialLengths.START_ARROW_STREAM
        return Planned(partitions, pa.ipc.open_stream(answer).read_all().to_pylist())

    def read(self, partitions: list[Any]) -> list[dict[str, Any]]:
        """As the tasks do."""
        reader = JetStreamDataSource(dict(self.source.options)).streamReader(self.schema)
        return [
            row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()
        ]

    def close(self) -> None:
        self.reader.stop()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subjects": "{}.k1"},
        {"splitBy": "partition", "partitions": "4", "partitionBy": "hash"},
    ],
    ids=lambda options: " ".join(options) or "plain",
)
def test_a_small_batch_is_handed_over_with_the_rows_that_its_task_would_read(
    feed: Feed, options: dict[str, str]
) -> None:
    feed.publish([f"k{n % 3}" for n in range(50)])
    given = {key: value.format(feed.name) for key, value in options.items()}
    query = Query(feed, SCHEMA, **given)
    planned = query.plan(*query.offsets())
    assert planned.rows
    assert planned.rows == query.read(planned.partitions)
    assert len(planned.rows) == (17 if "subjects" in options else 50)
    query.close()


def test_a_plan_is_handed_over_as_often_as_it_is_asked_for(feed: Feed) -> None:
    feed.publish_numbers(1, 3)
    query = Query(feed)
    offsets = query.offsets()
    first = query.plan(*offsets)
    assert query.reader.reportLatestOffset() is not None
    assert not isinstance(query.reader, _SimpleStreamReaderWrapper)
    assert query.plan(*offsets).rows == first.rows
    query.close()


@pytest.mark.parametrize(("messages", "is_small"), [(SMALL, True), (SMALL + 1, False)])
def test_many_messages_are_left_to_a_task(feed: Feed, messages: int, is_small: bool) -> None:
    feed.publish_numbers(1, messages)
    query = Query(feed)
    offsets = query.offsets()
    plans = [query.plan(*offsets) for _ in range(ATTEMPTS)]
    assert any(plan.rows is not None for plan in plans) is is_small
    planned = plans[0]
    assert len(query.read(planned.partitions)) == messages
    query.close()


def test_large_messages_are_left_to_a_task(feed: Feed) -> None:
    feed.publish(["n"] * 3, lambda _: bytes(SMALL_BYTES // 2))
    query = Query(feed)
    planned = query.plan(*query.offsets())
    assert planned.rows is None
    assert len(planned.partitions) == 1
    query.close()


def test_several_tasks_read_for_themselves(feed: Feed) -> None:
    feed.publish_numbers(1, 20)
    query = Query(feed, minPartitions="2")
    planned = query.plan(*query.offsets())
    assert planned.rows is None
    assert len(query.read(planned.partitions)) == 20
    query.close()


def test_a_batch_that_cannot_be_read_is_left_to_a_task_to_fail(feed: Feed) -> None:
    feed.publish(["n"], lambda _: b"no json")
    schema = StructType().add("a", LongType())
    query = Query(feed, schema, valueFormat="json", mode="failfast")
    planned = query.plan(*query.offsets())
    assert planned.rows is None
    with pytest.raises(Exception, match="message 1"):
        query.read(planned.partitions)
    query.close()
