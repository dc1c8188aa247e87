"""Changing partitions, filters and keys of an elastic group while its members work, on both servers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest

import peers
from distances import NEAR_AND_FAR
from headrace.client import JetStream, Stream, connect
from headrace.errors import DisconnectedUnknownError
from headrace.groups import (
    ChangeProgress,
    ElasticGroup,
    GroupChangedError,
    GroupConfigurationError,
    GroupError,
    GroupExistsError,
    GroupMessage,
    MemberMapping,
    PartitioningFilter,
    elastic,
)
from headrace.groups.changing import OnProgress
from headrace.groups.lag import measure
from headrace.groups.record.records import CLOSED_BYTES
from headrace.groups.server.bucket import Records
from portions import some
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

BY_ORDER = [PartitioningFilter("o.*.*", (1, 2))]
BY_CUSTOMER = [PartitioningFilter("o.*.*", (1,))]


class Traffic:
    """What is published all the time, and what the handlers saw of it."""

    def __init__(self, js: JetStream) -> None:
        self._js = js
        self.published = 0
        self.seen: dict[str, list[int]] = defaultdict(list)
        self.partitions: set[int] = set()
        self._is_over = False

    async def publish(self, rounds: int = 0) -> None:
        """So many messages of each of six subjects; 0: until it is over."""
        done = 0
        while not self._is_over and (not rounds or done < rounds):
            for key in range(6):
                await self._js.publish(f"o.{key % 3}.{key}", b"%d" % self.published)
                self.published += 1
            done += 1
            if not rounds:
                await until(lambda: self._is_over or self.published - self.handled < 60)

    async def handle(self, message: GroupMessage) -> None:
        """Customers are the first token; in the stream's order of each."""
        await asyncio.sleep(0)
        self.seen[message.subject.split(".")[1]].append(int(message.payload))
        self.partitions.add(message.partition)
        await message.ack_sync()

    @contextlib.asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.publish())
        try:
            yield
        finally:
            self._is_over = True
            await task

    @property
    def handled(self) -> int:
        return sum(map(len, self.seen.values()))

    async def check(self) -> None:
        """All of it was handled once, each customer in order."""
        await until(lambda: self.handled >= self.published)
        assert self.handled == self.published
        for numbers in self.seen.values():
            assert numbers == sorted(set(numbers))


async def made(js: JetStream, *, partitions: int = 3, **settings: Any) -> ElasticGroup:
    await js.create_stream(name="S", subjects=["o.*.*"], storage="memory", allow_direct=True)
    given: dict[str, Any] = {"partitioning_filters": BY_CUSTOMER, "members": ["a", "b"]}
    return await elastic.create(js, "S", "g", partitions, **{**given, **settings})


@contextlib.asynccontextmanager
async def at_work(js: JetStream, traffic: Traffic, **settings: Any) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for member in ("a", "b"):
            await stack.enter_async_context(
                elastic.join(js, "S", "g", member, traffic.handle, **settings)
            )
        yield


class Interrupted:
    """A connection on which the answer to one call is lost."""

    def __init__(self, js: JetStream) -> None:
        self._requests = js.connection._session.requests
        self._ask = self._requests.ask
        self.calls = 0
        self.lost_at = 0
        self._requests.ask = self.ask  # type: ignore[assignment, method-assign]

    async def ask(self, subject: str, headers: bytes, payload: bytes, timeout: float) -> Any:
        answer = await self._ask(subject, headers, payload, timeout)
        self.calls += 1
        if self.calls == self.lost_at:
            raise DisconnectedUnknownError("lost by the test")
        return answer


async def test_a_change_that_is_interrupted_at_any_call_goes_on_when_it_is_called_again(
    js: JetStream, reference_server: peers.ServerProcess
) -> None:
    await made(js)
    traffic = Traffic(js)
    async with (
        at_work(js, traffic),
        connect(reference_server.url) as other,
        traffic.flowing(),
    ):
        wire = Interrupted(other.jetstream())
        beginning = peers.EITHER.index(reference_server.name)
        for lost_at in some(range(1, 100), 2, beginning):
            wire.calls, wire.lost_at = 0, lost_at
            wanted: Any = {"max_members": 3 + lost_at % 4 + 1}
            try:
                await elastic.change(other.jetstream(), "S", "g", **wanted)
            except DisconnectedUnknownError:
                group = await elastic.change(other.jetstream(), "S", "g", **wanted)
                assert group.max_members == wanted["max_members"]
                assert group.change is None
            if wire.calls < lost_at:
                break
    assert lost_at > 12
    async with at_work(js, traffic):
        await traffic.check()
    assert max(traffic.partitions) > 2


