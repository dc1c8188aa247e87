"""Members of elastic groups on both servers: joining, following the record, leaving."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from distances import NEAR_AND_FAR
from headrace.api.consumers import ConsumerConfig
from headrace.client import JetStream
from headrace.groups import (
    ElasticGroup,
    GroupChangedError,
    GroupConfigurationError,
    GroupNotFoundError,
    elastic,
    static,
)
from headrace.groups.member import Membership
from member_world import GROUP, STREAM, World
from waiting import until

pytestmark = pytest.mark.peer

WORK = f"{STREAM}-{GROUP}"


LONG = ConsumerConfig(ack_wait=300.0, max_ack_pending=1)
"""Pins that run out later than anybody waits here."""


async def test_a_member_that_is_not_listed_waits_and_follows_the_record(
    world: World, js: JetStream
) -> None:
    await world.create()
    async with world.join("a") as membership:
        await world.publish(20)
        assert not world.seen.rows
        await elastic.add_members(js, STREAM, GROUP, ["a"])
        await world.until_seen()
        assert membership.partitions == (0, 1, 2, 3)
        assert membership.generation == world.seen.rows[-1][4] > 0
        await elastic.drop_members(js, STREAM, GROUP, ["a"])
        await until(lambda: not membership.is_active)
        await world.publish(20)
        await elastic.add_members(js, STREAM, GROUP, ["a"])
        await world.until_seen()
        first, last = world.seen.rows[0], world.seen.rows[-1]
        assert first[4] < last[4], "the generation did not grow"
    async with world.join("a"):
        await world.publish(5)
        await world.until_seen()
    world.seen.check_once_and_in_order(45)


@NEAR_AND_FAR
async def test_a_planned_change_moves_partitions_within_a_second_without_duplicates(
    world: World, js: JetStream
) -> None:
    await world.create(members=("a",))
    started = asyncio.Event()

    async def slow(message: Any) -> None:
        started.set()
        await asyncio.sleep(0.002)
        world.seen.note("a", message)
        message.ack()

    async with world.join("a", slow), world.join("b") as b:
        await world.publish(40)
        await started.wait()
        await elastic.add_members(js, STREAM, GROUP, ["b"])
        await until(lambda: b.is_active)
        await world.until_seen()
    world.seen.check_once_and_in_order(40)
    assert world.seen.members() == {"a", "b"}
    assert not world.errors


@NEAR_AND_FAR
async def test_a_standby_takes_over_when_the_pinned_instance_leaves_or_steps_down(
    world: World, js: JetStream
) -> None:
    await world.create(members=("a",))
    active: list[str] = []

    def instance(name: str) -> Membership[ElasticGroup]:
        return world.join(
            "a",
            world.seen.handler(name),
            config=LONG,
            on_active=lambda generation: active.append(name),
        )

    async with instance("first") as first, instance("second") as second:
        await world.publish(10)
        await world.until_seen()
        assert first.is_active + second.is_active == 1
        leader, other = (first, second) if first.is_active else (second, first)
        await elastic.step_down(js, STREAM, GROUP, "a")
        await world.publish(10)
        await world.until_seen()
        assert (leader.partitions, other.partitions) == ((), (0, 1, 2, 3))
        assert len(active) == 2, "the pin went to and fro"
        await other.leave()
        await world.publish(10)
        await world.until_seen()  # much sooner than the pin runs out
        assert leader.partitions == (0, 1, 2, 3)
    world.seen.check_once_and_in_order(30)
    generations = [row[4] for row in world.seen.rows]
    assert generations == sorted(generations)
    assert len(set(generations)) == 3
    assert not world.errors


async def until_empty(js: JetStream) -> None:
    """Until the server has taken all acknowledgements: a work queue keeps the others."""

    async def is_empty() -> bool:
        return (await (await js.stream(WORK)).info()).state.messages == 0

    await until(is_empty, "there are messages in the queue")


async def test_a_consumer_that_an_admin_deletes_is_made_again_at_once(
    world: World, js: JetStream
) -> None:
    await world.create(members=("a",))
    async with world.join("a") as membership:
        await world.publish(3)
        await world.until_seen()
        await until_empty(js)  # what is not acknowledged when its consumer is deleted comes again
        generation = membership.generation
        await js.delete_consumer(WORK, "a")
        await world.publish(3)
        await world.until_seen()
        assert membership.generation > generation
    world.seen.check_once_and_in_order(6)


async def test_a_consumer_of_another_configuration_is_replaced(world: World, js: JetStream) -> None:
    await world.create(members=("a",))
    await js.create_consumer(
        WORK, name="a", filter_subjects=["0.>", "1.>"], inactive_threshold=60.0
    )
    async with world.join("a"):
        await world.publish(8)
        await world.until_seen()
    world.seen.check_once_and_in_order(8)


@NEAR_AND_FAR
async def test_a_partition_that_another_consumer_reads_is_had_soon_after_that_is_gone(
    world: World, js: JetStream
) -> None:
    await world.create(members=("a",))
    foreign = await js.create_consumer(WORK, name="foreign", filter_subject="1.>")
    async with world.join("a") as membership:
        await world.publish(8)
        await asyncio.sleep(0)
        assert not membership.is_active
        await foreign.delete()
        await world.until_seen()


# Ends


async def test_the_deletion_of_the_group_ends_it_in_peace(world: World, js: JetStream) -> None:
    await world.create(members=("a",))
    async with world.join("a") as membership:
        await world.publish(1)
        await world.until_seen()
        await elastic.delete(js, STREAM, GROUP)
        async with asyncio.timeout(5):
            await membership.wait()
    assert not membership.is_active


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (
            b'{"max_members":5,"partitioning_filters":null,"members":["a"]}',
            "max number of members, buffered messages, filter or partitioning wildcards changed",
        ),
        (b"{", "no JSON"),
        (b'{"max_members":0,"partitioning_filters":null}', "must be >= 1"),
    ],
)
async def test_a_change_that_members_cannot_follow_ends_it(
    world: World, js: JetStream, record: bytes, text: str
) -> None:
    await world.create(members=("a",))
    bucket = await js.key_value("elastic-consumer-groups")
    async with world.join("a") as membership:
        await bucket.put(f"{STREAM}.{GROUP}", record)
        with pytest.raises(GroupChangedError, match=text) as caught:
            async with asyncio.timeout(5):
                await membership.wait()
        assert f"{STREAM}-{GROUP} watcher" in str(caught.value)


async def test_an_end_that_nobody_waited_for_is_raised_on_the_way_out(
    world: World, js: JetStream
) -> None:
    await world.create(members=("a",))
    bucket = await js.key_value("elastic-consumer-groups")
    standby = asyncio.Event()
    with pytest.raises(GroupChangedError):
        async with world.join("a", on_standby=standby.set):
            await world.publish(1)
            await world.until_seen()
            await bucket.put(f"{STREAM}.{GROUP}", b"{")
            await standby.wait()


# What is refused at the beginning


async def test_what_is_missing_is_said_at_once(world: World, js: JetStream) -> None:
    with pytest.raises(GroupNotFoundError, match="group's stream does not exist"):
        await world.join("a").start()
    await js.create_stream(name=STREAM, subjects=["x"])
    with pytest.raises(GroupNotFoundError, match="KV bucket doesn't exist"):
        await world.join("a").start()
    await js.delete_stream(STREAM)
    await world.create()
    membership = Membership(js, ElasticGroup, STREAM, "other", "a", print)
    with pytest.raises(GroupNotFoundError, match="not found"):
        await membership.start()


async def test_arguments_that_make_no_sense_are_refused(world: World, js: JetStream) -> None:
    def join(*arguments: Any, **options: Any) -> Membership[ElasticGroup]:
        return Membership(js, ElasticGroup, STREAM, GROUP, "a", *arguments, **options)

    with pytest.raises(GroupConfigurationError, match="must be explicit"):
        join(print, ConsumerConfig(ack_policy="none"))
    with pytest.raises(GroupConfigurationError, match="concurrency is 0"):
        join(print, concurrency=0)
    with pytest.raises(GroupConfigurationError, match="one message at a time"):
        join(None, concurrency=2)
    every = ConsumerConfig(ack_policy="all")
    with pytest.raises(GroupConfigurationError, match="what other handlers still work at"):
        static.join(js, STREAM, GROUP, "a", print, every, concurrency=2)
    await world.create()
    membership = join(None)
    with pytest.raises(GroupConfigurationError, match="has not begun"):
        await membership.wait()
    async with membership:
        with pytest.raises(GroupConfigurationError, match="a message handler must be provided"):
            await membership.wait()
        with pytest.raises(GroupConfigurationError, match="join again"):
            await membership.start()
