from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

import group_world
import peers
from headrace import sync
from headrace.client import JetStream
from headrace.groups import (
    ElasticGroup,
    GroupNotFoundError,
    MemberMapping,
    PartitioningFilter,
    StaticGroup,
    lag,
)
from headrace.groups import lag as aio_lag
from headrace.groups.lag import GroupLag, MemberLag, PartitionLag, measure, rates
from headrace.groups.progress import First
from headrace.sync import groups as sync_groups
from headrace.sync.groups import lag as sync_lag
from waiting import until

pytestmark = pytest.mark.peer

KEYS = 40
BY_KEY = (PartitioningFilter("orders.*", (1,)),)


async def publish(js: JetStream, count: int, front: str = "orders") -> None:
    async with js.publisher() as publisher:
        for number in range(count):
            await publisher.send(f"{front}.{number % KEYS}", b"%d" % number)


async def copied(js: JetStream, group: ElasticGroup, messages: int) -> Counter[int]:
    """Wait until the work queue holds so many; how many of each partition."""
    stream = await js.stream(f"{group.stream}-{group.name}")

    async def are_there() -> bool:
        return (await stream.info()).state.messages == messages

    await until(are_there, f"never {messages} in the work queue")
    counts: Counter[int] = Counter()
    for subject, held in (await stream.info(subjects=">")).state.subjects.items():
        counts[int(subject.partition(".")[0])] += held
    return counts


async def test_an_elastic_group_with_two_members(js: JetStream) -> None:
    group = ElasticGroup("ORDERS", "g", 4, BY_KEY, members=("a", "b"), revision=7)
    await group_world.elastic_streams(js, group)
    a = (await group_world.member_consumers(js, group, "a"))[0]
    await publish(js, 200)
    before = await copied(js, group, 200)
    taken = await group_world.take(a, 10, ack=4)
    after = before - Counter(int(subject[0]) for subject in taken[:4])

    look = await measure(js, group)

    assert {each.partition: each.lag for each in look.partitions} == after
    assert [each.member for each in look.partitions] == ["a", "a", "b", "b"]
    assert look.group_lag == look.lag == 196
    assert look.handled_total == 4
    assert (look.kind, look.layout, look.revision) == ("elastic", "interoperable", 7)
    mine, other = look.members
    assert (mine.member, mine.partitions, mine.consumers) == ("a", (0, 1), 1)
    assert (mine.lag, mine.unacknowledged, mine.handled) == (after[0] + after[1], 6, 4)
    assert mine.is_active
    assert mine.pin is not None
    assert look.partitions[0].pin == look.partitions[1].pin == mine.pin
    assert look.at_ns - 60e9 < mine.pin.since_ns <= look.at_ns
    assert (other.member, other.consumers, other.is_live) == ("b", 0, False)
    assert other.lag == after[2] + after[3]  # nobody has joined: it is what the partitions hold
    assert look.partitions[2].pin is None
    assert all(each.oldest_s is not None and each.oldest_s < 60 for each in look.partitions)
    assert look.oldest_s == pytest.approx(max(each.oldest_s or 0 for each in look.partitions))


async def test_a_standby_and_a_member_that_left(js: JetStream) -> None:
    group = ElasticGroup("ORDERS", "g", 4, BY_KEY, members=("a", "b"))
    await group_world.elastic_streams(js, group)
    b = (await group_world.member_consumers(js, group, "b"))[2]
    async with b.consume(group="PCG", expires=5), b.consume(group="PCG", expires=5):

        async def both() -> MemberLag | None:
            found = (await measure(js, group)).member("b")
            return found if found is not None and found.instances == 2 else None

        found = await until(both, "the pulls of two instances never wait")
        assert found is not None
        assert found.is_live
        assert not found.is_active  # nobody is pinned before there is a message
        left = await measure(js, dataclasses.replace(group, members=("a",)))
    assert [(each.member, each.listed, each.partitions) for each in left.members] == [
        ("a", True, (0, 1, 2, 3)),
        ("b", False, ()),
    ]
    assert [each.lag for each in left.partitions] == [0, 0, 0, 0]
    assert left.oldest_s is None


