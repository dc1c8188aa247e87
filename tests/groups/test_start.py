"""A new group begins at a sequence, a time, with what comes next, or where another one is; both servers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.api.consumers import ConsumerConfig
from headrace.api.streams import SubjectTransformConfig
from headrace.client import JetStream
from headrace.groups import (
    AfterConsumer,
    AfterGroup,
    GroupConfigurationError,
    GroupError,
    GroupMessage,
    PartitioningFilter,
    elastic,
    static,
)
from headrace.groups.lag import measure
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

BY_KEY = [PartitioningFilter("*.o.*", (2,))]


@pytest.fixture
async def stream(js: JetStream) -> str:
    """A stream that static groups and elastic ones can read, with ten messages of ten keys."""
    transform = SubjectTransformConfig(src="o.*", dest="{{partition(2,1)}}.o.{{wildcard(1)}}")
    await js.create_stream(
        name="S", subjects=["o.*"], subject_transform=transform, allow_direct=True
    )
    await publish(js, 10)
    return "S"


async def publish(js: JetStream, messages: int) -> None:
    first = (await (await js.stream("S")).info()).state.last_seq + 1
    for number in range(first, first + messages):
        await js.publish(f"o.{number}", b"%d" % number)


async def handled(js: JetStream, kind: Any, group: str, last: int) -> list[int]:
    """What a member gets until it has had message ``last``, by the sequences of the stream."""
    seen: list[int] = []

    async def handle(message: GroupMessage) -> None:
        seen.append(message.sequence)
        await message.ack_sync()

    async with kind.join(js, "S", group, "a", handle):
        await until(lambda: last in seen)
    return sorted(seen)


async def create(js: JetStream, kind: Any, name: str, start: Any) -> Any:
    if kind is static:
        return await static.create(js, "S", name, 2, members=["a"], start=start)
    return await elastic.create(
        js, "S", name, 2, partitioning_filters=BY_KEY, members=["a"], start=start
    )


@pytest.mark.parametrize("kind", [static, elastic], ids=["static", "elastic"])
async def test_a_group_begins_where_it_is_told_to(js: JetStream, stream: str, kind: Any) -> None:
    moment = datetime.now(UTC) + timedelta(milliseconds=1)
    await until(lambda: datetime.now(UTC) > moment)
    await publish(js, 2)
    for name, start, first in (
        ("all", "all", 1),
        ("seq", 7, 7),
        ("time", moment, 11),
        ("now", "now", 13),
        ("late", datetime.now(UTC) + timedelta(hours=1), 13),
    ):
        if name == "late" and kind is elastic:
            continue  # the server itself waits until then
        await create(js, kind, name, start)
        await create(js, kind, name, 5)  # of one that exists it changes nothing
        if first == 13:
            await publish(js, 1)
        last = (await (await js.stream("S")).info()).state.last_seq
        if name == "late":
            first = last
        assert await handled(js, kind, name, last) == list(range(first, last + 1))


@pytest.mark.parametrize("kind", [static, elastic], ids=["static", "elastic"])
async def test_a_group_begins_where_a_consumer_is(js: JetStream, stream: str, kind: Any) -> None:
    consumer = await js.create_consumer("S", durable_name="worker")
    batch = list(await consumer.fetch(6, max_wait=5))
    for number in (0, 1, 2, 4):  # 4 and 6 are not acknowledged: 5 is handed out again
        await batch[number].ack_sync()
    await create(js, kind, "g", AfterConsumer("worker"))
    assert await handled(js, kind, "g", 10) == list(range(4, 11))
    with pytest.raises(
        GroupConfigurationError, match="stream 'S' has no consumer 'none'; headrace"
    ):
        await create(js, kind, "h", AfterConsumer("none"))
    with pytest.raises(GroupError):
        await kind.get(js, "S", "h")


@pytest.mark.parametrize("kind", [static, elastic], ids=["static", "elastic"])
@pytest.mark.parametrize("other", [static, elastic], ids=["static", "elastic"])
async def test_a_group_begins_where_a_group_is(
    js: JetStream, stream: str, kind: Any, other: Any
) -> None:
    await create(js, other, "first", 3)
    await create(js, kind, "early", AfterGroup("first"))
    assert await handled(js, kind, "early", 10) == list(range(3, 11))  # nobody had joined
    assert await handled(js, other, "first", 10) == list(range(3, 11))
    await publish(js, 3)
    await create(js, kind, "second", AfterGroup("first"))
    found = await handled(js, kind, "second", 13)
    if other is elastic:
        assert found == [11, 12, 13]
    else:  # the lowest of its consumers'; behind it all that was handled is given again
        floors = [
            info.ack_floor.stream_seq async for info in js.consumers("S") if info.name == "first-a"
        ]
        assert found == list(range(floors[0] + 1, 14))
        assert floors == [10]


async def test_behind_an_elastic_group_that_has_handled_all_comes_what_is_new(
    js: JetStream, stream: str
) -> None:
    await create(js, elastic, "first", "all")
    assert await handled(js, elastic, "first", 10) == list(range(1, 11))
    await create(js, elastic, "second", AfterGroup("first"))
    await publish(js, 1)
    assert await handled(js, elastic, "second", 11) == [11]


async def test_which_group_is_meant_has_to_be_clear(js: JetStream, stream: str) -> None:
    with pytest.raises(GroupConfigurationError, match="stream 'S' has no group 'x'"):
        await create(js, static, "g", AfterGroup("x"))
    await create(js, static, "x", 5)
    await create(js, elastic, "x", 8)
    with pytest.raises(
        GroupConfigurationError, match="a static and an elastic group 'x'; say which"
    ):
        await create(js, static, "g", AfterGroup("x"))
    assert (await create(js, static, "g", AfterGroup("x", "static"))).start_sequence == 5
    assert (await create(js, static, "h", AfterGroup("x", "elastic"))).start_sequence == 8
    wrong: Any = "other"
    with pytest.raises(GroupConfigurationError, match="is 'other'; accepted: 'static', 'elastic'"):
        await create(js, static, "i", AfterGroup("x", wrong))


@pytest.mark.parametrize("start", [0, -1, True, "soon", datetime(2026, 1, 1), None])
async def test_a_start_that_is_none_is_refused(js: JetStream, stream: str, start: Any) -> None:
    for kind in (static, elastic):
        with pytest.raises(
            GroupConfigurationError, match=r"accepted: 'all', 'now', a sequence from"
        ):
            await create(js, kind, "g", start)


async def test_a_static_group_that_begins_later_is_ours_alone(js: JetStream, stream: str) -> None:
    """Others would begin with the first message; they find a record that they refuse."""
    group = await create(js, static, "g", 7)
    stored = (await (await js.key_value("static-consumer-groups")).get("S.g")).value
    assert b'"start_sequence":7' in stored
    assert b"max_members" not in stored
    assert await static.get(js, "S", "g") == group
    look = await measure(js, group)
    assert look.lag == 4  # before anybody has joined
    with pytest.raises(
        GroupConfigurationError, match="deliver_policy is 'new', and the group begins"
    ):
        async with static.join(js, "S", "g", "a", config=ConsumerConfig(deliver_policy="new")):
            pass
