"""Handlers that block: a plain function costs nobody the pin, and of a coroutine that does one is told."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from headrace import sync
from headrace.api.consumers import ConsumerConfig
from headrace.client import JetStream, connect
from headrace.client.events import Event
from headrace.groups import GroupMessage
from headrace.groups.events import LeaseLost, LoopBlocked
from headrace.sync.groups import elastic as blocking_elastic
from member_world import GROUP, STREAM, World
from peers import ServerProcess
from waiting import block, until, until_here

pytestmark = pytest.mark.peer

SOON = ConsumerConfig(ack_wait=1.0, max_ack_pending=100)


@contextmanager
def standby(world: World, url: str) -> Iterator[None]:
    """A second instance of the member, in a thread with a loop of its own."""
    ended = threading.Event()
    here = threading.Event()

    def handle(message: Any) -> None:
        world.seen.note("standby", message)
        message.ack()

    def stand_by() -> None:
        with sync.connect(url) as connection:
            js = connection.jetstream()
            with blocking_elastic.join(js, STREAM, GROUP, "a", handle, SOON):
                here.set()
                ended.wait()

    thread = threading.Thread(target=stand_by)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize(("kind", "concurrency"), [("plain", 1), ("coroutine", 1), ("plain", 2)])
async def test_a_handler_that_blocks_keeps_the_pin_and_runs_once_for_each_message(
    world: World, reference_server: ServerProcess, kind: str, concurrency: int
) -> None:
    await world.create(members=("a",))
    total = 5 * concurrency

    def plain(message: GroupMessage) -> None:
        world.seen.note("first", message)
        block(0.3)
        message.ack()

    async def coroutine(message: GroupMessage) -> None:
        plain(message)

    handler = plain if kind == "plain" else coroutine
    async with world.join("a", handler, config=SOON, concurrency=concurrency) as first:
        await world.publish(1)
        await until(lambda: first.is_active)
        with standby(world, reference_server.url):
            await world.publish(total - 1)
            await world.until_seen()
            assert first.is_active
    assert {(row[0], row[4]) for row in world.seen.rows} == {("first", world.seen.rows[0][4])}
    world.seen.check_once_and_in_order(total)


async def test_a_plain_handler_runs_on_a_thread_and_what_it_answers_is_sent_at_once(
    world: World, js: JetStream
) -> None:
    await world.create(members=("a",))
    go_on = threading.Event()
    threads: set[str] = set()

    def handle(message: GroupMessage) -> None:
        threads.add(threading.current_thread().name)
        world.seen.note("a", message)
        message.ack()
        if message.payload == b"1":
            assert go_on.wait(10)

    work = await js.stream(f"{STREAM}-{GROUP}")

    async def left() -> bool:
        return (await work.info()).state.messages == 1

    await world.publish(3, keys=1)
    async with world.join("a", handle, config=SOON):
        try:
            await until(left, "what was acknowledged is not")
            assert world.seen.numbers() == [0, 1]
        finally:
            go_on.set()
        await world.until_seen()
    assert threads == {f"member a of {GROUP}"}


_request: ContextVar[str] = ContextVar("request", default="none")


@pytest.mark.parametrize("reference_server", ["headrace"], indirect=True)
async def test_a_plain_handler_has_the_context_of_the_beginning_and_as_many_threads_as_asked_for(
    world: World,
) -> None:
    await world.create(members=("a",))
    found: list[str] = []
    together = threading.Barrier(3)
    most, running, lock = 0, 0, threading.Lock()

    def handle(message: GroupMessage) -> None:
        nonlocal most, running
        found.append(_request.get())
        _request.set("of one call")
        with lock:
            running += 1
            most = max(most, running)
        together.wait(10)
        with lock:
            running -= 1
        world.seen.note("a", message)
        message.ack()

    _request.set("at the beginning")
    async with world.join("a", handle, config=SOON, concurrency=3):
        await world.publish(12, keys=12)
        await world.until_seen()
    assert found == ["at the beginning"] * 12
    assert most == 3
    assert not world.errors


@pytest.mark.parametrize("reference_server", ["headrace"], indirect=True)
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_what_a_plain_function_returns_is_awaited_on_the_loop(
    world: World, concurrency: int
) -> None:
    await world.create(members=("a",))
    loop = asyncio.get_running_loop()
    loops = set()

    async def handle(message: GroupMessage) -> None:
        loops.add(asyncio.get_running_loop())
        world.seen.note("a", message)
        await message.ack_sync()

    async with world.join("a", lambda message: handle(message), concurrency=concurrency):
        await world.publish(12)
        await world.until_seen()
    assert loops == {loop}
    world.seen.check_once_and_in_order(12)


def told(events: list[Event], by_handler: bool = False) -> list[LoopBlocked]:
    """What was said of a loop that stood still: of all, or while a handler ran."""
    found = [each for each in events if isinstance(each, LoopBlocked)]
    return [each for each in found if each.handler or not by_handler]


async def test_a_coroutine_that_blocks_past_the_lease_is_told_and_begins_nothing_before_it_knows(
    world: World, reference_server: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    await world.create(members=("a",))
    events: list[Event] = []
    owned: list[bool] = []
    blocked = 0

    async def blocks(message: GroupMessage) -> None:
        nonlocal blocked
        world.seen.note("first", message)
        if blocked < 2:
            blocked += 1
            block(0.3 if blocked == 1 else 1.2)
            owned.append(message.is_owned)
        message.ack()

    async with (
        connect(reference_server.url, on_event=events.append) as own,
        world.join("a", blocks, js=own.jetstream(), config=SOON) as membership,
    ):
        with caplog.at_level(logging.WARNING, "headrace.groups"):
            await world.publish(10, keys=1)
            await until(lambda: set(world.seen.numbers()) == set(range(10)))
            await until(lambda: len(told(events, by_handler=True)) >= 2)
    assert owned == [True, False]
    first = world.seen.rows[0][4]
    assert [row[2] for row in world.seen.rows if row[4] == first] == [0, 1]
    short, long = told(events, by_handler=True)
    assert 0.2 < short.seconds < 1.0 < long.seconds
    assert (long.subject, long.sequence, long.lease) == (f"{STREAM}.k0", 2, 1.0)
    assert long.handler.endswith("blocks")
    (lost,) = [each for each in events if isinstance(each, LeaseLost)]
    assert (lost.subject, lost.sequence, lost.generation) == (f"{STREAM}.k0", 2, first)
    everything = told(events)  # a busy machine may have held the loop up besides
    (line,) = [each for each in caplog.messages if "stood still" in each]
    if everything[0] is short:  # the first one is logged
        assert "blocks was at message 1 on 'ORDERS.k0'" in line
    stats = membership.stats
    assert (stats.loop_blocked, stats.leases_lost) == (len(everything), 1)
    assert stats.loop_blocked_longest_seconds == max(each.seconds for each in everything)


@pytest.mark.parametrize("reference_server", ["headrace"], indirect=True)
async def test_nothing_begins_on_a_thread_once_the_membership_ends(world: World) -> None:
    await world.create(members=("a",))
    begun, go_on = threading.Event(), threading.Event()

    def handle(message: GroupMessage) -> None:
        begun.set()
        assert go_on.wait(10)
        world.seen.note("first", message)
        message.ack()

    patient = ConsumerConfig(ack_wait=3600, max_ack_pending=100)
    await world.publish(20, keys=1)
    membership = await world.join("a", handle, config=patient).start()
    await asyncio.to_thread(begun.wait, 10)
    leaving = asyncio.create_task(membership.leave())
    await until(lambda: membership._ending)
    go_on.set()
    await leaving
    async with world.join("a", world.seen.handler("second"), config=patient):
        await world.until_seen()  # and not when the time to acknowledge is over, in an hour
    assert [row[0] for row in world.seen.rows] == ["first"] + ["second"] * 19
    world.seen.check_once_and_in_order(20)
    await asyncio.to_thread(until_here, lambda: not _threads_of_members())


def _threads_of_members() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("member ")]