async def test_the_key_may_become_coarser_and_orders_stay_in_order(js: JetStream) -> None:
    """By order and customer first, then by customer: what was handled side by side comes one by one."""
    await made(js, partitioning_filters=BY_ORDER)
    traffic = Traffic(js)
    by_order: dict[str, list[int]] = defaultdict(list)
    is_changed = False

    async def handle(message: GroupMessage) -> None:
        by_order[message.subject].append(int(message.payload))
        if is_changed:
            await traffic.handle(message)
        else:
            await message.ack_sync()

    progress: list[ChangeProgress] = []
    async with (
        elastic.join(js, "S", "g", "a", handle, concurrency=4),
        elastic.join(js, "S", "g", "b", handle, concurrency=4),
    ):
        await traffic.publish(20)
        await until(lambda: bool(by_order))  # a queue that has copied nothing has no boundary

        def told(each: ChangeProgress) -> None:
            nonlocal is_changed
            progress.append(each)
            is_changed = is_changed or each.phase == "switching"

        group = await elastic.change(
            js, "S", "g", partitioning_filters=BY_CUSTOMER, on_progress=told
        )
        assert group.partitioning_filters == tuple(BY_CUSTOMER)
        await traffic.publish(20)
        await until(lambda: sum(map(len, by_order.values())) == traffic.published)
    for numbers in (*by_order.values(), *traffic.seen.values()):
        assert numbers == sorted(set(numbers))
    assert [each.phase for each in progress][-1] == ""
    boundary = next(each.boundary for each in progress if each.phase == "draining")
    assert boundary == 120


async def test_filters_may_be_changed_and_what_comes_anew_begins_at_the_boundary(
    js: JetStream,
) -> None:
    await js.create_stream(name="S", subjects=["o.*.*", "x.*"], storage="memory")
    await elastic.create(js, "S", "g", 2, partitioning_filters=BY_CUSTOMER, members=["a"])
    seen: list[str] = []

    async def handle(message: GroupMessage) -> None:
        seen.append(message.subject)
        await message.ack_sync()

    async with elastic.join(js, "S", "g", "a", handle):
        await js.publish("x.1", b"of the former ones")
        await js.publish("o.1.1", b"")
        await until(lambda: len(seen) == 1)
        await js.publish("x.2", b"behind the boundary")
        filters = [PartitioningFilter("x.*", (1,)), PartitioningFilter("o.*.*", (1,))]
        await elastic.change(js, "S", "g", partitioning_filters=filters)
        await js.publish("o.1.2", b"")
        await until(lambda: len(seen) == 3)
    assert seen == ["o.1.1", "x.2", "o.1.2"]


async def test_a_group_that_has_copied_nothing_keeps_its_beginning(js: JetStream) -> None:
    await js.create_stream(name="S", subjects=["o.*.*"], storage="memory")
    for number in range(3):
        await js.publish("o.1.1", b"%d" % number)
    await elastic.create(js, "S", "g", 2, partitioning_filters=BY_CUSTOMER, start="now")
    for most in (3, 4, 5):  # each before anything was copied by the one before
        await elastic.change(js, "S", "g", max_members=most)
    await js.publish("o.1.1", b"3")
    await until_copied(js, 1)
    copy = await (await js.stream("S-g")).get_message(1)
    assert copy.payload == b"3"
    await elastic.add_members(js, "S", "g", ["a"])
    async with elastic.join(js, "S", "g", "a") as membership:
        async for message in membership:
            await message.ack_sync()
            break
    for most in (6, 7):  # and after all of it was handled
        await elastic.change(js, "S", "g", max_members=most)
    assert (await measure(js, await elastic.get(js, "S", "g"))).lag == 0


