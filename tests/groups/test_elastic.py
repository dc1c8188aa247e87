"""Elastic groups: a stream of their own, members that come and go, changes by many at once."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.api.keywords import StreamFields
from headrace.api.streams import StreamSource, SubjectTransformConfig
from headrace.client import JetStream
from headrace.groups import (
    ElasticGroup,
    GroupConfigurationError,
    GroupError,
    GroupExistsError,
    GroupNotFoundError,
    GroupRecordError,
    MemberMapping,
    MemberNotActiveError,
    NotAMemberError,
    PartitioningFilter,
    elastic,
)
from headrace.groups.lag import measure
from headrace.groups.server.bucket import Records
from headrace.groups.server.consumers import consumers_of
from headrace.transforms import SubjectTransform
from waiting import elapse, until, until_pulling

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

FILTERS = [PartitioningFilter("foo.*.*", (1, 2)), PartitioningFilter("bar.>")]


@pytest.fixture
async def stream(js: JetStream) -> str:
    await js.create_stream(name="S", subjects=["foo.>", "bar.>"], storage="memory")
    return "S"


async def streams(js: JetStream) -> set[str]:
    return {name async for name in js.stream_names() if name != "KEPT" and name[:3] != "KV_"}


async def test_a_group_is_created_with_its_stream(js: JetStream, stream: str) -> None:
    made = await elastic.create(
        js, stream, "g", 3, partitioning_filters=FILTERS, max_buffered_messages=100
    )
    assert made == ElasticGroup("S", "g", 3, tuple(FILTERS), 100)
    config = (await (await js.stream("S-g")).info()).config
    assert (config.retention, config.discard, config.subjects) == ("workqueue", "new", ())
    assert (config.max_msgs, config.max_bytes, config.storage) == (100, -1, "memory")
    assert config.allow_direct
    assert config.num_replicas == 1
    (source,) = config.sources
    assert source.name == "S"
    assert [(each.src, each.dest) for each in source.subject_transforms] == [
        ("foo.*.*", "{{Partition(3,1,2)}}.foo.{{Wildcard(1)}}.{{Wildcard(2)}}"),
        ("bar.>", "{{Partition(3)}}.bar.>"),
    ]
    for number in range(9):
        await js.publish(f"foo.{number}.x")
        await js.publish(f"bar.{number}")
    await js.publish("foo.one")  # matches no filter
    copied = await js.stream("S-g")

    async def are_there() -> bool:
        return (await copied.info()).state.messages == 18

    await until(are_there)
    subjects = (await copied.info(subjects=">")).state.subjects
    by_key = SubjectTransform(
        b"foo.*.*", b"{{Partition(3,1,2)}}.foo.{{Wildcard(1)}}.{{Wildcard(2)}}"
    )
    assert {subject.encode() for subject in subjects if ".foo." in subject} == {
        by_key.apply(f"foo.{n}.x".encode()) for n in range(9)
    }


async def test_a_group_is_the_same_whoever_its_members_are(js: JetStream, stream: str) -> None:
    made = await elastic.create(js, stream, "g", 3, members=["a", "b"])
    again = await elastic.create(js, stream, "g", 3)
    assert (again, again.revision) == (made, made.revision)
    assert await elastic.create(js, stream, "g", 3, members=["b", "a"]) == made
    with pytest.raises(GroupExistsError, match=r"members \['a', 'b'\], not \['c'\]"):
        await elastic.create(js, stream, "g", 3, members=["c"])
    with pytest.raises(
        GroupExistsError,
        match=r"the existing elastic consumer group config can not be updated to the requested one, "
        r"not by creating it: group 'g' of stream 'S' has max_members 3, not 4; max_buffered_bytes 0, not 10"
        r"; elastic.change, or headrace group elastic change, does it",
    ):
        await elastic.create(js, stream, "g", 4, max_buffered_bytes=10)
    with pytest.raises(GroupExistsError, match="please delete the existing elastic consumer group"):
        await elastic.create(js, stream, "g", 4, layout="per_partition")
    same = [elastic.create(js, stream, "h", 2, partitioning_filters=FILTERS) for _ in range(10)]
    assert len({each.revision for each in await asyncio.gather(*same)}) == 1
    assert [each.name for each in await elastic.list(js, stream)] == ["g", "h"]


async def test_of_different_groups_created_at_once_one_wins(js: JetStream, stream: str) -> None:
    differing = [elastic.create(js, stream, "g", n) for n in (1, 2, 3)]
    results = await asyncio.gather(*differing, return_exceptions=True)
    made = await elastic.get(js, stream, "g")
    assert [type(each) for each in results if each != made] == [GroupExistsError] * 2
    config = (await (await js.stream("S-g")).info()).config
    assert f"Partition({made.max_members})" in config.sources[0].subject_transforms[0].dest


def transformed(**values: Any) -> StreamSource:
    transform = SubjectTransformConfig(src=">", dest="{{Partition(3)}}.>")
    return StreamSource(**({"name": "S", "subject_transforms": (transform,)} | values))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"subjects": ["taken"]}, "its retention is 'limits'"),
        ({"subjects": ["taken"], "retention": "workqueue"}, "it has subjects of its own"),
        ({"sources": [StreamSource(name="S")]}, "its retention is 'limits'"),
        (
            {"sources": [transformed(name="OTHER")], "retention": "workqueue"},
            "it copies 'OTHER'",
        ),
        (
            {"sources": [StreamSource(name="S")], "retention": "workqueue"},
            "it numbers other subjects, or in another way",
        ),
    ],
)
async def test_a_stream_that_is_not_the_groups_is_neither_taken_nor_deleted(
    js: JetStream, stream: str, values: dict[str, Any], why: str
) -> None:
    await js.create_stream(name="OTHER", subjects=["other"], storage="memory")
    await js.create_stream(name="S-g", storage="memory", **values)
    with pytest.raises(GroupExistsError, match=f"stream 'S-g' exists and is not that of .*: {why}"):
        await elastic.create(js, stream, "g", 3)
    assert await elastic.list(js, stream) == []  # nothing was begun
    await Records(js, ElasticGroup).create(ElasticGroup("S", "g", 3))  # as others would
    await elastic.delete(js, stream, "g")
    assert await streams(js) == {"S", "OTHER", "S-g"}
    assert await elastic.list(js, stream) == []


async def test_two_groups_cannot_have_one_stream(js: JetStream, stream: str) -> None:
    await js.create_stream(name="S-a", subjects=["other"], storage="memory")
    made = await elastic.create(js, stream, "a-b", 3)
    with pytest.raises(GroupExistsError, match=r"stream 'S-a-b' exists .* it copies 'S'"):
        await elastic.create(js, "S-a", "b", 3)
    assert await elastic.list(js, "S-a") == []
    await elastic.delete(js, stream, made.name)
    results = await asyncio.gather(
        elastic.create(js, stream, "a-b", 3),
        elastic.create(js, "S-a", "b", 3),
        return_exceptions=True,
    )
    there = [*await elastic.list(js, stream), *await elastic.list(js, "S-a")]
    assert [each for each in results if isinstance(each, ElasticGroup)] == there
    assert len(there) == 1


async def test_a_stream_left_over_is_taken_and_gets_the_groups_limits(
    js: JetStream, stream: str
) -> None:
    left: StreamFields = {"retention": "workqueue", "max_msgs": 7, "storage": "memory"}
    left |= {"name": "S-g", "sources": [transformed()], "description": "mine"}
    await js.create_stream(**left)
    await elastic.create(js, stream, "g", 3, max_buffered_messages=50, max_buffered_bytes=10_000)
    config = (await (await js.stream("S-g")).info()).config
    assert (config.max_msgs, config.max_bytes, config.discard) == (50, 10_000, "new")
    assert config.description == "mine"


@pytest.mark.parametrize(
    ("start", "first"), [("all", 0), ("now", 10), (4, 3), ("time", 5)], ids=str
)
async def test_a_group_begins_where_it_is_told_to(
    js: JetStream, stream: str, start: Any, first: int
) -> None:
    for number in range(10):
        if number == 5 and start == "time":
            await elapse(0.01, "messages have times of milliseconds")
            start = datetime.now(UTC)
        await js.publish(f"bar.{number}")
    await elastic.create(js, stream, "g", 2, members=["m"], start=start)
    await elastic.create(js, stream, "g", 2)  # as a worker does that knows of no start
    await js.publish("bar.10")
    handled: list[str] = []
    async with elastic.join(js, stream, "g", "m", lambda m: handled.append(m.subject)):
        await until(lambda: "bar.10" in handled)
    numbers = sorted(int(subject.removeprefix("bar.")) for subject in handled)
    assert numbers == [*range(first, 11)]
    lag = await measure(js, await elastic.get(js, stream, "g"))
    assert lag.source_lag == 0


async def test_a_start_that_is_none_is_refused(js: JetStream, stream: str) -> None:
    for start in (0, -1, True, "soon", datetime(2026, 1, 1)):
        with pytest.raises(GroupConfigurationError, match="accepted: 'all', 'now', a sequence"):
            await elastic.create(js, stream, "g", 2, start=start)  # type: ignore[arg-type]
    assert await streams(js) == {"S"}


async def test_creating_again_leaves_the_work_queue_as_it_was_made_since(
    js: JetStream, stream: str
) -> None:
    await elastic.create(js, stream, "g", 3, max_buffered_messages=5)
    queue = await js.stream("S-g")
    await queue.update(max_msgs=1000, max_bytes=1 << 20, description="wider")
    for number in range(40):
        await js.publish(f"bar.{number}")

    async def is_copied() -> bool:
        return (await queue.info()).state.messages == 40

    await until(is_copied)
    before = await queue.info()
    made = await elastic.create(js, stream, "g", 3, max_buffered_messages=5)
    after = await queue.info()
    assert (after.config, after.state) == (before.config, before.state)
    assert (await elastic.get(js, stream, "g")).revision == made.revision
    with pytest.raises(
        GroupExistsError,
        match=r"'g' of stream 'S' has max_buffered_messages 5, not 6; elastic\.update, or headrace group "
        "elastic edit, changes them",
    ):
        await elastic.create(js, stream, "g", 3, max_buffered_messages=6)
    await js.delete_stream("S-g")
    await elastic.create(js, stream, "g", 3, max_buffered_messages=5)
    assert (await (await js.stream("S-g")).info()).config.max_msgs == 5


async def test_limits_are_changed_in_the_record_and_the_queue_keeps_what_it_holds(
    js: JetStream, stream: str
) -> None:
    await elastic.create(js, stream, "g", 3, members=["m"], max_buffered_messages=20)
    for number in range(40):
        await js.publish(f"bar.{number}")
    queue = await js.stream("S-g")
    handled: list[str] = []

    async def is_full() -> bool:
        return (await queue.info()).state.messages == 20

    await until(is_full)
    changed = await elastic.update(js, stream, "g", max_buffered_messages=4)
    assert (changed.max_buffered_messages, changed.members) == (4, ("m",))
    assert await elastic.get(js, stream, "g") == changed
    info = await queue.info()
    assert (info.config.max_msgs, info.config.discard, info.state.messages) == (4, "new", 20)
    assert await elastic.create(js, stream, "g", 3, max_buffered_messages=4) == changed
    async with elastic.join(js, stream, "g", "m", lambda m: handled.append(m.subject)):
        await until(lambda: handled)
        await elastic.update(js, stream, "g", max_buffered_messages=0, max_buffered_bytes=1 << 20)
        await until(lambda: len(handled) == 40)
    assert handled == [f"bar.{number}" for number in range(40)]
    config = (await queue.info()).config
    assert (config.max_msgs, config.max_bytes) == (-1, 1 << 20)
    with pytest.raises(GroupConfigurationError, match="nothing to change; name one of"):
        await elastic.update(js, stream, "g")
    with pytest.raises(GroupConfigurationError, match="max_buffered_bytes"):
        await elastic.update(js, stream, "g", max_buffered_bytes=-5)
    with pytest.raises(GroupNotFoundError):
        await elastic.update(js, stream, "h", max_buffered_bytes=5)
    await js.delete_stream("S-g")
    with pytest.raises(GroupError, match="has no stream 'S-g': create the group again"):
        await elastic.update(js, stream, "g", max_buffered_bytes=5)


async def test_what_the_server_refuses_leaves_nothing(js: JetStream, stream: str) -> None:
    overlapping = [PartitioningFilter("foo.>"), PartitioningFilter("foo.*")]
    with pytest.raises(
        GroupConfigurationError,
        match=r"can't create the elastic consumer group's stream: .*overlap",
    ):
        await elastic.create(js, stream, "g", 3, partitioning_filters=overlapping)
    assert await elastic.list(js, stream) == []
    assert await streams(js) == {"S"}
    await elastic.create(js, stream, "g", 3)


async def test_what_is_wrong_is_said(js: JetStream, stream: str) -> None:
    with pytest.raises(
        GroupConfigurationError, match="the elastic consumer group's stream does not exist: stream"
    ):
        await elastic.create(js, "NO", "g", 2)
    for wrong, text in [
        ([PartitioningFilter("")], "partitioning filters must have a non-empty filter"),
        (["foo.*"], r"accepted is PartitioningFilter\('foo.\*', \(1,\)\)"),
    ]:
        with pytest.raises(GroupConfigurationError, match=text):
            await elastic.create(js, stream, "g", 2, partitioning_filters=wrong)  # type: ignore[arg-type]
    await js.create_stream(name="L" * 200, subjects=["long"])
    with pytest.raises(GroupConfigurationError, match="261 bytes long; accepted: at most 255"):
        await elastic.create(js, "L" * 200, "g" * 60, 2)
    assert await streams(js) == {"S", "L" * 200}
    with pytest.raises(GroupNotFoundError, match="the elastic consumer group KV bucket doesn't"):
        await elastic.add_members(js, stream, "g", ["m"])
    await elastic.create(js, stream, "other", 2)
    with pytest.raises(GroupNotFoundError, match="elastic consumer group's config: not found"):
        await elastic.drop_members(js, stream, "g", ["m"])


async def test_a_group_is_deleted_with_its_stream(js: JetStream, stream: str) -> None:
    await elastic.create(js, stream, "g", 3)
    await elastic.create(js, stream, "g-h", 3)
    await elastic.delete(js, stream, "g")
    assert await streams(js) == {"S", "S-g-h"}
    with pytest.raises(GroupNotFoundError):
        await elastic.delete(js, stream, "g")
    await js.delete_stream("S-g-h")
    assert await elastic.active_members(js, stream, "g-h") == []
    await elastic.delete(js, stream, "g-h")
    bucket = await Records(js, ElasticGroup).make(1)
    await bucket.put("S.g", b'{"max_members":0,"partitioning_filters":null}')
    with pytest.raises(
        GroupRecordError, match="group 'g' of stream 'S' is invalid: the max number"
    ):
        await elastic.delete(js, stream, "g")


async def test_members_come_and_go(js: JetStream, stream: str) -> None:
    made = await elastic.create(js, stream, "g", 3)
    assert made.members == ()
    added = await elastic.add_members(js, stream, "g", ["b", "a", "b"])
    assert (added.members, added.assignment()) == (("a", "b"), {"a": (0, 2), "b": (1,)})
    unchanged = await elastic.add_members(js, stream, "g", ["a"])
    assert (unchanged, unchanged.revision) == (added, added.revision)  # nothing is written
    added = await elastic.add_members(js, stream, "g", ("c", "d"))
    assert (await elastic.get(js, stream, "g")).members == ("a", "b", "c", "d") == added.members
    dropped = await elastic.drop_members(js, stream, "g", ["a", "c", "nobody"])
    assert dropped.members == ("b", "d")
    assert (await elastic.drop_members(js, stream, "g", ["b", "d"])).members == ()
    for verb in (elastic.add_members, elastic.drop_members):
        with pytest.raises(GroupConfigurationError, match="or no member names"):
            await verb(js, stream, "g", [])
        with pytest.raises(GroupConfigurationError, match=r"names is 'ab'; accepted: a list"):
            await verb(js, stream, "g", "ab")
    with pytest.raises(GroupConfigurationError, match=r"member name 'a\.b'"):
        await elastic.add_members(js, stream, "g", ["a.b"])


async def test_partitions_are_given_by_hand(js: JetStream, stream: str) -> None:
    await elastic.create(js, stream, "g", 3, members=["a"])
    mapped = await elastic.set_mappings(
        js,
        stream,
        "g",
        [MemberMapping("x", [2, 0]), ("y", (1,))],  # type: ignore[arg-type, list-item]
    )
    assert (mapped.members, mapped.assignment()) == ((), {"x": (2, 0), "y": (1,)})
    assert await elastic.get(js, stream, "g") == mapped
    with pytest.raises(
        GroupConfigurationError, match="can't add members to an elastic consumer gr"
    ):
        await elastic.add_members(js, stream, "g", ["a"])
    with pytest.raises(GroupConfigurationError, match="can't drop members from a elastic consumer"):
        await elastic.drop_members(js, stream, "g", ["x"])
    with pytest.raises(
        GroupConfigurationError, match="the number of unique partition numbers must"
    ):
        await elastic.set_mappings(js, stream, "g", [MemberMapping("x", (0,))])
    with pytest.raises(GroupConfigurationError, match="group name or member mappings: there is no"):
        await elastic.set_mappings(js, stream, "g", [])
    assert await elastic.get(js, stream, "g") == mapped
    free = await elastic.delete_mappings(js, stream, "g")
    assert free.assignment() == {}
    assert (await elastic.delete_mappings(js, stream, "g")).revision == free.revision
    assert (await elastic.add_members(js, stream, "g", ["a"])).assignment() == {"a": (0, 1, 2)}


async def test_twenty_who_add_at_once_are_all_added(js: JetStream, stream: str) -> None:
    await elastic.create(js, stream, "g", 3, members=["leaving"])
    adding = [elastic.add_members(js, stream, "g", [f"m{n:02}"]) for n in range(20)]
    await asyncio.gather(*adding, elastic.drop_members(js, stream, "g", ["leaving"]))
    assert (await elastic.get(js, stream, "g")).members == tuple(f"m{n:02}" for n in range(20))


async def test_who_is_always_slower_gives_up_in_the_end(
    js: JetStream, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await elastic.create(js, stream, "g", 3)
    get = Records.get
    attempts = 0

    async def and_another_changes(self: Any, stream: str, group: str) -> Any:
        nonlocal attempts
        attempts += 1
        record = await get(self, stream, group)
        await self.put(dataclasses.replace(record, members=(f"m{attempts}",)))
        return record

    monkeypatch.setattr(Records, "get", and_another_changes)
    with pytest.raises(GroupError, match="is being changed by others, who were faster each time"):
        await elastic.add_members(js, stream, "g", ["slow"])
    assert attempts == 64


@pytest.mark.parametrize("layout", ["interoperable", "per_partition"])
async def test_who_is_active_and_steps_down(js: JetStream, stream: str, layout: Any) -> None:
    made = await elastic.create(js, stream, "g", 2, members=["m1", "m2"], layout=layout)
    with pytest.raises(
        NotAMemberError, match=r"not in the current elastic .*: 'x'; members .* m1, m2"
    ):
        await elastic.step_down(js, stream, "g", "x")
    with pytest.raises(
        MemberNotActiveError, match="no instance of member 'm1' of elastic consumer"
    ):
        await elastic.step_down(js, stream, "g", "m1")
    name = consumers_of(made)["m1"][0]
    consumer = await js.create_consumer(
        "S-g",
        name=name,
        filter_subjects=["0.>"],
        inactive_threshold=30,
        priority_policy="pinned_client",
        priority_groups=["PCG"],
        priority_timeout=5,
    )
    assert await elastic.active_members(js, stream, "g") == []  # there, but nobody pulls
    async with asyncio.timeout(10), consumer.consume(group="PCG") as messages:
        await until_pulling(consumer)
        assert await elastic.active_members(js, stream, "g") == ["m1"]
        for number in range(8):
            await js.publish(f"foo.{number}")
        await (await anext(messages)).ack()
        pinned = (await consumer.info()).priority_groups[0].pinned_client_id
        await elastic.step_down(js, stream, "g", "m1")
        assert (await consumer.info()).priority_groups[0].pinned_client_id != pinned
