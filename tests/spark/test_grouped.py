"""A query as a member of a group, beside real members, on both servers; without Spark."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.api.consumers import ConsumerConfig
from headrace.api.streams import SubjectTransformConfig
from headrace.cli import main
from headrace.client import connect
from headrace.errors import ConfigurationError, HeadraceError
from headrace.groups import elastic, static
from headrace.groups.message import GroupMessage
from headrace.spark.grouped.holding import give_back
from headrace.spark.grouped.offsets import GroupOffset, Piece, split
from headrace.spark.offsets import DataLossError
from headrace.spark.options import parse_options
from waiting import until

from .grouped_world import (
    GROUP,
    KEYS,
    Engine,
    Place,
    a_place,
    make_elastic,
    partitioned,
    run_until,
    until_left,
)

QUICK = ConsumerConfig(ack_wait=1.0)


def given_back_by_command(
    stream: str, group: str, member: str, *, kind: str = "elastic", servers: str
) -> list[str]:
    """What ``give_back`` does, by ``headrace group … give-back``."""
    arguments = [stream, group, member, "--server", servers, "--force", "--json"]
    assert main(["group", kind, "give-back", *arguments, "--dry-run"]) == 0
    assert main(["group", kind, "give-back", *arguments]) == 0
    assert main(["group", kind, "give-back", *arguments]) == 1, "nothing is held any more"
    return [member]


pytestmark = pytest.mark.usefixtures("links_end")


@pytest.fixture
async def place(server_url: str) -> AsyncIterator[Place]:
    async with (
        connect(server_url) as connection,
        a_place(connection.jetstream(), server_url) as place,
    ):
        yield place


@pytest.mark.parametrize("layout", ["interoperable", "per_partition"])
async def test_partitions_go_back_and_forth_between_members_and_a_query_and_each_key_stays_in_order(
    place: Place, layout: str
) -> None:
    await make_elastic(place, ["a", "spark"], layout)
    js, stream = place.js, place.stream
    engine = place.engine(member="spark")
    engine.chance = random.Random(int(os.environ.get("HEADRACE_SEED", "5")))
    over = False
    running = asyncio.create_task(run_until(engine, lambda: over))
    async with (
        elastic.join(js, stream, GROUP, "a", place.handler("a"), QUICK),
        elastic.join(js, stream, GROUP, "b", place.handler("b"), QUICK),
    ):
        await place.publish(5)
        await until(lambda: place.is_done or running.done())
        assert place.handled_by("query")
        assert place.handled_by("a")
        changes: list[Any] = [
            elastic.add_members(js, stream, GROUP, ["b"]),
            elastic.drop_members(js, stream, GROUP, ["a"]),
            elastic.drop_members(js, stream, GROUP, ["spark"]),
            elastic.add_members(js, stream, GROUP, ["spark", "a"]),
            elastic.drop_members(js, stream, GROUP, ["a", "b"]),
            elastic.add_members(js, stream, GROUP, ["a"]),
        ]
        for change in changes:
            publishing = asyncio.create_task(place.publish(10))
            await change
            await publishing
        await until(lambda: place.is_done or running.done())
        over = True
        await running
    place.check()
    assert place.handled_by("query") > KEYS * 10
    assert place.handled_by("a") + place.handled_by("b") > KEYS * 10
    while engine.batch():
        pass  # what is committed is released when the next batch is asked for
    assert await place.left() == 0
    engine.query.close()


@pytest.mark.parametrize("layout", ["interoperable", "per_partition"])
async def test_partitions_move_between_two_queries(place: Place, layout: str) -> None:
    await make_elastic(place, ["one"], layout)
    js, stream = place.js, place.stream
    engines = [place.engine(member="one")]
    over = False
    running = [asyncio.create_task(run_until(engines[0], lambda: over))]
    await elastic.add_members(js, stream, GROUP, ["two"])
    engines.append(place.engine(member="two"))
    running.append(asyncio.create_task(run_until(engines[1], lambda: over)))
    for engine, seed in zip(engines, (3, 4), strict=True):
        engine.chance = random.Random(seed)
    for change, name in (("drop", "one"), ("add", "one"), ("drop", "two"), ("add", "two")):
        publishing = asyncio.create_task(place.publish(8))
        members = elastic.add_members if change == "add" else elastic.drop_members
        await members(js, stream, GROUP, [name])
        await publishing
    await until(lambda: place.is_done or any(task.done() for task in running))
    over = True
    await asyncio.gather(*running)
    place.check()


async def test_a_batch_runs_again_after_a_crash_and_is_released_only_when_it_is_committed(
    place: Place,
) -> None:
    await make_elastic(place, ["spark"])
    engine = place.engine()
    await place.publish(4)
    await until_left(place, KEYS * 4)
    assert await asyncio.to_thread(engine.next_batch)
    first = await asyncio.to_thread(engine.read)
    assert len(first) == KEYS * 4
    await place.publish(4)
    await until_left(place, KEYS * 8)
    await asyncio.to_thread(engine.crash)
    assert await asyncio.to_thread(engine.read) == first
    assert await place.left() == KEYS * 8
    engine.commit()
    await asyncio.to_thread(engine.crash)  # committed, and not released
    assert await asyncio.to_thread(engine.next_batch)
    assert await place.left() == KEYS * 4
    second = await asyncio.to_thread(engine.read)
    assert sorted(first + second) == sorted({*first, *second})
    assert len(second) == KEYS * 4
    by_partition = {(key, partition) for key, _, partition in first}
    assert len(by_partition) == KEYS, "a key has one partition"
    engine.query.close()


async def test_limits_and_tasks_take_partitions_whole(place: Place) -> None:
    await make_elastic(place, ["spark"])
    await place.publish(5)
    await until_left(place, KEYS * 5)
    engine = place.engine(maxOffsetsPerTrigger="25", minMessagesPerTask="10", maxTasks="2")
    sizes, owners = [], []
    while await asyncio.to_thread(engine.next_batch):
        assert engine.planned is not None
        pieces = engine.query.plan(*engine.planned)
        owners.append([piece.partitions for piece in pieces])
        rows = await asyncio.to_thread(engine.read)
        sizes.append(len(rows))
        engine.log += [(key, number, "query") for key, number, _ in rows]
        engine.commit()
    assert sizes == [25, 25, 10]
    assert owners[0] == [(0, 2, 4), (1, 3, 5)]
    place.check()
    engine.query.close()


@pytest.mark.parametrize("how", [give_back, given_back_by_command])
async def test_an_instance_under_the_query_s_name_waits_and_goes_on_when_the_query_gives_up(
    place: Place, how: Callable[..., list[str]]
) -> None:
    await make_elastic(place, ["spark"])
    engine = place.engine()
    await place.publish(2)
    await run_until(engine, lambda: place.is_done)
    async with elastic.join(place.js, place.stream, GROUP, "spark", place.handler("member")):
        await place.publish(3)
        await run_until(engine, lambda: place.is_done)
        assert place.handled_by("member") == 0
        assert engine.next_batch() is False  # commits, and releases
        engine.query.close()
        await place.publish(3)
        assert place.handled_by("member") == 0
        given = await asyncio.to_thread(
            lambda: how(place.stream, GROUP, "spark", servers=place.url)
        )
        assert given == ["spark"]
        await until(lambda: place.is_done)
    assert place.handled_by("member") == KEYS * 3
    place.check()


async def test_a_query_waits_for_an_instance_of_its_member_and_for_what_it_was_given(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    await make_elastic(place, ["spark"])
    async with elastic.join(place.js, place.stream, GROUP, "spark", place.handler("member")):
        await place.publish(2)
        await until(lambda: place.is_done)
        engine = place.engine()
        for _ in range(3):
            assert not await asyncio.to_thread(engine.batch)
        assert caplog.text.count("waiting for partitions [0, 1, 2, 3, 4, 5]") == 1
        await place.publish(2)
        await until(lambda: place.is_done)
    await place.publish(2)
    await run_until(engine, lambda: place.is_done)
    assert place.handled_by("query") == KEYS * 2
    place.check()
    engine.query.close()


async def test_a_query_outlives_its_connection_and_goes_on_holding_what_it_had(
    place: Place,
) -> None:
    await make_elastic(place, ["spark"])
    engine = place.engine()
    for _ in range(3):
        await place.publish(1)
        await run_until(engine, lambda: place.is_done)
        control = engine.query._call._control
        assert control is not None
        control.link._sock.shutdown(socket.SHUT_RDWR)
    place.check()


async def test_a_second_query_as_the_same_member_ends_the_first(place: Place) -> None:
    await make_elastic(place, ["spark"])
    first, second = place.engine(), place.engine()
    assert not await asyncio.to_thread(first.batch)
    assert not await asyncio.to_thread(second.batch)
    with pytest.raises(ConfigurationError, match="another query has taken over consumer 'spark'"):
        await asyncio.to_thread(first.batch)
    first.query.close()
    second.query.close()


async def test_a_work_queue_that_was_put_back_is_read_on_behind_what_was_read(
    place: Place, tmp_path: Path
) -> None:
    await make_elastic(place, ["spark"])
    await place.publish(3)
    await until_left(place, KEYS * 3)
    engine = place.engine(maxOffsetsPerTrigger="20")
    assert await asyncio.to_thread(engine.batch)
    queue = await place.js.stream(f"{place.stream}-{GROUP}")
    await queue.backup(tmp_path / "older")  # what the query has committed is not released yet
    assert await asyncio.to_thread(engine.next_batch)
    await queue.backup(tmp_path / "newer")
    for folder in ("older", "newer"):
        engine.query.close()
        await queue.delete()
        queue = await place.js.restore_stream(tmp_path / folder)
        engine.raw["onStreamReset"] = "continue" if folder == "newer" else "fail"
        engine.start()
        if folder == "older":
            assert await asyncio.to_thread(engine.read), "the batch that was planned runs again"
    await run_until(engine, lambda: place.is_done)
    place.check()
    engine.query.close()


async def test_a_work_queue_made_again_is_not_purged(place: Place) -> None:
    await make_elastic(place, ["spark"])
    await place.publish(3)
    await until_left(place, KEYS * 3)
    engine = place.engine()
    assert await asyncio.to_thread(engine.batch)
    await elastic.delete(place.js, place.stream, GROUP)
    await make_elastic(place, ["spark"])
    await until_left(place, KEYS * 3)
    with pytest.raises(DataLossError, match="not the one this query read before"):
        await asyncio.to_thread(engine.batch)
    assert await place.left() == KEYS * 3
    engine.query.close()


@pytest.mark.parametrize("layout", ["interoperable", "per_partition"])
@pytest.mark.parametrize("how", [give_back, given_back_by_command])
async def test_a_static_member_is_an_instance_then_a_query_then_an_instance_again(
    place: Place, layout: Any, how: Callable[..., list[str]]
) -> None:
    js, stream = place.js, place.stream
    source = await js.stream(stream)
    await source.update(subject_transform=partitioned(stream))
    await static.create(js, stream, GROUP, max_members=6, members=["x", "y"], layout=layout)
    async with static.join(js, stream, GROUP, "y", place.handler("y")):
        async with static.join(js, stream, GROUP, "x", place.handler("x")):
            await place.publish(3)
            await until(lambda: place.is_done)
        instance = place.handled_by("x")
        await place.publish(3)
        engine = place.engine(member="x", groupKind="static")
        await run_until(engine, lambda: place.is_done)
        assert place.handled_by("query") == instance
        assert not await asyncio.to_thread(engine.batch)
        found = [info async for info in js.consumers(stream)]
        assert sum(info.num_pending for info in found) == 0, "the query's progress shows"
        engine.query.close()
        await place.publish(1)
        url = place.url
        assert await asyncio.to_thread(lambda: how(stream, GROUP, "x", kind="static", servers=url))
        async with static.join(js, stream, GROUP, "x", place.handler("x")):
            await until(lambda: place.is_done)
            await place.publish(1)
            await until(lambda: place.is_done)
        await place.publish(2)
        await run_until(engine_again(engine), lambda: place.is_done)
    place.check()
    engine.query.close()


async def test_of_a_work_queue_that_groups_share_only_the_group_s_own_messages_are_released(
    place: Place,
) -> None:
    js, stream = place.js, f"{place.stream}W"
    kept = "{{wildcard(1)}}.{{wildcard(2)}}"
    transform = SubjectTransformConfig(
        src=f"{stream}.*.*", dest=f"{{{{partition(2,2)}}}}.{stream}.{kept}"
    )
    await js.create_stream(
        name=stream,
        subjects=[f"{stream}.*.*"],
        retention="workqueue",
        storage="memory",
        subject_transform=transform,
    )
    await static.create(
        js, stream, GROUP, max_members=2, filters=[f"{stream}.mine.*"], members=["x"]
    )
    for number in range(10):
        await js.publish(f"{stream}.mine.{number}", b"%d" % number)
        await js.publish(f"{stream}.other.{number}", b"%d" % number)
    raw = {"servers": place.url, "stream": stream, "group": GROUP, "groupKind": "static"}
    engine = Engine({**raw, "pollTimeout": "20ms"}, place.log)
    place.engines.append(engine)
    await run_until(engine, lambda: len(place.log) >= 10)
    assert not await asyncio.to_thread(engine.batch)
    assert sorted(number for _, number, _ in place.log) == list(range(10))
    info = await (await js.stream(stream)).info()
    assert info.state.messages == 10
    await js.delete_stream(stream)


def engine_again(engine: Engine) -> Engine:
    engine.start()
    return engine


async def test_a_group_or_member_that_is_not_there_is_explained(place: Place) -> None:
    with pytest.raises(ConfigurationError, match="has no elastic group 'work'; make one with"):
        await asyncio.to_thread(place.engine)
    await make_elastic(place, ["a", "b"])
    with pytest.raises(ConfigurationError, match="has 2 members: a, b; say with 'member'"):
        await asyncio.to_thread(place.engine)
    with pytest.raises(
        ConfigurationError, match="'c' is no member of group 'work'; there are: a, b"
    ):
        await asyncio.to_thread(lambda: place.engine(member="c"))


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ({"member": "a"}, "'member' needs 'group'"),
        ({"group": "g", "durable": "d"}, "leave out durable"),
        ({"group": "g", "subjects": "a.>", "partitions": "3"}, "leave out partitions, subjects"),
        ({"group": "a.b"}, "1 to 128 of"),
        ({"group": "g", "groupKind": "loose"}, "elastic or static"),
        ({"group": "g", "stream": "A,B"}, "reads one stream"),
    ],
)
def test_options_that_contradict_a_group_are_refused(raw: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_options({"stream": "S", **raw}, streaming=True)


def test_a_batch_read_takes_no_part() -> None:
    with pytest.raises(ConfigurationError, match="for streaming queries"):
        parse_options({"stream": "S", "group": "g"}, streaming=False)


def test_offsets_have_one_text_and_are_read_back() -> None:
    offset = GroupOffset("t", {10: 5, 9: 7}, {9: 3})
    raw = offset.to_dict()
    assert json.dumps(raw) == ('{"b": {"9": 3}, "epoch": "t", "p": {"9": 7, "10": 5}, "v": 1}')
    assert GroupOffset.from_dict(json.loads(json.dumps(raw))) == offset
    plain = GroupOffset("t", {})
    assert GroupOffset.from_dict(plain.to_dict()) == plain


@pytest.mark.parametrize(
    "raw",
    [
        None,
        {"seq": 5, "epoch": "t", "v": 1},
        {"epoch": "t", "p": {}, "v": 2},
        {"epoch": "t", "p": {"a": 1}, "v": 1},
        {"epoch": "t", "p": {"1": -1}, "v": 1},
        {"epoch": "t", "p": [1], "v": 1},
        {"epoch": 5, "p": {}, "v": 1},
        {"b": {"1": True}, "epoch": "t", "p": {}, "v": 1},
    ],
)
def test_offsets_that_are_not_ours_are_refused(raw: object) -> None:
    with pytest.raises(ConfigurationError, match="checkpoint"):
        GroupOffset.from_dict(raw)


def test_each_partition_is_in_one_task_with_what_is_new_of_it() -> None:
    start = GroupOffset("t", {0: 100, 1: 100, 2: 100, 7: 100})
    end = GroupOffset("t", {0: 300, 1: 300, 2: 300, 3: 300, 4: 300, 5: 90}, {4: 150, 5: 90})
    assert split(start, end, max_tasks=2, min_messages=1) == [
        Piece(0, 300, (3,)),
        Piece(100, 300, (0, 2)),
        Piece(100, 300, (1,)),
        Piece(150, 300, (4,)),
    ]
    assert len(split(start, end, max_tasks=9, min_messages=1000)) == 3
    assert split(end, end._replace(begins={}), max_tasks=9, min_messages=1) == []


async def test_what_a_killed_member_had_not_answered_comes_to_the_query_first(
    place: Place,
) -> None:
    await make_elastic(place, ["a"], "per_partition")  # where the consumer outlives its member
    handled = place.handler("a")
    hangs, gone = asyncio.Event(), asyncio.Event()

    async def dies(message: GroupMessage) -> None:
        if len(place.log) == 7:
            hangs.set()
            await gone.wait()
            raise RuntimeError("killed")
        await handled(message)

    doomed = await connect(place.url)
    membership = elastic.join(doomed.jetstream(), place.stream, GROUP, "a", dies, QUICK)
    await membership.start()
    await place.publish(4)
    await hangs.wait()
    await doomed.close()
    gone.set()
    with pytest.raises(HeadraceError):
        await membership.wait()
    assert len(place.log) == 7
    await elastic.drop_members(place.js, place.stream, GROUP, ["a"])
    await elastic.add_members(place.js, place.stream, GROUP, ["spark"])
    engine = place.engine()
    await run_until(engine, lambda: place.is_done)
    place.check()