async def until_copied(js: JetStream, count: int) -> None:
    async def is_copied() -> bool:
        info = await (await js.stream("S-g")).info()
        return info.state.messages == count

    await until(is_copied)


@NEAR_AND_FAR
async def test_a_change_is_undone_until_the_boundary_is_passed(js: JetStream) -> None:
    before = await made(js, max_buffered_bytes=1_000_000)
    traffic = Traffic(js)
    await traffic.publish(2)
    await until_copied(js, 12)
    waiting = asyncio.create_task(elastic.change(js, "S", "g", max_members=5))  # nobody drains it

    async def phase() -> str:
        record = await elastic.get(js, "S", "g")
        return record.change.phase if record.change else ""

    async def is_draining() -> bool:
        return await phase() == "draining"

    await until(is_draining)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    for refused in (
        elastic.update(js, "S", "g", max_buffered_messages=9),
        elastic.set_mappings(js, "S", "g", [MemberMapping("a", (0, 1, 2))]),
        elastic.change(js, "S", "g", max_members=6),
    ):
        with pytest.raises(GroupError, match=r"is being changed.*--undo"):
            await refused
    # Whoever asks for the group with either settings gets it.
    assert (await made_again(js, 3)).max_members == 3
    assert (await made_again(js, 5)).max_members == 3
    config = (await (await js.stream("S-g")).info()).config
    assert config.max_bytes == CLOSED_BYTES
    after = await elastic.undo_change(js, "S", "g")
    assert after == before
    config = (await (await js.stream("S-g")).info()).config
    assert config.max_bytes == 1_000_000
    async with at_work(js, traffic):
        await traffic.publish(2)
        await traffic.check()
    assert (await elastic.undo_change(js, "S", "g")) == before  # there is nothing to undo


async def made_again(js: JetStream, partitions: int) -> ElasticGroup:
    return await elastic.create(
        js,
        "S",
        "g",
        partitions,
        partitioning_filters=BY_CUSTOMER,
        max_buffered_bytes=1_000_000,
    )


async def test_a_change_that_has_passed_the_boundary_is_not_undone(js: JetStream) -> None:
    await made(js)

    def stop_there(progress: ChangeProgress) -> None:
        if progress.phase == "switching":
            raise InterruptedError

    with pytest.raises(InterruptedError):
        await elastic.change(js, "S", "g", max_members=5, on_progress=stop_there)
    with pytest.raises(GroupError, match="passed the boundary"):
        await elastic.undo_change(js, "S", "g")
    assert (await elastic.change(js, "S", "g")).changed == 1


@pytest.mark.parametrize("phase", ["draining", "switching"])
async def test_a_record_that_others_wrote_anew_without_the_change_is_made_good(
    js: JetStream, phase: str
) -> None:
    """As the Go implementation does when it adds a member: it keeps what it knows."""
    await made(js)
    traffic = Traffic(js)

    def stop_there(progress: ChangeProgress) -> None:
        if progress.phase == phase:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        await elastic.change(js, "S", "g", max_members=5, on_progress=stop_there)
    records = Records(js, ElasticGroup)
    record = await records.get("S", "g")
    await records.update(dataclasses.replace(record, change=None, changed=0), record.revision)
    group = await elastic.change(js, "S", "g")
    assert group.max_members == (5 if phase == "switching" else 3)
    assert group.change is None
    async with at_work(js, traffic):
        await traffic.publish(5)
        await traffic.check()


async def test_a_change_that_others_took_out_of_the_record_is_completed_before_the_next_one(
    js: JetStream,
) -> None:
    await made(js, partitions=8)
    traffic = Traffic(js)

    def stop_at(phase: str) -> OnProgress:
        def stop_there(progress: ChangeProgress) -> None:
            if progress.phase == phase:
                raise InterruptedError

        return stop_there

    with pytest.raises(InterruptedError):
        await elastic.change(js, "S", "g", max_members=2, on_progress=stop_at("switching"))
    records = Records(js, ElasticGroup)
    record = await records.get("S", "g")
    await records.update(dataclasses.replace(record, change=None), record.revision)
    with pytest.raises(InterruptedError):
        await elastic.change(js, "S", "g", max_members=4, on_progress=stop_at("closing"))
    group = await elastic.undo_change(js, "S", "g")
    assert (group.max_members, group.change) == (2, None)
    async with at_work(js, traffic):
        await traffic.publish(8)
        await traffic.check()


