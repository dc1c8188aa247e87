"""Both layouts and static groups: whose consumers there are, and what moves when the members change."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from distances import NEAR_AND_FAR
from headrace.api.consumers import ConsumerConfig
from headrace.api.streams import SubjectTransformConfig
from headrace.client import JetStream
from headrace.groups import (
    GroupChangedError,
    GroupConfigurationError,
    GroupMessage,
    Layout,
    MemberMapping,
    Membership,
    NotAMemberError,
    StaticGroup,
    elastic,
    static,
)
from member_world import CONFIG, GROUP, STREAM, World
from waiting import until

pytestmark = pytest.mark.peer

WORK = f"{STREAM}-{GROUP}"


async def names(js: JetStream, stream: str) -> set[str]:
    return {name async for name in js.consumer_names(stream)}


@NEAR_AND_FAR
async def test_with_a_consumer_for_each_partition_those_that_stay_never_pause(
    world: World, js: JetStream
) -> None:
    await world.create("per_partition", members=("a",))
    before: dict[int, int] = {}
    async with world.join("a") as a, world.join("b") as b:
        await world.publish(40)
        await world.until_seen()
        assert await names(js, WORK) == {f"partition={number}" for number in range(4)}
        before = {row[3]: row[4] for row in world.seen.rows}
        assert sorted(before) == [0, 1, 2, 3]
        await elastic.add_members(js, STREAM, GROUP, ["b"])
        await world.publish(40)
        await world.until_seen()
        assert len(a.partitions) == 2
        assert len(b.partitions) == 2
        after = {row[3]: row[4] for row in world.seen.rows[40:]}
        assert {n for n in before if before[n] != after[n]} == {2, 3}
        assert all(after[number] > before[number] for number in (2, 3))
        await elastic.drop_members(js, STREAM, GROUP, ["a"])
        await world.publish(40)
        await world.until_seen()
        assert {row[0] for row in world.seen.rows[80:]} == {"b"}
    world.seen.check_once_and_in_order(120)


@NEAR_AND_FAR
async def test_a_partition_that_moves_is_drained_and_what_was_not_begun_goes_on_at_once(
    world: World, js: JetStream
) -> None:
    await world.create("per_partition", members=("a",))
    gate = asyncio.Event()
    started = asyncio.Event()

    async def gated(message: GroupMessage) -> None:
        started.set()
        await gate.wait()
        world.seen.note("a", message)
        message.ack()

    config = ConsumerConfig(ack_wait=30.0, max_ack_pending=100)
    async with (
        world.join("a", gated, config=config) as a,
        world.join("b", config=config) as b,
    ):
        await world.publish(40)
        await started.wait()
        await elastic.set_mappings(js, STREAM, GROUP, [MemberMapping("b", (0, 1, 2, 3))])
        await until(
            lambda: a._following and a._following.record.member_mappings, "a does not know of it"
        )
        gate.set()
        await world.until_seen()
        assert not a.partitions
        assert b.partitions == (0, 1, 2, 3)
    world.seen.check_once_and_in_order(40)
    assert len([row for row in world.seen.rows if row[0] == "a"]) < 40
    assert not world.errors


async def test_one_handler_at_a_time_means_one_for_all_partitions(world: World) -> None:
    await world.create("per_partition", members=("a",))
    running = most = 0

    async def handle(message: GroupMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        world.seen.note("a", message)
        message.ack()

    for concurrency in (1, 2):
        most = 0
        async with world.join("a", handle, concurrency=concurrency):
            await world.publish(20)
            await world.until_seen()
        assert most == concurrency
    world.seen.check_once_and_in_order(40)


# Static groups


async def static_stream(js: JetStream, layout: Layout = "interoperable") -> None:
    await js.create_stream(
        name="S",
        subjects=["s.*"],
        storage="memory",
        subject_transform=SubjectTransformConfig(
            src="s.*", dest="{{partition(4,1)}}.s.{{wildcard(1)}}"
        ),
    )
    await static.create(js, "S", "g", 4, members=["a", "b"], layout=layout)


async def publish(js: JetStream, numbers: range) -> None:
    async with js.publisher() as publisher:
        for number in numbers:
            await publisher.send(f"s.k{number % 8}", b"%d" % number)
        await publisher.flush()


def join(world: World, member: str, **options: Any) -> Membership[StaticGroup]:
    options = {"config": CONFIG, "on_error": world.errors.append, **options}
    return static.join(world.js, "S", "g", member, world.seen.handler(member), **options)


@pytest.mark.parametrize("layout", ["interoperable", "per_partition"])
async def test_a_static_group_reads_its_stream_once_between_its_members(
    world: World, js: JetStream, layout: Layout
) -> None:
    await static_stream(js, layout)
    await publish(js, range(40))
    async with join(world, "a") as a:
        async with join(world, "b") as b:
            await world.until_seen(40)
            assert (a.partitions, b.partitions) == ((0, 1), (2, 3))
        await publish(js, range(40, 60))
        await until(lambda: {row[2] for row in world.seen.rows} >= _of(range(60), a.partitions))
    async with join(world, "b"):
        await world.until_seen(60)
        world.seen.check_once_and_in_order(60)
        assert {row[1] for row in world.seen.rows} == {f"k{number}" for number in range(8)}
        expected = {"g-a", "g-b"} if layout == "interoperable" else {f"g={n}" for n in range(4)}
        assert await names(js, "S") == expected


def _of(numbers: range, partitions: tuple[int, ...]) -> set[int]:
    """Which messages are in these partitions, by the keys that were seen there."""
    from headrace.transforms import partition

    return {n for n in numbers if partition(b"k%d" % (n % 8), 4) in partitions}


async def test_a_static_member_must_be_listed(world: World, js: JetStream) -> None:
    await static_stream(js)
    text = "the member name is not in the current static consumer group membership"
    with pytest.raises(NotAMemberError, match=text):
        await join(world, "c").start()


async def test_a_static_group_that_is_changed_or_deleted_ends_with_its_consumers(
    world: World, js: JetStream
) -> None:
    await static_stream(js)
    bucket = await js.key_value("static-consumer-groups")
    async with join(world, "a") as a:
        await until(lambda: _has(js, "g-a"))
        await bucket.put("S.g", b'{"max_members":4,"members":["a"]}')
        with pytest.raises(
            GroupChangedError, match="watcher received a change in the configuration, terminating"
        ):
            await a.wait()
        assert await names(js, "S") == set()
    async with join(world, "a") as a:
        await until(lambda: _has(js, "g-a"))
        await static.delete(js, "S", "g")
        await a.wait()
        assert await names(js, "S") == set()


async def _has(js: JetStream, name: str) -> bool:
    return name in await names(js, "S")


async def test_a_static_consumer_with_another_configuration_is_not_touched(
    world: World, js: JetStream
) -> None:
    await static_stream(js)
    await js.create_consumer("S", durable_name="g-a", filter_subject="3.>")
    async with join(world, "a") as membership:
        with pytest.raises(
            GroupConfigurationError,
            match="the existing static consumer group config doesn't match ours",
        ):
            await membership.wait()
    consumer = await js.consumer("S", "g-a")
    assert consumer.cached_info is not None
    assert consumer.cached_info.config.filter_subject == "3.>"


async def test_another_time_to_acknowledge_is_taken_over_where_nobody_is_at_work(
    world: World, js: JetStream
) -> None:
    await static_stream(js)
    await publish(js, range(8))
    async with join(world, "a"), join(world, "b"):
        await world.until_seen(8)
    for seconds in (7.0, 2.0):
        other = ConsumerConfig(ack_wait=seconds, max_ack_pending=1)
        count = len(world.seen.rows)
        async with join(world, "a", config=other), join(world, "b", config=other):
            await publish(js, range(count, count + 8))
            await world.until_seen(count + 8)
        config = (await (await js.consumer("S", "g-a")).info()).config
        assert (config.ack_wait, config.priority_timeout) == (seconds, seconds)
    world.seen.check_once_and_in_order(24)


async def test_a_shorter_time_beside_an_instance_at_work_is_refused_with_the_command_for_it(
    world: World, js: JetStream
) -> None:
    await static_stream(js)
    await publish(js, range(8))
    shorter = ConsumerConfig(ack_wait=1.5, max_ack_pending=1)
    async with join(world, "a") as a, join(world, "b"):
        await world.until_seen(8)
        async with join(world, "a", config=shorter) as second:
            with pytest.raises(GroupConfigurationError, match=r"ack_wait is 5\.0 there") as caught:
                await second.wait()
        assert a.is_active
    command = str(caught.value).rpartition("loses no position: ")[2].split()
    assert command[:5] == ["headrace", "consumer", "edit", "S", "g-a"]
    cli = Path(sys.executable).with_name("headrace")
    arguments = [*command[1:], "--force", "--server", world.url]
    process = await asyncio.create_subprocess_exec(cli, *arguments, stdout=asyncio.subprocess.PIPE)
    await process.communicate()
    assert process.returncode == 0
    async with join(world, "a", config=shorter):
        await publish(js, range(8, 16))
        await until(lambda: {row[0] for row in world.seen.rows[8:]} == {"a"})
    config = (await (await js.consumer("S", "g-a")).info()).config
    assert (config.ack_wait, config.priority_timeout) == (1.5, 1.5)
    assert len(set(world.seen.numbers())) == len(world.seen.rows)


@NEAR_AND_FAR
async def test_a_member_that_had_left_when_it_was_dropped_frees_its_partitions_at_once(
    world: World, js: JetStream
) -> None:
    await world.create(members=("a", "b"))
    many = ConsumerConfig(ack_wait=300.0, max_ack_pending=100)  # longer than anybody waits here

    async def slow(message: GroupMessage) -> None:
        world.seen.note("b", message)
        await asyncio.sleep(0.002)
        message.ack()

    async with world.join("a", config=many):
        async with world.join("b", slow, config=many):
            await world.publish(80)
            await until(lambda: "b" in world.seen.members())  # and leaves with a full buffer
        await elastic.drop_members(js, STREAM, GROUP, ["b"])
        await world.until_seen()
    world.seen.check_once_and_in_order(80)


async def test_a_durable_that_an_admin_deletes_begins_anew(world: World, js: JetStream) -> None:
    await static_stream(js)
    await publish(js, range(8))
    async with join(world, "a"), join(world, "b"):
        await world.until_seen(8)
        await js.delete_consumer("S", "g-a")
        await js.delete_consumer("S", "g-b")
        await world.until_seen(16)
    assert sorted(world.seen.numbers()) == sorted([*range(8), *range(8)])
