"""The sink inside a real Spark session."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from headrace.api.times import parse_time
from headrace.spark.sink.markers import PLAN
from headrace.spark.sink.task import BATCH_ID, QUERY_ID
from registry_server import RegistryServer

from ..conftest import Feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    # Spark's own: its advice about pandas, and sockets its workers leave to the collector.
    pytest.mark.filterwarnings("ignore"),
]

PINNED = ("4.2", "4.3")
"""The versions of Spark whose tasks are known to tell their batch."""


@pytest.fixture
def out(make_feed: Callable[..., Feed]) -> Feed:
    return with_markers(make_feed)


def with_markers(make_feed: Callable[..., Feed]) -> Feed:
    """A stream that an exactly-once sink can write to."""
    feed = make_feed(allow_atomic=True)
    config = {"name": feed.name, "subjects": [f"{feed.name}.>", f"_sink.{feed.name}.>"]}
    answer = feed.call(f"STREAM.UPDATE.{feed.name}", {**config, "allow_atomic": True})
    assert "error" not in answer, answer
    return feed


def payloads(feed: Feed) -> list[bytes]:
    last = feed.control.stream_info().state.last_seq
    space = f"{feed.name}.".encode()
    found = feed.stored(range(1, last + 1))
    return [message.payload for message in found if message.subject.startswith(space)]


def save(df: DataFrame, out: Feed, **options: Any) -> None:
    writer = df.write.format("jetstream").mode("append").option("servers", out.url)
    writer.options(**options).save(out.name)


def run(df: DataFrame, out: Feed, checkpoint: str, **options: Any) -> None:
    """Write what is there, to the end."""
    writer = df.writeStream.format("jetstream").option("servers", out.url)
    writer = writer.option("stream", out.name).options(**options)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def source(spark: SparkSession, feed: Feed, **options: Any) -> DataFrame:
    reader = spark.readStream.format("jetstream").option("servers", feed.url)
    return reader.option("stream", feed.name).options(**options).load()


def test_a_frame_is_written_with_a_subject_of_its_columns(spark: SparkSession, out: Feed) -> None:
    df = spark.createDataFrame(
        [("eu", 1, 2.5), ("us", 2, 3.5)], "region string, id int, price double"
    )
    save(df, out, subject=f"{out.name}.{{region}}.{{id}}")
    stored = out.stored(range(1, 3))
    assert sorted((message.subject.decode(), message.payload) for message in stored) == [
        (f"{out.name}.eu.1", b'{"region":"eu","id":1,"price":2.5}'),
        (f"{out.name}.us.2", b'{"region":"us","id":2,"price":3.5}'),
    ]


def test_what_is_wrong_is_said_before_a_row_is_written(spark: SparkSession, out: Feed) -> None:
    df = spark.createDataFrame([(1,)], "id int")
    subject = f"{out.name}.a"
    with pytest.raises(Exception, match="unknown option 'subjct'; did you mean 'subject'"):
        save(df, out, subjct=subject)
    with pytest.raises(
        Exception, match="column 'idd', which the rows do not have; did you mean 'id'"
    ):
        save(df, out, subject=subject + ".{idd}")
    with pytest.raises(Exception, match="needs the option 'batchId'"):
        save(df, out, subject=subject, delivery="exactlyOnce", sinkId="s")
    with pytest.raises(Exception, match="a stream is only added to"):
        df.write.format("jetstream").mode("overwrite").option("subject", subject).save(out.name)
    assert payloads(out) == []


def test_a_query_writes_each_row_once_and_goes_on_from_its_checkpoint(
    spark: SparkSession,
    feed: Feed,
    out: Feed,
    checkpoint: str,
    make_feed: Callable[..., Feed],
) -> None:
    """The batch id of tasks comes from a property that Spark does not document: this pins it."""
    assert pyspark.__version__.startswith(PINNED), "look whether tasks still know their batch"
    feed.publish_numbers(1, 1500)
    options = {"subject": f"{out.name}.a", "delivery": "exactlyOnce", "sinkId": "s"}
    df = source(spark, feed, maxOffsetsPerTrigger=1000)
    run(df, out, checkpoint, **options)
    feed.publish_numbers(1501, 2000)
    run(df, out, checkpoint, **options)
    assert payloads(out) == [b"m%d" % number for number in range(1, 2001)]
    subject = f"_sink.{out.name}.s.{PLAN}{parse_time(out.control.head()[0].epoch)}"
    plan = out.call(f"STREAM.MSG.GET.{out.name}", {"last_by_subj": subject})
    import base64

    assert json.loads(base64.b64decode(plan["message"]["data"]))["batch"] == 2
    with pytest.raises(Exception, match="the query has a new or restored checkpoint"):
        run(df, out, checkpoint + "2", **options)
    assert len(payloads(out)) == 2000
    assert (BATCH_ID, QUERY_ID) == ("streaming.sql.batchId", "sql.streaming.queryId")
    # A query that reads what was written exactly once has its rows, and none of the sink's markers.
    end = with_markers(make_feed)
    options = {"subject": f"{end.name}.a", "delivery": "exactlyOnce", "sinkId": "s"}
    chained = source(spark, out, maxOffsetsPerTrigger=1200, minMessagesPerTask=300)
    run(chained, end, checkpoint + "3", **options)
    assert sorted(payloads(end)) == sorted(payloads(out))
    read = spark.read.format("jetstream").option("servers", end.url).option("stream", end.name)
    assert read.load().count() == 2000 < end.control.stream_info().state.messages


def test_a_query_asks_the_registry_once_a_batch_and_writes_what_is_read_back(
    spark: SparkSession, feed: Feed, out: Feed, checkpoint: str, registry: RegistryServer
) -> None:
    """Spark makes the writer again to commit each batch: what is written then needs no schema."""
    fields = [{"name": "n", "type": "long"}, {"name": "text", "type": "string"}]
    schema = {"type": "record", "name": "Row", "fields": fields}
    registry.register("rows-value", json.dumps(schema), number=300)
    feed.publish_numbers(1, 1500)
    where = {"schemaRegistry": registry.url, "schemaSubject": "rows-value", "valueFormat": "avro"}
    rows = source(spark, feed, maxOffsetsPerTrigger=1000).selectExpr(
        "sequence AS n", "cast(data AS string) AS text"
    )
    run(rows, out, checkpoint, **where, subject=f"{out.name}.a")
    assert registry.asked == ["/subjects/rows-value/versions/latest"] * 2
    assert {each[:5] for each in payloads(out)} == {b"\0\0\0\x01\x2c"}
    read = spark.read.format("jetstream").options(servers=out.url, stream=out.name, **where).load()
    assert read.selectExpr("count(*)", "sum(n)", "min(text)").collect() == [(1500, 1125750, "m1")]
    assert registry.asked.count("/schemas/ids/300") >= 1


def test_foreach_batch_writes_each_batch_once_by_its_number(
    spark: SparkSession, feed: Feed, out: Feed, checkpoint: str
) -> None:
    feed.publish([f"k{number % 3}" for number in range(300)])
    attempts: list[int] = []

    def write(df: DataFrame, batch_id: int) -> None:
        attempts.append(batch_id)
        rows = df.coalesce(1).sortWithinPartitions("subject")
        save(
            rows, out, subject=f"{out.name}.{{key}}", delivery="exactlyOnce", sinkId="totals",
            batchId=batch_id,
        )  # fmt: skip
        if len(attempts) == 1:
            raise RuntimeError("after the write, before the commit")

    from pyspark.sql import functions as F

    key = F.element_at(F.split("subject", r"\."), -1)
    totals = source(spark, feed).groupBy(key.alias("key")).count()
    totals = totals.select("key", "count", F.col("key").alias("subject"))

    def go() -> None:
        writer = totals.writeStream.outputMode("update").foreachBatch(write)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()

    with pytest.raises(Exception, match="before the commit"):
        go()
    go()
    assert attempts == [0, 0]
    assert sorted(payloads(out)) == [b'{"key":"k%d","count":100}' % number for number in range(3)]
