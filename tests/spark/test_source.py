"""The source inside a real Spark session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .conftest import ON_BOTH, Feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
pytestmark = [
    pytest.mark.spark,
    # Spark's own: its advice about pandas, and sockets its workers leave to the collector.
    pytest.mark.filterwarnings("ignore"),
]


def stream(spark: SparkSession, feed: Feed, **options: Any) -> DataFrame:
    reader = spark.readStream.format("jetstream").option("servers", feed.url)
    return reader.option("stream", feed.name).options(**options).load()


def batch(spark: SparkSession, feed: Feed, **options: Any) -> DataFrame:
    reader = spark.read.format("jetstream").option("servers", feed.url)
    return reader.option("stream", feed.name).options(**options).load()


def run_available(
    df: DataFrame, checkpoint: str, sink: Callable[[DataFrame, int], None]
) -> list[dict[str, Any]]:
    """Run the query over what is there; returns its progress reports that brought rows."""
    writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    reports = [json.loads(report.json) for report in query.recentProgress]
    return [report for report in reports if report["numInputRows"]]


def test_a_batch_read_is_found_by_name_and_has_every_column(
    spark: SparkSession, feed: Feed
) -> None:
    feed.publish(["a", "b", "a"])
    df = batch(spark, feed, includeHeaders="true")
    rows = df.orderBy("sequence").collect()
    assert [r.subject for r in rows] == [f"{feed.name}.{s}" for s in "aba"]
    assert [bytes(r.data) for r in rows] == [b"m0", b"m1", b"m2"]
    assert [r.sequence for r in rows] == [1, 2, 3]
    assert [r.stream for r in rows] == [feed.name] * 3
    assert all(r.timestamp is not None and r.headers == {} for r in rows)
    assert rows[0].partition is None


def test_a_batch_read_is_bounded_split_pruned_and_filtered(spark: SparkSession, feed: Feed) -> None:
    feed.publish([f"k{n % 3}" for n in range(3000)])
    bounded = batch(
        spark,
        feed,
        startingOffsets=101,
        endingOffsets=2900,
        minMessagesPerTask=1000,
        subjects=f"{feed.name}.k1,{feed.name}.k2",
    )
    found = sorted(row.sequence for row in bounded.select("sequence").collect())
    assert found == [n + 1 for n in range(100, 2900) if n % 3]
    assert bounded.rdd.getNumPartitions() == 2
    reader = spark.read.format("jetstream").option("servers", feed.url)
    pruned = reader.schema("SEQUENCE long NOT NULL, data binary").load(feed.name)
    assert pruned.columns == ["SEQUENCE", "data"]
    assert [row[0] for row in pruned.take(2)] == [1, 2]
    empty = batch(spark, feed, startingOffsets=3001)
    assert empty.count() == 0


@ON_BOTH
def test_a_stream_continues_from_its_checkpoint_with_exactly_the_new_messages(
    spark: SparkSession, feed: Feed, checkpoint: str
) -> None:
    seen: dict[int, list[int]] = {}

    def sink(df: DataFrame, batch_id: int) -> None:
        seen[batch_id] = sorted(row.sequence for row in df.select("sequence").collect())

    def run() -> list[dict[str, Any]]:
        seen.clear()
        df = stream(spark, feed, durable="progress", maxOffsetsPerTrigger=400)
        return run_available(df, checkpoint, sink)

    feed.publish_numbers(1, 1000)
    run()
    assert [len(seen[n]) for n in sorted(seen)] == [400, 400, 200]
    assert [n for batch_id in sorted(seen) for n in seen[batch_id]] == list(range(1, 1001))
    shown = feed.control.consumer_info("progress")
    assert shown is not None
    assert shown.num_pending == 0, "the last batch too is shown as read"

    assert run() == []
    assert seen == {}

    feed.publish_numbers(1001, 1500)
    reports = run()
    assert [n for batch_id in sorted(seen) for n in seen[batch_id]] == list(range(1001, 1501))
    assert reports[-1]["sources"][0]["latestOffset"]["seq"] == 1500
    assert feed.consumers() == 1, "only the progress consumer is left"


@ON_BOTH
def test_splitting_by_partition_keeps_each_key_s_order_inside_one_task(
    spark: SparkSession, make_feed: Callable[..., Feed], checkpoint: str, tmp_path: Path
) -> None:
    feed = make_feed()
    name = feed.name
    feed.call(
        f"STREAM.UPDATE.{name}",
        {
            "name": name,
            "subjects": [f"{name}.>"],
            "subject_transform": {
                "src": f"{name}.*",
                "dest": f"{{{{partition(4,1)}}}}.{name}.{{{{wildcard(1)}}}}",
            },
        },
    )
    feed.publish([f"key{n % 23}" for n in range(2300)])
    tasks: list[list[tuple[int, int]]] = []

    def sink(df: DataFrame, batch_id: int) -> None:
        rows = df.select("partition", "sequence")
        tasks.extend(
            [(row.partition, row.sequence) for row in task] for task in rows.rdd.glom().collect()
        )

    df = stream(spark, feed, splitBy="partition", partitions=4, maxTasks=3, minMessagesPerTask=1)
    run_available(df, checkpoint, sink)
    assert len(tasks) == 3
    assert sorted(seq for task in tasks for _, seq in task) == list(range(1, 2301))
    assert all([seq for _, seq in task] == sorted(seq for _, seq in task) for task in tasks)
    owners = [{partition for partition, _ in task} for task in tasks]
    assert sum(map(len, owners)) == 4
    assert set().union(*owners) == {0, 1, 2, 3}


@ON_BOTH
def test_lost_messages_end_the_query_with_a_sentence_about_them(
    spark: SparkSession, feed: Feed, checkpoint: str
) -> None:
    feed.publish_numbers(1, 10)
    run_available(stream(spark, feed), checkpoint, lambda df, n: None)
    feed.publish_numbers(11, 20)
    feed.call(f"STREAM.PURGE.{feed.name}", {"seq": 16})
    with pytest.raises(Exception, match="up to 5 messages from 11 on were removed"):
        run_available(stream(spark, feed), checkpoint, lambda df, n: None)


def test_a_wrong_option_is_explained_when_the_frame_is_made(
    spark: SparkSession, feed: Feed
) -> None:
    with pytest.raises(
        Exception, match=r"unknown option 'startingoffset'; did you mean 'startingOffsets'\?"
    ):
        batch(spark, feed, startingOffset="earliest").collect()
    with pytest.raises(Exception, match="cannot reach a NATS server"):
        batch(spark, feed, servers="nats://127.0.0.1:1").collect()


def test_a_stream_made_again_is_noticed_between_two_actions_and_by_a_checkpoint(
    spark: SparkSession, feed: Feed, checkpoint: str
) -> None:
    seen: list[list[int]] = []

    def sink(df: DataFrame, batch_id: int) -> None:
        seen.append(sorted(row.sequence for row in df.select("sequence").collect()))

    def run() -> list[int]:
        seen.clear()
        df = stream(spark, feed, onStreamReset="earliest", durable="d")
        run_available(df, checkpoint, sink)
        return [sequence for batch in seen for sequence in batch]

    feed.publish_numbers(1, 100)
    df = batch(spark, feed).select("sequence")
    assert len(df.collect()) == 100
    assert run() == list(range(1, 101))
    feed.call(f"STREAM.DELETE.{feed.name}")
    feed.create(max_msgs_per_subject=1)
    feed.publish([f"k{n % 40}" for n in range(60)])  # the first 20 are replaced
    with pytest.raises(Exception, match="not the one this query read before"):
        df.collect()
    assert run() == list(range(21, 61))
    feed.publish([f"k{n}" for n in range(30)])  # the head moves: no loss here
    assert run() == list(range(61, 91))


def test_what_one_query_asks_of_a_frame_takes_no_rows_from_another(
    spark: SparkSession, feed: Feed
) -> None:
    """Spark keeps one plan of a read for all queries of a frame, and that of the last filters it has told.

    So the source must not read less for them, though Spark's switch is on.
    """
    feed.publish_numbers(1, 100)
    spark.conf.set(PUSHDOWN, "true")
    try:
        rows = batch(spark, feed)
        early = rows.where("sequence <= 20")
        early.explain()
        assert rows.where("sequence > 90").count() == 10
        assert len(early.collect()) == 20
        assert rows.count() == 100
        rows.createOrReplaceTempView("twice")
        parts = [f"SELECT {n} AS part FROM twice WHERE sequence <= {n}" for n in (90, 50, 10)]
        counts = spark.sql(" UNION ALL ".join(parts)).groupBy("part").count().collect()
        assert {tuple(row) for row in counts} == {(90, 90), (50, 50), (10, 10)}
    finally:
        spark.conf.set(PUSHDOWN, "false")


def test_a_misspelt_stream_is_said_where_it_is_named_in_one_sentence(
    spark: SparkSession, feed: Feed
) -> None:
    with pytest.raises(Exception, match="has no stream") as raised:
        stream(spark, feed, stream=feed.name + "X")
    assert "there are: " + feed.name in str(raised.value)
    assert "File " not in str(raised.value), "no traceback above the sentence"
    with pytest.raises(Exception, match="has no stream"):
        batch(spark, feed, stream=feed.name + "X")


def test_with_a_schema_of_the_user_a_misspelt_stream_is_said_when_spark_first_asks(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    """Not by ``load``: Spark calls no code of a Python source there. Should it do so once, this fails."""
    wrong = {"stream": feed.name + "X", "servers": feed.url}
    rows = spark.read.format("jetstream").schema("data binary").options(**wrong).load()
    with pytest.raises(Exception, match="has no stream"):
        rows.collect()
    ever = spark.readStream.format("jetstream").schema("data binary").options(**wrong).load()
    query = ever.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="has no stream"):
        query.awaitTermination(60)


def test_a_wrong_option_of_a_stream_is_said_as_it_is(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    """With a schema of the user Spark asks the source when the query runs, and hides what is raised then."""
    wrong = {"strem": feed.name, "servers": feed.url}
    for options, said in (
        (wrong, "unknown option 'strem'; did you mean 'stream'"),
        ({"servers": feed.url, "stream": feed.name, "endingOffsets": "5"}, "are for batch reads"),
    ):
        reader = spark.readStream.format("jetstream").schema("data binary")
        rows = reader.options(**options).load()
        writer = rows.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / said)).start()
        with pytest.raises(Exception, match=said) as raised:
            query.awaitTermination(60)
        assert "UnboundLocalError" not in str(raised.value)


def test_a_table_of_the_catalog_keeps_its_options(
    spark: SparkSession, feed: Feed, checkpoint: str
) -> None:
    feed.publish([f"a.{number % 2}" for number in range(10)], lambda n: b'{"n":%d}' % n)
    options = f"servers '{feed.url}', stream '{feed.name}'"
    table, named = f"T{feed.name}", f"U{feed.name}"
    spark.sql(f"CREATE TABLE {table} USING jetstream OPTIONS ({options})")
    spark.sql(f"CREATE TABLE {named} (data BINARY) USING jetstream OPTIONS ({options})")
    try:
        assert spark.sql(f"SELECT sequence FROM {table} WHERE sequence > 8").count() == 2
        more = f"SELECT * FROM {table} WITH (subjects '{feed.name}.a.1')"
        assert spark.sql(more).count() == 5
        seen: list[Any] = []
        streamed = spark.readStream.table(table)
        run_available(streamed, checkpoint, lambda df, n: seen.extend(df.collect()))
        assert [row.sequence for row in seen] == [*range(1, 11)]
        with pytest.raises(Exception, match="Leave out the columns in CREATE TABLE"):
            spark.sql(f"SELECT * FROM {named}").collect()
        assert spark.sql(f"SELECT * FROM {named} WITH ({options})").count() == 10
        view = f"CREATE TEMPORARY VIEW v (n INT) USING jetstream OPTIONS ({options}, valueFormat 'json')"
        spark.sql(view)
        assert [row.n for row in spark.sql("SELECT n FROM v ORDER BY n").collect()] == [*range(10)]
        with pytest.raises(Exception, match="'password' is a secret"):
            spark.sql(f"CREATE TABLE s USING jetstream OPTIONS ({options}, user 'a', password 'b')")
    finally:
        for name in (table, named):
            spark.sql(f"DROP TABLE {name}")
        spark.sql("DROP VIEW IF EXISTS v")
