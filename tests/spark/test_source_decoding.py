"""Decoded values inside a real Spark session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .conftest import Feed
from .test_source import batch, run_available

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


DOCUMENTS = [
    b'{"id":1,"at":"2024-01-02T03:04:05Z","tags":["a","b"],"who":{"name":"x","age":3}}',
    b'{"id":"two","on":"2024-02-29"}',
    b"poison",
]
COLUMNS = "id bigint, at timestamp, on date, tags array<string>, who struct<name: string>"


def test_json_is_read_with_the_schema_of_the_reader_or_of_an_option(
    spark: SparkSession, feed: Feed, checkpoint: str
) -> None:
    feed.publish(["a", "b", "c"], lambda index: DOCUMENTS[index])
    df = batch(spark, feed, valueFormat="json", valueSchema=COLUMNS)
    assert df.columns[:5] == ["subject", "sequence", "timestamp", "stream", "partition"]
    assert df.columns[5:] == ["id", "at", "on", "tags", "who", "_rescued"]
    first, second, third = df.orderBy("sequence").collect()
    assert (first.id, first.tags, first.who.name) == (1, ["a", "b"], "x")
    text = df.where("id = 1").selectExpr("date_format(at, 'yyyy-MM-dd HH:mm:ss') AS text")
    assert [row.text for row in text.collect()] == ["2024-01-02 03:04:05"]
    assert (second.id, str(second.on), second._rescued) == (None, "2024-02-29", '{"id":"two"}')
    assert (third.id, third._rescued) == (None, "poison")

    seen: list[Any] = []

    def sink(df: DataFrame, batch_id: int) -> None:
        seen.extend(tuple(row) for row in df.collect())

    reader = spark.readStream.format("jetstream").option("servers", feed.url)
    streamed = (
        reader.schema("sequence bigint, id bigint, who struct<age: int>")
        .options(valueFormat="json", mode="dropmalformed")
        .load(feed.name)
    )
    run_available(streamed, checkpoint, sink)
    assert [(row[0], row[1], row[2].age) for row in seen] == [(1, 1, 3)]
    with pytest.raises(Exception, match="needs to know the columns"):
        batch(spark, feed, valueFormat="json").collect()


def example(name: str, feed: Feed, spark: SparkSession, **names: Any) -> dict[str, Any]:
    """Run the example of this name in the documentation, on our stream; its variables.

    ``names``: texts that stand for others in it, and values that it has from the example before.
    """
    page = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
    found = re.search(rf"<!-- run: {name} -->\n```python\n(.*?)```", page, re.DOTALL)
    assert found, name
    code = found[1].replace("nats://127.0.0.1:4222", feed.url)
    variables: dict[str, Any] = {**names, "spark": spark, "__name__": "__main__"}
    for old, new in names.items():
        if isinstance(new, str):
            code = code.replace(f'"{old}"', f'"{new}"')
    exec(code, variables)
    return variables


def test_the_example_of_values_as_columns_runs(
    spark: SparkSession, feed: Feed, checkpoint: str
) -> None:
    document = b'{"id":1,"amount":%d.25,"customer":{"name":"ann"}}'
    feed.publish(["a", "b"], lambda index: document % (index * 200))
    seen: list[Any] = []
    streamed = example("schema", feed, spark, ORDERS=feed.name)["orders"]
    run_available(streamed, checkpoint, lambda df, n: seen.extend(df.collect()))
    assert [(row.sequence, str(row.amount)) for row in seen] == [(1, "0.25"), (2, "200.25")]


def test_the_examples_of_keys_keep_the_latest_and_a_bucket_enriches_a_stream(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    buckets = {name: f"{name}{feed.name}" for name in ("last", "totals", "PEOPLE")}
    for bucket in buckets.values():
        config = {"name": f"KV_{bucket}", "subjects": [f"$KV.{bucket}.>"], "allow_direct": True}
        feed.call(f"STREAM.CREATE.KV_{bucket}", {**config, "max_msgs_per_subject": 1})

    def people(name: bytes) -> None:
        feed.link.request(f"$KV.{buckets['PEOPLE']}.c1", b'{"name":"%b"}' % name)

    def orders(first: int, last: int) -> None:
        rows = [b'{"customer":"c%d","total":%d}' % (n % 3, n) for n in range(first, last)]
        feed.publish(["a"] * len(rows), rows.__getitem__)

    def table(bucket: str, columns: str) -> dict[str, Any]:
        reader = spark.read.format("jetstream").options(
            servers=feed.url, bucket=bucket, valueFormat="json"
        )
        rows = reader.schema(f"key string, {columns}").load().collect()
        return {row.key: tuple(row)[1:] for row in rows}

    people(b"ann")
    orders(0, 50)
    plain = spark.readStream.format("jetstream").options(servers=feed.url, minMessagesPerTask=25)
    plain = plain.schema("sequence bigint, data binary")
    raw = plain.load(feed.name)
    raw = raw.selectExpr("*", "get_json_object(CAST(data AS string), '$.customer') AS customer")
    for name in ("keyed", "upsert"):
        found = example(name, feed, spark, orders=raw, path=str(tmp_path / name), **buckets)
        found["query"].processAllAvailable()
        if name == "keyed":
            orders(50, 100)
            found["query"].processAllAvailable()
        found["query"].stop()
    last = {f"c{n % 3}": (f"c{n % 3}", str(n)) for n in range(100)}
    assert table(buckets["last"], "user string, total string") == last
    counts = {key: (sum(n % 3 == int(key[1]) for n in range(100)),) for key in last}
    assert table(buckets["totals"], "count bigint") == counts

    seen: list[Any] = []

    def sink(df: DataFrame, batch_id: int) -> None:
        seen.append(sorted({(row.customer, row.name) for row in df.collect()}))
        people(b"bob")

    small = plain.options(maxOffsetsPerTrigger=60).load(feed.name)
    small = small.selectExpr("get_json_object(CAST(data AS string), '$.customer') AS customer")
    named = example("enrichment", feed, spark, orders=small, **buckets)["named"]
    run_available(named, str(tmp_path / "named"), sink)
    assert seen == [[("c0", None), ("c1", name), ("c2", None)] for name in ("ann", "bob")], (
        "each batch meets the values of its time"
    )

    changes: list[Any] = []
    reader = spark.readStream.format("jetstream").options(
        servers=feed.url, bucket=buckets["PEOPLE"], valueFormat="json"
    )
    streamed = reader.schema("key string, name string").load()
    run_available(
        streamed, str(tmp_path / "changes"), lambda df, n: changes.extend(map(tuple, df.collect()))
    )
    assert changes == [("c1", "bob")]
    for bucket in buckets.values():
        feed.call(f"STREAM.DELETE.KV_{bucket}")
