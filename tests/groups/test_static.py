"""Static groups: created once, told from their neighbours, deleted with their own consumers only."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import Any

import pytest

from headrace.api.streams import SubjectTransformConfig
from headrace.client import Consumer, JetStream
from headrace.groups import (
    GroupConfigurationError,
    GroupError,
    GroupExistsError,
    GroupMessage,
    GroupNotFoundError,
    GroupRecordError,
    MemberMapping,
    MemberNotActiveError,
    NotAMemberError,
    StaticGroup,
    static,
)
from headrace.groups.lag import measure
from headrace.groups.server.bucket import Records
from headrace.groups.server.consumers import consumers_of
from waiting import until, until_pulling

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


@pytest.fixture
async def stream(js: JetStream) -> str:
    """A stream that numbers its subjects with two partitions."""
    transform = SubjectTransformConfig(src="foo.*", dest="{{partition(2,1)}}.foo.{{wildcard(1)}}")
    await js.create_stream(name="S", subjects=["foo.*"], subject_transform=transform)
    return "S"


async def join(js: JetStream, name: str, **values: Any) -> Consumer:
    """A consumer as members make theirs."""
    settings: dict[str, Any] = {"priority_policy": "pinned_client", "priority_groups": ["PCG"]}
    return await js.create_consumer("S", durable_name=name, **(settings | values))


async def names(js: JetStream) -> set[str]:
    return {name async for name in js.consumer_names("S")}


async def test_a_group_is_created_once(js: JetStream, stream: str) -> None:
    made = await static.create(js, stream, "g", 2, filters=["foo.*"], members=["m2", "m1"])
    assert made == StaticGroup("S", "g", 2, ("foo.*",), ("m2", "m1"))
    again = await static.create(js, stream, "g", 2, filters=("foo.*",), members=("m1", "m2"))
    assert (again, again.revision) == (made, made.revision)
    assert await static.get(js, stream, "g") == made
    with pytest.raises(
        GroupExistsError,
        match=r"the existing static consumer group config doesn't match ours: group 'g' of stream 'S' "
        r"has max_members 2, not 3; layout 'interoperable', not 'per_partition'; it is fixed",
    ):
        await static.create(
            js, stream, "g", 3, filters=["foo.*"], members=["m1", "m2"], layout="per_partition"
        )
    mapped = [MemberMapping("m1", (1,)), MemberMapping("m2", (0,))]
    with pytest.raises(GroupExistsError, match=r"member_mappings {}, not {'m1'"):
        await static.create(js, stream, "g", 2, filters=["foo.*"], member_mappings=mapped)
    assert await static.list(js, stream) == [made]
    assert await static.list(js, "other") == []


async def test_creating_again_leaves_stream_and_consumers_as_they_were_made_since(
    js: JetStream, stream: str
) -> None:
    made = await static.create(js, stream, "g", 2, members=["m1"])
    consumer = await join(js, "g-m1", ack_wait=60, max_ack_pending=7)
    there = await js.stream("S")
    await there.update(max_msgs=5, description="changed by hand")
    before = await there.info(), await consumer.info()
    assert await static.create(js, stream, "g", 2, members=["m1"]) == made
    after = await there.info(), await consumer.info()
    assert [each.config for each in after] == [each.config for each in before]
    assert after[0].state == before[0].state


async def test_of_groups_created_at_once_one_wins(js: JetStream, stream: str) -> None:
    same = [static.create(js, stream, "g", 2, members=["a"]) for _ in range(10)]
    assert len({each.revision for each in await asyncio.gather(*same)}) == 1
    differing = [static.create(js, stream, "h", n, members=["a"]) for n in (2, 3, 4)]
    results = await asyncio.gather(*differing, return_exceptions=True)
    made = await static.get(js, stream, "h")
    assert [type(each) for each in results if each != made] == [GroupExistsError] * 2


async def test_what_is_wrong_is_said(js: JetStream, stream: str) -> None:
    with pytest.raises(
        GroupConfigurationError,
        match=r"the static consumer group's stream does not exist: stream not found \(stream 'NO'\)",
    ):
        await static.create(js, "NO", "g", 2)
    with pytest.raises(GroupConfigurationError, match="the max number of members must be >= 1"):
        await static.create(js, stream, "g", 0)
    with pytest.raises(GroupConfigurationError, match=r"members is 'm'; accepted: a list"):
        await static.create(js, stream, "g", 1, members="m")
    with pytest.raises(GroupConfigurationError, match="group name"):
        await static.create(js, stream, "a.b", 1)
    assert [name async for name in js.key_values()] == []  # nothing was made
    for verb in (static.get, static.delete, static.active_members):
        with pytest.raises(GroupNotFoundError, match="the static consumer group KV bucket doesn't"):
            await verb(js, stream, "g")
    await static.create(js, stream, "g", 2)
    for verb in (static.get, static.delete, static.active_members):
        with pytest.raises(GroupNotFoundError, match=r"not found \(group 'none' of stream 'S'\)"):
            await verb(js, stream, "none")
    with pytest.raises(NotAMemberError, match="the member name is not in the current static cons"):
        await static.step_down(js, stream, "g", "m")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", {"members": ["b-c"]}), ("a-b", {"members": ["c"]})),
        (("a-b", {"members": ["c", "d"]}), ("a", {"members": ["x", "b-c"]})),
        (("a", {"members": ["b=1"]}), ("a-b", {"layout": "per_partition", "members": ["x"]})),
    ],
)
async def test_groups_that_would_share_a_consumer_are_refused(
    js: JetStream, stream: str, first: tuple[str, Any], second: tuple[str, Any]
) -> None:
    made = await static.create(js, stream, first[0], 2, **first[1])
    with pytest.raises(GroupExistsError, match=f"would share the consumer .* group {first[0]!r}"):
        await static.create(js, stream, second[0], 2, **second[1])
    assert await static.list(js, stream) == [made]
    await static.create(js, stream, second[0], 2, members=["other"])  # the names alone may be alike


async def test_groups_created_at_once_that_would_share_a_consumer_do_not_both_stay(
    js: JetStream, stream: str
) -> None:
    await Records(js, StaticGroup).make(1)
    for _ in range(10):
        results = await asyncio.gather(
            static.create(js, stream, "a", 2, members=["b-c"]),
            static.create(js, stream, "a-b", 2, members=["c"]),
            return_exceptions=True,
        )
        made = await static.list(js, stream)
        assert [each for each in results if isinstance(each, StaticGroup)] == made
        assert len(made) == 1
        await static.delete(js, stream, made[0].name)


async def test_a_neighbour_that_cannot_be_read_is_kept_away_from(
    js: JetStream, stream: str
) -> None:
    bucket = await Records(js, StaticGroup).make(1)
    await bucket.put("S.a", b'{"layout":"of tomorrow"}')
    with pytest.raises(GroupExistsError, match="could share a consumer with the group 'a', whose"):
        await static.create(js, stream, "a-b", 2, members=["c"])
    await static.create(js, stream, "ab", 2, members=["c"])
    with pytest.raises(GroupRecordError, match="layout 'of tomorrow', which this version does not"):
        await static.list(js, stream)


async def test_a_consumer_that_is_there_already_is_not_taken_over(
    js: JetStream, stream: str
) -> None:
    await js.create_consumer("S", durable_name="g-m")
    with pytest.raises(GroupExistsError, match="stream 'S' has a consumer 'g-m' already"):
        await static.create(js, stream, "g", 2, members=["m"])
    assert await static.list(js, stream) == []
    made = await static.create(js, stream, "g", 2, members=["other"])
    await join(js, "g-other")
    assert await static.create(js, stream, "g", 2, members=["other"]) == made  # it is its own


async def test_only_its_own_consumers_go_with_a_group(js: JetStream, stream: str) -> None:
    await static.create(js, stream, "a", 2, members=["m", "left", "mine"])
    await static.create(js, stream, "a-b", 2, members=["m"])
    await join(js, "a-m")
    await join(js, "a-b-m")  # the neighbour's, whose name begins alike
    await js.create_consumer("S", durable_name="a-other")  # nobody's
    await js.create_consumer("S", durable_name="a-mine")  # not made as a group's is
    await static.delete(js, stream, "a")
    assert await names(js) == {"a-b-m", "a-other", "a-mine"}
    with pytest.raises(GroupNotFoundError):
        await static.delete(js, stream, "a")
    await static.delete(js, stream, "a-b")
    assert await names(js) == {"a-other", "a-mine"}


async def test_a_consumer_that_two_groups_of_others_share_stays_with_the_last(
    js: JetStream, stream: str
) -> None:
    records = Records(js, StaticGroup)
    await records.make(1)
    await records.create(StaticGroup("S", "a", 2, (), ("b-c",)))
    await records.create(StaticGroup("S", "a-b", 2, (), ("c",)))
    await join(js, "a-b-c")
    await static.delete(js, stream, "a")
    assert await names(js) == {"a-b-c"}
    await static.delete(js, stream, "a-b")
    assert await names(js) == set()


async def test_consumers_of_partitions_go_with_a_group(js: JetStream, stream: str) -> None:
    made = await static.create(js, stream, "g", 2, members=["m"], layout="per_partition")
    assert consumers_of(made) == {"m": ("g=0", "g=1")}
    for name in ("g=0", "g=1", "g=2", "g-m"):
        await join(js, name)
    await static.delete(js, stream, "g")
    assert await names(js) == {"g=2", "g-m"}


async def test_a_group_whose_record_is_damaged_is_not_deleted(js: JetStream, stream: str) -> None:
    bucket = await Records(js, StaticGroup).make(1)
    await bucket.put("S.g", b"{")
    with pytest.raises(GroupRecordError, match="static group 'g' of stream 'S' is no JSON"):
        await static.delete(js, stream, "g")
    assert (await bucket.get("S.g")).value == b"{"


@pytest.mark.parametrize("layout", ["interoperable", "per_partition"])
async def test_who_is_active_and_steps_down(js: JetStream, stream: str, layout: Any) -> None:
    made = await static.create(js, stream, "g", 2, members=["m1", "m2", "m3"], layout=layout)
    with pytest.raises(MemberNotActiveError, match="no instance of member 'm1' of static consumer"):
        await static.step_down(js, stream, "g", "m1")
    assert await static.active_members(js, stream, "g") == []
    await join(js, consumers_of(made)["m2"][0])
    assert await static.active_members(js, stream, "g") == []  # there, but nobody pulls
    consumer = await join(js, consumers_of(made)["m1"][0], priority_timeout=5)
    async with asyncio.timeout(10), consumer.consume(group="PCG") as messages:
        await until_pulling(consumer)
        assert await static.active_members(js, stream, "g") == ["m1"]
        for number in range(8):
            await js.publish(f"foo.{number}")
        await (await anext(messages)).ack()
        pinned = (await consumer.info()).priority_groups[0].pinned_client_id
        assert pinned
        await static.step_down(js, stream, "g", "m1")
        state = (await consumer.info()).priority_groups[0]
        assert state.pinned_client_id != pinned
    with pytest.raises(MemberNotActiveError):
        await static.step_down(js, stream, "g", "m3")


async def test_a_group_whose_stream_is_gone_can_be_deleted(js: JetStream, stream: str) -> None:
    await static.create(js, stream, "g", 2, members=["m"])
    await js.delete_stream(stream)
    assert await static.active_members(js, stream, "g") == []
    await static.delete(js, stream, "g")
    with pytest.raises(GroupError):
        await static.get(js, stream, "g")


async def test_a_group_with_other_partitions_follows_one_in_order_and_nothing_is_handled_twice(
    js: JetStream,
) -> None:
    """The transform gives new messages a token of their own, so that the filters of the former group end."""

    def numbered(count: int, version: str = "") -> SubjectTransformConfig:
        dest = f"{{{{partition({count},1)}}}}.{version}o.{{{{wildcard(1)}}}}"
        return SubjectTransformConfig(src="o.*", dest=dest)

    stream = await js.create_stream(name="W", subjects=["o.*"], subject_transform=numbered(3))
    former = await static.create(js, "W", "g", 3, filters=["o.*"], members=["a", "b"])
    seen: defaultdict[str, list[int]] = defaultdict(list)
    partitions: set[int] = set()
    published, is_over = 0, False

    async def handle(message: GroupMessage) -> None:
        seen[message.subject.rpartition(".")[2]].append(int(message.payload))
        partitions.add(message.partition)
        await message.ack_sync()

    async def publish() -> None:
        nonlocal published
        while not is_over:
            await js.publish(f"o.{published % 7}", b"%d" % published)
            published += 1

    def handled() -> int:
        return sum(map(len, seen.values()))

    publishing = asyncio.create_task(publish())
    async with asyncio.timeout(60):
        async with static.join(js, "W", "g", "a", handle), static.join(js, "W", "g", "b", handle):
            await until(lambda: handled() > 50)
            await stream.update(subject_transform=numbered(8, "v2."))
            await static.create(js, "W", "g2", 8, filters=["v2.o.*"], members=["a", "b", "c"])
            await until(lambda: _is_drained(js, former))
        async with contextlib.AsyncExitStack() as stack:
            for member in ("a", "b", "c"):
                await stack.enter_async_context(static.join(js, "W", "g2", member, handle))
            before = handled()
            await until(lambda: handled() > before + 50)
            is_over = True
            await publishing
            await until(lambda: handled() == published)
    assert partitions > {0, 1, 2}
    for numbers in seen.values():
        assert numbers == sorted(set(numbers))


async def _is_drained(js: JetStream, group: StaticGroup) -> bool:
    return (await measure(js, group, troubles=False)).lag == 0


@pytest.mark.parametrize("other", [{"max_members": 3}, {"filters": ["foo.x"]}])
async def test_who_wants_other_partitions_or_filters_is_told_how(
    js: JetStream, stream: str, other: dict[str, Any]
) -> None:
    settings: dict[str, Any] = {"max_members": 2, "filters": ["foo.*"], "members": ["a"]}
    await static.create(js, stream, "g", **settings)
    with pytest.raises(GroupExistsError, match=r"numbers both ways.*a group that follows it"):
        await static.create(js, stream, "g", **{**settings, **other})