async def test_a_group_is_deleted_in_the_midst_of_a_change(js: JetStream) -> None:
    for phase in ("draining", "switching"):
        await made(js)

        def stop_there(progress: ChangeProgress, phase: str = phase) -> None:
            if progress.phase == phase:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            await elastic.change(js, "S", "g", max_members=5, on_progress=stop_there)
        await elastic.delete(js, "S", "g")
        assert not [name async for name in js.stream_names() if name == "S-g"]
        await js.delete_stream("S")


@NEAR_AND_FAR
async def test_a_mapped_group_is_given_its_new_mappings(js: JetStream) -> None:
    mappings = [MemberMapping("a", (0, 2)), MemberMapping("b", (1,))]
    await made(js, members=(), member_mappings=mappings)
    with pytest.raises(GroupConfigurationError, match=r"mappings for 3 partitions.*for 4"):
        await elastic.change(js, "S", "g", max_members=4)
    traffic = Traffic(js)
    async with at_work(js, traffic):
        await traffic.publish(2)
        group = await elastic.change(
            js,
            "S",
            "g",
            max_members=4,
            member_mappings=[MemberMapping("a", (0, 1, 2)), MemberMapping("b", (3,))],
        )
        assert group.assignment() == {"a": (0, 1, 2), "b": (3,)}
        await traffic.publish(2)
        await traffic.check()


async def test_what_cannot_be_changed_is_refused_with_the_reason(js: JetStream) -> None:
    await made(js)
    with pytest.raises(GroupConfigurationError, match="not being changed, and nothing to change"):
        await elastic.change(js, "S", "g")
    with pytest.raises(GroupConfigurationError, match="by which no message fits"):
        await elastic.change(js, "S", "g", max_members=4, max_buffered_bytes=1)
    with pytest.raises(GroupConfigurationError, match="must be >= 1"):
        await elastic.change(js, "S", "g", max_members=0)
    assert (await elastic.change(js, "S", "g", max_members=3)).change is None  # it is so already
    assert (await elastic.change(js, "S", "g", max_buffered_messages=7)).changed == 0
    await js.delete_stream("S-g")
    with pytest.raises(GroupError, match="create the group again"):
        await elastic.change(js, "S", "g", max_members=4)
    await js.create_stream(name="S-g", subjects=["mine"], storage="memory")
    with pytest.raises(GroupExistsError, match="is not that of elastic group 'g'"):
        await elastic.change(js, "S", "g", max_members=4)


async def test_a_member_follows_a_change_and_no_other(js: JetStream) -> None:
    group = await made(js)
    records = Records(js, ElasticGroup)
    async with elastic.join(js, "S", "g", "a", lambda message: None) as membership:
        await records.update(dataclasses.replace(group, max_members=4), group.revision)
        with pytest.raises(GroupChangedError, match="max number of members"):
            await membership.wait()


@pytest.mark.parametrize("members", [["a", "b"], []])
async def test_a_change_says_who_is_away_and_goes_on_without_them(
    js: JetStream, members: list[str]
) -> None:
    await made(js, members=members)
    traffic = Traffic(js)
    await traffic.publish(rounds=2)
    queue = await js.stream("S-g")
    await until(lambda: _has(queue, 12))
    progress: list[ChangeProgress] = []

    async def absent(expected: tuple[str, ...]) -> None:
        await until(lambda: progress and progress[-1].absent == expected)

    async with asyncio.timeout(20):
        change = asyncio.create_task(
            elastic.change(js, "S", "g", max_members=2, on_progress=progress.append)
        )
        await absent(tuple(members) or ("",))
        await elastic.add_members(js, "S", "g", ["a"])
        async with elastic.join(js, "S", "g", "a", traffic.handle):
            if members:
                await absent(("b",))
                await elastic.drop_members(js, "S", "g", ["b"])
            assert (await change).max_members == 2
            await traffic.check()
    assert progress[-1] == ChangeProgress("", 0, 0)


async def _has(queue: Stream, messages: int) -> bool:
    return (await queue.info()).state.messages == messages
