"""The inner loop of a member: cheap for each message, and over the moment the pin is not sure any more."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.api.consumers import ConsumerConfig
from headrace.groups import GroupMessage
from headrace.groups.member.consumer import consuming
from headrace.groups.member.shared import HandlerLimit
from member_world import World
from waiting import until, until_here


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """On a broker in the test's own loop."""
    async with Broker(store_dir=tmp_path / "broker") as broker, broker.connect() as connection:
        yield World(connection.jetstream())


async def test_an_instance_that_stood_still_begins_nothing_of_what_it_had(world: World) -> None:
    """As after SIGSTOP: the process stands still for longer than its pin lasts, its buffer full."""
    await world.create(members=("a",))
    config = ConsumerConfig(ack_wait=1.0, max_ack_pending=100)

    async def handle(message: GroupMessage) -> None:
        world.seen.note("a", message)
        if len(world.seen.rows) == 5:
            deadline = time.monotonic() + 1.1
            until_here(lambda: time.monotonic() > deadline)
            assert not message.is_owned
        message.ack()

    await world.publish(30)
    async with world.join("a", handle, config=config):
        await until(lambda: set(world.seen.numbers()) == set(range(30)), "not all were handled")
    generations = list(dict.fromkeys(row[4] for row in world.seen.rows))
    assert Counter(row[4] for row in world.seen.rows)[generations[0]] == 5
    assert len(generations) >= 2
    for key in {row[1] for row in world.seen.rows}:
        assert world.seen.numbers(key) == sorted(world.seen.numbers(key))


async def test_a_new_owner_does_not_wait_for_ever_for_what_was_sent_back_with_a_delay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "REDELIVERIES_AWAITED", 0)
    await world.create(members=("a",))
    config = ConsumerConfig(ack_wait=1.0, max_ack_pending=100)
    sent_back = asyncio.Event()

    def handle(message: GroupMessage) -> None:
        if message.payload == b"1":
            message.nak(delay=60)
            sent_back.set()
        else:
            world.seen.note("first", message)
            message.ack()

    await world.publish(3, keys=1)
    async with world.join("a", handle, config=config):
        await sent_back.wait()
        await world.until_seen(2)
    async with world.join("a", world.seen.handler("second"), config=config):
        await world.publish(3, keys=1)
        await world.until_seen(5)
    assert world.seen.numbers() == [0, 2, 3, 4, 5]
    assert [
        str(error) for error in world.errors if "though not all of the 4 messages" in str(error)
    ]


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_a_message_costs_no_task_no_future_and_no_timer(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = 3_000
    await world.create(members=("a",))
    await world.publish(total)
    made: Counter[str] = Counter()
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    handled = 0

    def plain(message: GroupMessage) -> None:
        nonlocal handled
        handled += 1
        message.ack()
        if handled == 500:  # begun: from here on it is the messages alone
            count(loop, made, monkeypatch)
        if handled == total:
            loop.call_soon_threadsafe(done.set)

    async def coroutine(message: GroupMessage) -> None:
        plain(message)

    config = ConsumerConfig(max_ack_pending=500)
    async with world.join("a", plain if kind == "plain" else coroutine, config=config):
        async with asyncio.timeout(30):
            await done.wait()
        seen = made.copy()
        asyncio.get_running_loop().create_future()
        assert made["create_future"] > seen["create_future"], "nothing is counted"
        monkeypatch.undo()
    assert seen["create_future"] < (total - 500) / 10, seen
    assert seen["create_task"] < 20, seen
    assert seen["call_later"] + seen["call_at"] < (total - 500) / 10, seen


@pytest.mark.parametrize("pending", [1, 500])
async def test_what_was_answered_is_sent_before_the_next_turn(world: World, pending: int) -> None:
    """The server may wait for it, and the member waits for the server."""
    await world.create(members=("a",))
    await world.publish(20)
    loop = asyncio.get_running_loop()
    outbox = world.js.connection._session.outbox
    unsent: list[int] = []

    async def handle(message: GroupMessage) -> None:
        world.seen.note("a", message)
        loop.call_soon(lambda: unsent.append(outbox.unsent_bytes))  # first in the next turn
        message.ack()

    config = ConsumerConfig(max_ack_pending=pending)
    async with world.join("a", handle, config=config):
        await world.until_seen(20)
        await until(lambda: len(unsent) == 20)
    assert not any(unsent)


async def test_who_is_cancelled_while_waiting_for_a_place_gives_none_back() -> None:
    limit = HandlerLimit(1)
    assert await limit.take("first")
    second = asyncio.create_task(limit.take("second"))
    await until(lambda: limit.is_wanted, "it does not wait for a place")
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    third = asyncio.create_task(limit.take("third"))
    await until(lambda: limit.is_wanted or third.done(), "it neither waits nor has a place")
    assert not third.done(), "there were two places, and only one was made"
    limit.give()
    assert await third


async def test_who_leaves_waits_for_no_place_and_others_do() -> None:
    limit = HandlerLimit(1)
    assert await limit.take("first")
    leaving = [asyncio.create_task(limit.take("second")) for _ in range(2)]
    staying = asyncio.create_task(limit.take("third"))
    await until(lambda: len(limit._waiting) == 3, "they do not wait")
    limit.leave("second")
    assert await asyncio.gather(*leaving) == [False, False]
    assert not staying.done()
    limit.give()
    assert await staying
    limit.give()
    assert await limit.take("fourth"), "a place was lost"


def count(loop: Any, made: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Count what the loop is asked to make."""

    def counting(name: str) -> Any:
        original = getattr(loop, name)

        def call(*arguments: Any, **options: Any) -> Any:
            made[name] += 1
            return original(*arguments, **options)

        return call

    for name in ("create_future", "create_task", "call_later", "call_at"):
        monkeypatch.setattr(loop, name, counting(name))