async def test_one_consumer_for_each_partition(js: JetStream) -> None:
    group = ElasticGroup("ORDERS", "g", 4, BY_KEY, members=("a",), layout="per_partition")
    await group_world.elastic_streams(js, group)
    consumers = await group_world.member_consumers(js, group, "a")
    await publish(js, 120)
    before = await copied(js, group, 120)
    await group_world.take(consumers[1], 5, ack=3)
    await group_world.take(consumers[3], 2)

    look = await measure(js, group)

    assert {each.partition: each.lag for each in look.partitions} == before - Counter({1: 3})
    pins = [each.pin for each in look.partitions]
    assert [pin is not None for pin in pins] == [False, True, False, True]
    (a,) = look.members
    assert (a.consumers, a.lag, a.unacknowledged, a.handled) == (4, 117, 4, 3)
    assert a.pin == pins[3]  # the one pinned last


async def test_a_static_group(js: JetStream) -> None:
    mappings = (MemberMapping("one", (0,)), MemberMapping("rest", (1, 2)))
    group = StaticGroup("ORDERS", "g", 3, member_mappings=mappings)
    stream = await group_world.static_stream(js, group)
    await stream.create_consumer(durable_name="g-stranger-of-another-group", filter_subject="9.>")
    one = (await group_world.member_consumers(js, group, "one"))[0]
    rest = (await group_world.member_consumers(js, group, "rest"))[1]
    await publish(js, 80)
    counts: Counter[int] = Counter()
    for subject, held in (await stream.info(subjects=">")).state.subjects.items():
        counts[int(subject[0])] += held
    await group_world.take(one, 5, ack=2)
    taken = Counter(int(subject[0]) for subject in await group_world.take(rest, 7, ack=3))

    look = await measure(js, group)

    assert [each.lag for each in look.partitions] == [
        counts[0] - 2,  # one partition, one consumer: exact
        counts[1] - taken[1],  # what a handler has counts only for the member
        counts[2] - taken[2],
    ]
    assert [each.lag for each in look.members] == [counts[0] - 2, counts[1] + counts[2] - 3]
    assert look.lag == 75
    assert look.handled_total == 5
    assert all(each.oldest_s is not None for each in look.partitions)
    assert look.source_lag == 0


async def test_a_static_group_nobody_consumes(js: JetStream) -> None:
    group = StaticGroup("ORDERS", "g", 3, filters=("orders.*",), members=("a", "b"))
    await group_world.static_stream(js, group)
    await publish(js, 30)
    look = await measure(js, group)
    assert look.lag == 30
    assert not any(each.is_live for each in look.members)


async def test_what_a_stream_without_direct_get_does_not_tell_is_none(js: JetStream) -> None:
    group = StaticGroup("ORDERS", "g", 4, members=("a", "b"))
    await group_world.static_stream(js, group, direct=False)
    a = (await group_world.member_consumers(js, group, "a"))[0]
    await publish(js, 30)
    look = await measure(js, group)
    assert [each.lag for each in look.partitions] == [None] * 4
    assert look.members[0].lag == (await a.info()).num_pending
    assert look.members[1].lag is None
    assert look.lag is None


async def test_what_the_source_still_holds_counts(js: JetStream) -> None:
    group = ElasticGroup("ORDERS", "g", 4, BY_KEY, max_buffered_messages=10, members=("a",))
    await group_world.elastic_streams(js, group)
    await publish(js, 100)
    await js.connection.publish("orders.other.kind", b"is not the group's")
    await copied(js, group, 10)
    look = await measure(js, group)
    assert (look.group_lag, look.source_lag, look.lag) == (10, 90, 100)
    await publish(js, 5)  # nobody tells the copy that waits for room
    look = await measure(js, group)
    assert look.lag == 105


