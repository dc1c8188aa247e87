"""Curves of groups and of Spark queries, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.console.lags import Lags
from headrace.console.look import GroupKey
from headrace.errors import HeadraceError, RequestTimeoutError
from headrace.groups import PartitioningFilter, elastic, static
from headrace.groups.lag import measure
from waiting import until

OURS = pytest.mark.parametrize("server", ["headrace"], indirect=True)


async def make_groups(js: Any) -> None:
    await js.create_stream(name="ORDERS", subjects=("orders.>",), allow_direct=True)
    await elastic.create(
        js,
        "ORDERS",
        "e",
        max_members=3,
        partitioning_filters=[PartitioningFilter("orders.*", (1,))],
    )
    await elastic.add_members(js, "ORDERS", "e", ["a", "b"])
    stream = await js.create_stream(name="PARTS", subjects=("0.>", "1.>"), allow_direct=True)
    await static.create(js, "PARTS", "s", max_members=2, members=["a", "b"])
    for member, partition in (("a", 0), ("b", 1)):
        await stream.create_consumer(
            durable_name=f"s-{member}", filter_subjects=(f"{partition}.>",)
        )


async def test_a_group_s_lag_is_a_curve_that_says_what_its_page_says(world: Any) -> None:
    js = world.js
    await make_groups(js)
    for number in range(6):
        await js.publish(f"orders.{number}")
        await js.publish(f"{number % 2}.x")

    async def copied() -> bool:
        return bool((await (await js.stream("ORDERS-e")).info()).state.messages == 6)

    await until(copied)
    await world.get("/overview?now=1")
    await world.get("/overview?now=1")
    table = {each["group"]: each for each in (await world.get("/groups"))["groups"]}
    for kind, stream, group, of in (
        ("elastic", "ORDERS", "e", elastic),
        ("static", "PARTS", "s", static),
    ):
        history = await world.get(f"/history?of=group/{kind}/{stream}/{group}")
        close = await measure(js, await of.get(js, stream, group))
        assert history["lag"][-1] == close.lag == 6 == table[group]["lag"]
        assert history["source_lag"][-1] == 0
        assert history["handled_per_s"][-1] == 0
        assert len(history["time"]) == len(history["lag"]) > 1


async def test_a_query_s_lag_is_a_curve_with_its_age(world: Any) -> None:
    js = world.js
    stream = await js.create_stream(name="S", subjects=("s.>",), allow_direct=True)
    for number in range(4):
        await js.publish(f"s.{number}")
    await stream.create_consumer(
        durable_name="query", metadata={"headrace.role": "spark-progress"}, filter_subject="s.>"
    )
    await stream.create_consumer(durable_name="other")
    await world.get("/overview?now=1")
    (row,) = (await world.get("/spark"))["queries"]
    assert (row["name"], row["messages_behind"]) == ("query", 4)
    assert row["seconds_behind"] > 0
    history = await world.get("/history?of=spark/S/query")
    assert history["messages_behind"][-1] == 4
    assert history["seconds_behind"][-1] == row["seconds_behind"]
    await stream.purge()
    await world.get("/overview?now=1")
    history = await world.get("/history?of=spark/S/query")
    assert (history["messages_behind"][-1], history["seconds_behind"][-1]) == (0, 0)


@OURS
async def test_records_are_read_again_only_when_a_bucket_has_changed(world: Any) -> None:
    js, connection = world.js, world.connection
    await make_groups(js)
    watcher = world.console.sources.watcher
    await watcher.refresh()
    before = connection.stats().requests
    await watcher.refresh()
    plain = connection.stats().requests - before
    streams_with_consumers = 2  # PARTS; the buckets' and ORDERS-e's members have none
    assert plain <= 1 + streams_with_consumers
    await elastic.create(
        js,
        "ORDERS",
        "f",
        max_members=1,
        partitioning_filters=[PartitioningFilter("orders.*", (1,))],
    )
    await watcher.refresh()
    assert GroupKey("elastic", "ORDERS", "f") in watcher.look.groups


@OURS
async def test_records_that_cannot_be_read_are_said_and_left_alone_for_a_while(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_groups(world.js)
    watcher = world.console.sources.watcher
    now, asked = 1000.0, 0
    lags = Lags(world.console.sources.js, lambda: now)
    monkeypatch.setattr(watcher, "_lags", lags)

    async def refused(*_: object) -> Any:
        nonlocal asked
        asked += 1
        raise RequestTimeoutError("no answer, no right")

    read = lags._read
    monkeypatch.setattr(lags, "_read", refused)
    for _ in range(3):
        await watcher.refresh()
    assert asked == 1
    assert watcher.error == ""
    assert (await world.get("/groups"))["problem"] == (
        "The records of groups cannot be read: no answer, no right"
    )
    monkeypatch.setattr(lags, "_read", read)
    now += 61
    await watcher.refresh()
    assert [each.group for each in watcher.look.groups] == ["e", "s"]
    assert (await world.get("/groups"))["problem"] == ""


@OURS
async def test_ages_that_are_not_told_are_not_asked_for_again_at_once(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await world.js.create_stream(name="S", subjects=("s",))
    await world.js.publish("s")
    await stream.create_consumer(durable_name="q", metadata={"headrace.role": "spark-progress"})
    watcher, asked = world.console.sources.watcher, 0

    async def refused(*_: object) -> Any:
        nonlocal asked
        asked += 1
        raise HeadraceError("not yours")

    monkeypatch.setattr(watcher._lags, "_age_s", refused)
    for _ in range(3):
        await watcher.refresh()
    assert asked == 1
    (row,) = (await world.get("/spark"))["queries"]
    assert (row["messages_behind"], row["seconds_behind"]) == (1, None)
    assert (await world.get("/history?of=spark/S/q"))["messages_behind"][-1] == 1
