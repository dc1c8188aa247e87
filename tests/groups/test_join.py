"""``join`` of both kinds: a member made by the room's public functions reads its partitions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from distances import NEAR_AND_FAR
from headrace.api.consumers import ConsumerConfig
from headrace.api.streams import SubjectTransformConfig
from headrace.client import JetStream
from headrace.groups import (
    ElasticGroup,
    GroupConfigurationError,
    GroupError,
    GroupMessage,
    NotAMemberError,
    PartitioningFilter,
    StaticGroup,
    elastic,
    static,
)
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


@pytest.mark.parametrize("layout", ["interoperable", "per_partition"])
async def test_a_member_of_an_elastic_group(js: JetStream, layout: Any) -> None:
    await js.create_stream(name="S", subjects=["foo.*"], storage="memory")
    by_key = [PartitioningFilter("foo.*", (1,))]
    await elastic.create(js, "S", "g", 2, partitioning_filters=by_key, layout=layout)
    seen: list[str] = []

    async def handle(message: GroupMessage) -> None:
        seen.append(message.subject)
        await message.ack()

    async with asyncio.timeout(20), elastic.join(js, "S", "g", "m", handle) as membership:
        await elastic.add_members(js, "S", "g", ["m"])
        for number in range(20):
            await js.publish(f"foo.{number % 4}")
        await until(lambda: len(seen) == 20)
        assert membership.is_active
        assert membership.partitions == (0, 1)
        assert await elastic.active_members(js, "S", "g") == ["m"]
        await elastic.step_down(js, "S", "g", "m")
        await elastic.delete(js, "S", "g")
        await membership.wait()  # it ends with its group
    assert isinstance(membership._following.record, ElasticGroup)  # type: ignore[union-attr]


async def test_a_member_of_a_static_group(js: JetStream) -> None:
    transform = SubjectTransformConfig(src="foo.*", dest="{{partition(2,1)}}.foo.{{wildcard(1)}}")
    await js.create_stream(name="S", subjects=["foo.*"], subject_transform=transform)
    await static.create(js, "S", "g", 2, members=["m"])
    with pytest.raises(NotAMemberError):
        async with static.join(js, "S", "g", "x", lambda message: message.ack()):
            pass
    for number in range(5):
        await js.publish(f"foo.{number}")
    async with asyncio.timeout(20), static.join(js, "S", "g", "m") as membership:
        seen = []
        async for message in membership:
            seen.append(message.subject)
            assert membership.is_consuming
            await message.ack()
            if len(seen) == 5:
                break
        assert not await static.is_active(js, "S", "g", "x")
        assert sorted(seen) == [f"foo.{number}" for number in range(5)]
        await static.delete(js, "S", "g")
    assert isinstance(membership._following.record, StaticGroup)  # type: ignore[union-attr]
    assert [name async for name in js.consumer_names("S")] == []


@pytest.mark.parametrize(
    ("layout", "has_worked"),
    [("interoperable", True), ("interoperable", False), ("per_partition", True)],
)
async def test_who_left_and_is_dropped_frees_its_partitions_at_once(
    js: JetStream, layout: Any, has_worked: bool
) -> None:
    await js.create_stream(name="S", subjects=["foo.*"], storage="memory", allow_direct=True)
    by_key = [PartitioningFilter("foo.*", (1,))]
    members = ["a", "b"]
    await elastic.create(
        js, "S", "g", 4, partitioning_filters=by_key, members=members, layout=layout
    )
    seen: list[int] = []

    async def handle(message: GroupMessage) -> None:
        seen.append(message.partition)
        await message.ack_sync()

    async def publish() -> None:
        for number in range(8):
            await js.publish(f"foo.{number}")

    config = ConsumerConfig(ack_wait=30)
    async with elastic.join(js, "S", "g", "a", handle, config):
        async with elastic.join(js, "S", "g", "b", handle, config):
            await until(lambda: _waiting(js, {"a", "b"}, layout))
            if has_worked:
                await publish()
                await until(lambda: len(seen) == 8)
        seen.clear()
        await elastic.drop_members(js, "S", "g", ["b"])
        async with asyncio.timeout(20):  # less than ack_wait, after which the server helps itself
            await publish()
            await until(lambda: len(seen) == 8)
    assert set(seen) == {0, 1, 2, 3}


@NEAR_AND_FAR
@pytest.mark.parametrize("layout", ["interoperable", "per_partition"])
async def test_a_planned_drop_is_no_error_to_any_member(js: JetStream, layout: Any) -> None:
    await js.create_stream(name="S", subjects=["foo.*"], storage="memory")
    by_key = [PartitioningFilter("foo.*", (1,))]
    await elastic.create(
        js, "S", "g", 4, partitioning_filters=by_key, members=["a", "b"], layout=layout
    )
    errors: list[Exception] = []

    async def handle(message: GroupMessage) -> None:
        await message.ack()

    a, b = (elastic.join(js, "S", "g", name, handle, on_error=errors.append) for name in "ab")
    async with a, b, asyncio.timeout(120):
        for _ in range(3):
            await a.wait_for_consuming()
            await b.wait_for_consuming()
            await elastic.drop_members(js, "S", "g", ["b"])
            await until(lambda: not b.is_consuming, within=60)
            await elastic.add_members(js, "S", "g", ["b"])
        await a.wait_for_consuming()
        await b.wait_for_consuming()
    assert errors == []


async def _waiting(js: JetStream, members: set[str], layout: str) -> bool:
    """Whether an instance of each member waits at its consumers."""
    found = {info.name async for info in js.consumers("S-g") if info.num_waiting}
    return found >= (members if layout == "interoperable" else {"partition=3"})


@pytest.mark.parametrize("layout", ["interoperable", "per_partition"])
async def test_who_waits_to_be_a_member_learns_when_it_reads(js: JetStream, layout: Any) -> None:
    await js.create_stream(name="S", subjects=["foo.*"], storage="memory")
    by_key = [PartitioningFilter("foo.*", (1,))]
    await elastic.create(js, "S", "g", 2, partitioning_filters=by_key, layout=layout)

    async def handle(message: GroupMessage) -> None:
        await message.ack()

    unbegun = elastic.join(js, "S", "g", "m", handle)
    with pytest.raises(GroupConfigurationError, match="has not begun"):
        await unbegun.wait_for_consuming()
    async with asyncio.timeout(60), elastic.join(js, "S", "g", "m", handle) as membership:
        waits = asyncio.create_task(membership.wait_for_consuming())
        await until(lambda: not membership.is_consuming)
        assert not await elastic.is_active(js, "S", "g", "m")
        assert not waits.done()
        await elastic.add_members(js, "S", "g", ["m"])
        await waits
        await until(lambda: membership.is_consuming)
        await membership.wait_for_consuming()  # it does already
        await until(lambda: elastic.is_active(js, "S", "g", "m"), within=30)
        assert not await elastic.is_active(js, "S", "g", "nobody")
        await elastic.drop_members(js, "S", "g", ["m"])
        await until(lambda: not membership.is_consuming, within=30)
        waits = asyncio.create_task(membership.wait_for_consuming())
        await membership.leave()
        with pytest.raises(GroupError, match="left before it read"):
            await waits
