"""A query in a group, and state per key, inside a real Spark session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import peers
from headrace.sync import connect
from headrace.sync.groups import PartitioningFilter, elastic
from waiting import block, until_here

from .conftest import Feed
from .test_source_decoding import example

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


@pytest.mark.timeout(400)
def test_state_per_key_sees_a_group_s_messages_in_order_and_each_once(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    peers.package("pandas")
    feed.call(f"STREAM.UPDATE.{feed.name}", {"name": feed.name, "subjects": [f"{feed.name}.*"]})
    groups = ("billing", "accounts")
    with connect(feed.url) as connection:
        js = connection.jetstream()
        filters = [PartitioningFilter(f"{feed.name}.*", (1,))]
        for group in groups:
            elastic.create(js, feed.name, group, max_members=4, partitioning_filters=filters)
            elastic.add_members(js, feed.name, group, ["spark"])

        feed.publish([f"k{n % 5}" for n in range(60)])
        expected = {
            f"{feed.name}.k{key}": [(8, f"m{35 + key}"), (12, f"m{55 + key}")] for key in range(5)
        }
        try:
            for group, keeps_state in zip(groups, (by_processor, by_function), strict=True):
                work = js.stream(f"{feed.name}-{group}")
                until_here(lambda work=work: work.info().state.messages == 60, "nobody copies them")  # type: ignore[misc]
                names = {"ORDERS": feed.name, "billing": group, "100000": "40"}
                orders = example("group", feed, spark, **names)["orders"]
                frame = keeps_state(example("state", feed, spark, orders=orders))
                seen: dict[str, list[tuple[int, str]]] = {}

                def sink(df: DataFrame, batch_id: int, seen: Any = seen) -> None:
                    if not batch_id:
                        block(1.0)  # costs the query a second, and nothing of what it holds
                    for row in df.collect():
                        seen.setdefault(row.subject, []).append((row["count"], row["last"]))

                writer = frame.writeStream.outputMode("update").foreachBatch(sink)
                writer = writer.option("checkpointLocation", str(tmp_path / group))
                writer.trigger(availableNow=True).start().awaitTermination()
                assert seen == expected
                assert work.info().state.messages == 0, "the last batch, too, is released"
        finally:
            for group in groups:
                elastic.delete(js, feed.name, group)


def by_processor(page: dict[str, Any]) -> DataFrame:
    frame: DataFrame = page["latest"]
    return frame


def by_function(page: dict[str, Any]) -> DataFrame:
    """Spark's other way to keep state, by pandas."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    pd = peers.package("pandas")

    def last(key: Any, frames: Any, state: Any) -> Any:
        frame = pd.concat(frames).sort_values("sequence")
        count = (state.get[0] if state.exists else 0) + len(frame)
        state.update((count,))
        yield pd.DataFrame({"subject": key[0], "count": count, "last": frame["text"].iloc[-1:]})

    frame: DataFrame = (
        page["keyed"]
        .groupBy("subject")
        .applyInPandasWithState(
            last, page["columns"], "n bigint", "Update", GroupStateTimeout.NoTimeout
        )
    )
    return frame


@pytest.mark.timeout(400)
def test_a_query_takes_the_surplus_beside_a_worker_as_the_documentation_shows(
    spark: SparkSession, make_feed: Callable[..., Feed], checkpoint: str
) -> None:
    feed = make_feed(retention="workqueue")
    with connect(feed.url) as connection:
        js = connection.jetstream()
        worker = js.create_consumer(
            feed.name,
            durable_name="encode",
            ack_wait=600.0,
            priority_policy="overflow",
            priority_groups=["encoders"],
        )
        feed.publish_numbers(1, 1500)
        mine = list(worker.fetch(10, group="encoders", max_wait=5.0))
        surplus = example("overflow", feed, spark, VIDEOS=feed.name, **{"5000": "400"})["surplus"]
        seen: list[int] = []
        writer = surplus.writeStream.foreachBatch(
            lambda df, number: seen.extend(row.sequence for row in df.collect())
        )
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer.start().awaitTermination()
        assert seen == list(range(11, 11 + 1490 - 999))
        info = worker.info()
        assert (info.num_pending, info.num_ack_pending) == (999, 10)
        for message in mine:
            message.ack_sync()
