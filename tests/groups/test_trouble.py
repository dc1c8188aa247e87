"""What keeps messages from a group is told on both servers: by a look, by members, at the creation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

import leftovers
import peers
from headrace.api.consumers import ConsumerConfig
from headrace.api.streams import SubjectTransformConfig
from headrace.client import JetStream
from headrace.groups import (
    GroupConfigurationError,
    GroupMessage,
    PartitioningFilter,
    elastic,
    static,
)
from headrace.groups import changing as group_change
from headrace.groups.events import CopyPaused, GroupStuck
from headrace.groups.lag import measure
from headrace.groups.member import reachability
from headrace.groups.trouble import troubles
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

BY_KEY = [PartitioningFilter("o.*", (1,))]


def numbered(count: int) -> SubjectTransformConfig:
    dest = f"{{{{partition({count},1)}}}}.o.{{{{wildcard(1)}}}}"
    return SubjectTransformConfig(src="o.*", dest=dest)


async def publish(js: JetStream, messages: int = 40) -> None:
    for number in range(messages):
        await js.publish(f"o.{number}")


async def kinds(js: JetStream, group: Any) -> list[str]:
    return [each.kind for each in await troubles(js, group)]


async def test_a_static_group_whose_stream_numbers_otherwise(js: JetStream) -> None:
    stream = await js.create_stream(name="S", subjects=["o.*"], subject_transform=numbered(4))
    await publish(js)
    group = await static.create(js, "S", "g", 4, members=["a"])
    assert await kinds(js, group) == []
    await stream.update(subject_transform=numbered(10))
    assert await kinds(js, group) == ["beyond"]
    await publish(js)
    beyond, outside = await troubles(js, group)
    assert "partitions 4 to 9 is handed to nobody" in beyond.text
    counts = (await stream.info(subjects=">")).state.subjects
    lost = sum(n for subject, n in counts.items() if int(subject.partition(".")[0]) > 3)
    assert outside.text.startswith(f"{lost} of 80 messages in stream 'S' are in none of its 4 part")
    await stream.update(subject_transform=numbered(4))
    assert await kinds(js, group) == ["outside"]  # they are there still
    assert [each.kind for each in (await measure(js, group)).troubles] == ["outside"]
    assert (await measure(js, group, troubles=False)).troubles == ()
    await stream.purge()
    await stream.update(subject_transform=None)
    assert await kinds(js, group) == ["unnumbered"]
    await js.delete_stream("S")
    assert await kinds(js, group) == ["no-stream"]


async def test_what_lay_there_before_the_stream_was_numbered_is_no_trouble(js: JetStream) -> None:
    stream = await js.create_stream(name="S", subjects=["o.*"])
    await publish(js)
    await stream.update(subject_transform=numbered(2))
    group = await static.create(js, "S", "g", 2, members=["a"])
    assert await kinds(js, group) == []
    await publish(js)
    assert await kinds(js, group) == []


async def test_an_elastic_group_whose_source_was_renamed(js: JetStream) -> None:
    stream = await js.create_stream(name="S", subjects=["o.*"])
    group = await elastic.create(js, "S", "g", 2, partitioning_filters=BY_KEY)
    assert await kinds(js, group) == []
    await publish(js)
    await stream.update(subjects=["p.*"])
    (found,) = await troubles(js, group)
    assert found.text == (
        "its filter 'o.*' matches none of the subjects that stream 'S' stores: 'p.*'"
    )
    await stream.update(subjects=["o.*", "p.*"])
    assert await kinds(js, group) == []


async def test_an_elastic_group_whose_stream_or_queue_is_not_there(js: JetStream) -> None:
    await js.create_stream(name="S", subjects=["o.*"])
    group = await elastic.create(js, "S", "g", 2, partitioning_filters=BY_KEY)
    await js.delete_stream("S-g")
    assert await kinds(js, group) == ["no-queue"]
    await elastic.create(js, "S", "g", 2, partitioning_filters=BY_KEY)
    assert await kinds(js, group) == []
    await js.delete_stream("S-g")
    await js.create_stream(name="S-g", subjects=["other"])
    assert await kinds(js, group) == ["other-queue"]
    await js.delete_stream("S")
    assert await kinds(js, group) == ["no-stream"]


async def test_a_queue_that_was_closed_or_numbers_otherwise(js: JetStream) -> None:
    await js.create_stream(name="S", subjects=["o.*"])
    group = await elastic.create(js, "S", "g", 2, partitioning_filters=BY_KEY)
    await (await js.stream("S-g")).update(max_bytes=1)
    assert await kinds(js, group) == ["closed-queue"]
    await elastic.change(js, "S", "g")
    assert await kinds(js, group) == []


async def test_messages_before_the_place_of_a_members_consumer_are_told_and_the_advice_helps(
    js: JetStream, reference_server: peers.ServerProcess
) -> None:
    """Of another client: made on nats-server while one of its name was being deleted."""
    await js.create_stream(name="O", subjects=["o.*"])
    group = await elastic.create(js, "O", "e", 1, partitioning_filters=BY_KEY, members=["m"])
    await publish(js, 3)
    await until(lambda: _has(js, "O-e", 3))
    config = ConsumerConfig(
        name="m",
        ack_policy="explicit",
        ack_wait=30.0,
        priority_groups=("PCG",),
        priority_policy="pinned_client",
        priority_timeout=5.0,
        filter_subjects=("0.o.1", "0.o.2"),
    )
    before = await js.create_consumer("O-e", config)
    for message in await before.fetch(2, group="PCG"):
        await message.ack_sync()
    with leftovers.consumers_place(reference_server, "O-e", "m"):
        await before.delete()
    wider = msgspec.structs.replace(config, filter_subjects=("0.>",))
    await js.create_consumer("O-e", wider)
    found = await troubles(js, group)
    assert [each.kind for each in found] == ["passed-over"] * (
        reference_server.name == "nats-server"
    )
    for trouble in found:
        command = ["headrace", "consumer", "rm", "O-e", "m"]
        assert trouble.mend.split()[:5] == command
        await js.delete_consumer("O-e", "m")
        await js.create_consumer("O-e", wider)
    assert await kinds(js, group) == []


async def _has(js: JetStream, stream: str, messages: int) -> bool:
    return (await (await js.stream(stream)).info()).state.messages == messages


async def test_a_filter_that_nothing_ever_matched_is_worth_knowing(js: JetStream) -> None:
    await js.create_stream(name="S", subjects=["o.>"])
    group = await elastic.create(js, "S", "g", 2, partitioning_filters=BY_KEY)
    assert await kinds(js, group) == []
    await js.publish("o.eu.1")
    (found,) = await troubles(js, group)
    assert (found.kind, found.is_certain) == ("nothing-yet", False)
    await js.publish("o.1")
    assert await kinds(js, group) == []


async def test_a_group_that_could_get_nothing_is_not_created(js: JetStream) -> None:
    stream = await js.create_stream(name="S", subjects=["o.*"])
    with pytest.raises(
        GroupConfigurationError,
        match=r"would not get messages: stream 'S' stores 'o.\*', which begin with no partition number.*"
        r"headrace stream edit S --transform 'o.\*:{{Partition\(2,1\)}}",
    ):
        await static.create(js, "S", "g", 2)
    other = [PartitioningFilter("p.*", (1,))]
    with pytest.raises(
        GroupConfigurationError, match=r"its filter 'p.\*' matches none of the subj"
    ):
        await elastic.create(js, "S", "g", 2, partitioning_filters=other)
    await stream.update(subject_transform=numbered(4))
    with pytest.raises(GroupConfigurationError, match="partitions 2 to 3 is handed to nobody"):
        await static.create(js, "S", "g", 2)
    assert await static.list(js, "S") == []
    assert await elastic.list(js, "S") == []
    await stream.update(subject_transform=None)
    group = await elastic.create(js, "S", "g", 2, partitioning_filters=BY_KEY)
    with pytest.raises(GroupConfigurationError, match="matches none"):
        await elastic.change(js, "S", "g", partitioning_filters=other)
    assert await elastic.get(js, "S", "g") == group
    # What was stored under subjects that the stream takes no more can be had.
    await publish(js, 1)
    await stream.update(subjects=["p.*"])
    await elastic.create(js, "S", "h", 2, partitioning_filters=BY_KEY)
    # Nor is one refused that exists: every worker creates its group when it starts.
    assert await elastic.create(js, "S", "g", 2, partitioning_filters=BY_KEY) == group


@contextlib.asynccontextmanager
async def events_of(js: JetStream, kind: type[Any] = GroupStuck) -> AsyncIterator[list[Any]]:
    found: list[Any] = []

    async def collect() -> None:
        async for event in js.connection.events():
            note(event)

    def note(event: object) -> None:
        if isinstance(event, kind):
            found.append(event)

    task = asyncio.create_task(collect())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_members_tell_once_while_it_lasts(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_S", "LOOK_S", "CONFIRM_S"):
        monkeypatch.setattr(reachability, name, 0.05)
    stream = await js.create_stream(name="S", subjects=["o.*"])
    await elastic.create(js, "S", "g", 2, partitioning_filters=BY_KEY, members=["a"])

    async def handle(message: GroupMessage) -> None:
        await message.ack()

    async with events_of(js) as told, elastic.join(js, "S", "g", "a", handle) as membership:
        looks = membership._reachability
        assert looks is not None
        await stream.update(subjects=["p.*"])
        await until(lambda: told)
        assert [(each.kind, "matches none" in each.text) for each in told] == [("unmatched", True)]
        await stream.update(subjects=["o.*"])
        await until(lambda: not looks._told)
        assert len(told) == 1
        await stream.update(subjects=["p.*"])
        await until(lambda: len(told) == 2)


async def test_members_tell_once_that_a_change_was_left_alone(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_S", "LOOK_S", "CONFIRM_S"):
        monkeypatch.setattr(reachability, name, 0.05)
    monkeypatch.setattr(reachability, "CHANGE_S", 0.3)
    await js.create_stream(name="S", subjects=["o.*"])
    await elastic.create(js, "S", "g", 2, partitioning_filters=BY_KEY, members=["a"])
    seen: list[str] = []
    held = asyncio.Event()

    async def handle(message: GroupMessage) -> None:
        await held.wait()
        seen.append(message.subject)
        await message.ack()

    async with events_of(js) as told, elastic.join(js, "S", "g", "a", handle) as membership:
        looks = membership._reachability
        assert looks is not None
        await publish(js, 3)
        await group_change.begin(
            js, "S", "g", lambda group: replace(group, max_members=3)
        )  # and is killed
        await until(lambda: told)
        assert [(each.kind, "closing" in each.text) for each in told] == [("change-left", True)]
        assert told[0].mend.startswith("headrace group elastic change S g completes it")

        going_on = asyncio.create_task(elastic.change(js, "S", "g"))
        await until(lambda: not looks._told)  # it is drained: that is the members' work
        for _ in range(20):
            assert await looks._look() == ()
        monkeypatch.setattr(reachability, "CHANGE_S", 60.0)  # whoever goes on may be slow
        held.set()
        await going_on
        await publish(js, 3)
        await until(lambda: len(seen) == 6)
        assert len(told) == 1


async def test_members_tell_once_that_nothing_is_copied_while_that_lasts(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server looks at what it copies each second; here any look is too long ago."""
    for name in ("FIRST_S", "LOOK_S", "CONFIRM_S"):
        monkeypatch.setattr(reachability, name, 0.05)
    monkeypatch.setattr(reachability, "PAUSE_S", -1.0)
    await js.create_stream(name="S", subjects=["o.*"])
    await elastic.create(
        js, "S", "g", 1, partitioning_filters=BY_KEY, members=["a"], max_buffered_messages=1
    )
    held = asyncio.Event()

    async def handle(message: GroupMessage) -> None:
        await held.wait()
        await message.ack()

    async with (
        events_of(js, CopyPaused) as told,
        elastic.join(js, "S", "g", "a", handle) as membership,
    ):
        looks = membership._reachability
        assert looks is not None
        await until(lambda: told)
        assert (told[0].stream, told[0].queue, told[0].is_full) == ("S", "S-g", False)
        assert told[0].seconds >= 0
        monkeypatch.setattr(reachability, "PAUSE_S", 1e6)
        await until(lambda: not looks._pause_told)
        assert len(told) == 1
        await publish(js, 3)
        queue = await js.stream("S-g")
        while not (await queue.info()).state.messages:
            await asyncio.sleep(0)
        monkeypatch.setattr(reachability, "PAUSE_S", -1.0)
        await until(lambda: len(told) == 2)
        assert told[1].is_full
        held.set()


async def test_who_must_not_ask_goes_on_in_silence(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that fails is no trouble of the group."""
    monkeypatch.setattr(reachability, "FIRST_S", 0.01)
    asked = asyncio.Event()

    async def refused(*_: object) -> tuple[()]:
        asked.set()
        raise GroupConfigurationError("not for you")

    monkeypatch.setattr(reachability, "troubles", refused)
    await js.create_stream(name="S", subjects=["o.*"])
    await elastic.create(js, "S", "g", 2, partitioning_filters=BY_KEY, members=["a"])
    seen: list[str] = []

    async def handle(message: GroupMessage) -> None:
        seen.append(message.subject)
        await message.ack()

    async with events_of(js) as told, elastic.join(js, "S", "g", "a", handle):
        await asyncio.wait_for(asked.wait(), 10)
        await publish(js, 5)
        await until(lambda: len(seen) == 5)
    assert told == []