async def test_many_partitions_cost_few_calls(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = ElasticGroup("ORDERS", "g", 600, BY_KEY, members=("a", "b"), layout="interoperable")
    await group_world.elastic_streams(js, group)
    await publish(js, 80)
    counts = await copied(js, group, 80)
    before = js.connection.stats().requests
    look = await measure(js, group, troubles=False)
    assert js.connection.stats().requests - before <= 4
    before = js.connection.stats().requests
    assert (await measure(js, group)).partitions == look.partitions
    assert js.connection.stats().requests - before <= 7
    assert {n.partition: n.lag for n in look.partitions if n.lag} == counts
    assert look.lag == 80
    assert look.oldest_s is not None  # of the whole work queue, which the stream tells

    monkeypatch.setattr(lag, "SUBJECTS_MAX", 10)
    look = await measure(js, group)
    assert [each.lag for each in look.partitions] == [None] * 600
    assert look.lag == 80


async def test_rates_between_two_looks(js: JetStream) -> None:
    group = ElasticGroup("ORDERS", "g", 4, BY_KEY, members=("a", "b"))
    await group_world.elastic_streams(js, group)
    a = (await group_world.member_consumers(js, group, "a"))[0]
    await publish(js, 100)
    await copied(js, group, 100)
    first = await measure(js, group)
    await group_world.take(a, 30, ack=30)
    await publish(js, 50)
    await copied(js, group, 120)
    second = await measure(js, group)
    found = rates(first, second)
    assert found is not None
    assert found.seconds == pytest.approx((second.at_ns - first.at_ns) / 1e9)
    assert found.handled * found.seconds == pytest.approx(30)
    assert found.arrived * found.seconds == pytest.approx(50)
    assert found.by_member["a"] * found.seconds == pytest.approx(30)
    assert rates(second, first) is None


async def test_a_group_whose_stream_is_gone(js: JetStream) -> None:
    with pytest.raises(GroupNotFoundError, match=r"'ORDERS-g'.*does not exist"):
        await measure(js, ElasticGroup("ORDERS", "g", 2))


def test_the_same_without_async(reference_server: peers.ServerProcess) -> None:
    assert sync_lag.__all__ == aio_lag.__all__
    with sync.connect(reference_server.url) as connection:
        js = connection.jetstream()
        js.create_stream(name="BLOCKING", subjects=["blocking.*"], storage="memory")
        group = sync_groups.elastic.create(js, "BLOCKING", "g", 2, members=["a"])
        found = sync_lag.measure(js, group)
        assert (found.lag, [each.member for each in found.members]) == (0, ["a"])
        sync_groups.elastic.delete(js, "BLOCKING", "g")
        js.delete_stream("BLOCKING")


def look(stored: int, waiting: int, seconds: int, handled: dict[tuple[str, str], int]) -> GroupLag:
    return GroupLag(
        stream="S",
        group="g",
        kind="static",
        layout="per_partition",
        revision=1,
        at_ns=seconds * 10**9,
        partitions=(PartitionLag(partition=0, member="a"), PartitionLag(partition=1, member="b")),
        members=(),
        group_lag=waiting,
        source_lag=0,
        oldest_s=None,
        stored=stored,
        handled=handled,
    )


def test_a_consumer_made_between_the_looks_counts_from_its_beginning() -> None:
    before = look(100, 50, 10, {("g=0", "then"): 40, ("g=1", "then"): 10})
    after = look(140, 60, 20, {("g=0", "then"): 60, ("g=1", "now"): 10})
    found = rates(before, after)
    assert found is not None
    assert found.by_member == {"a": 2.0, "b": 1.0}
    assert (found.handled, found.arrived) == (3.0, 4.0)


def test_a_stream_made_anew_cannot_be_compared() -> None:
    assert rates(look(100, 50, 10, {}), look(3, 3, 20, {})) is None
    assert First(0).time_ns == 0


def test_the_former_names_of_a_lag_are_told_to_be_so() -> None:
    partition, group = PartitionLag(partition=0, lag=3), look(10, 7, 1, {})
    with pytest.warns(DeprecationWarning, match="PartitionLag.waiting is deprecated: use lag"):
        assert partition.waiting == 3
    with pytest.warns(DeprecationWarning, match="GroupLag.waiting is deprecated: use group_lag"):
        assert group.waiting == 7
