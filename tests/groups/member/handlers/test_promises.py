"""What a member's handler is promised: alone with its key, in order, not again while it runs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.api.consumers import ConsumerConfig
from headrace.client import JetStream, connect
from headrace.groups import (
    DeadLetter,
    GroupMessage,
    HandlerFailedError,
    NotOwnedError,
    Retry,
    elastic,
)
from headrace.groups.events import HandlerFailed
from member_world import GROUP, QUICK, STREAM, World
from nats_cluster import Cable
from peers import ServerProcess
from waiting import until

pytestmark = pytest.mark.peer

MANY = ConsumerConfig(ack_wait=1.0, max_ack_pending=100)


async def test_an_owner_cut_off_begins_nothing_more_and_the_next_one_keeps_the_order(
    world: World, reference_server: ServerProcess
) -> None:
    """The link of the pinned instance is cut while its buffer is full and its handler runs."""
    await world.create(members=("a",))
    cable = Cable(reference_server.port)
    began, go_on = asyncio.Event(), asyncio.Event()
    owned: list[bool] = []
    refused: list[Exception] = []

    async def stuck(message: GroupMessage) -> None:
        world.seen.note("first", message)
        owned.append(message.is_owned)
        began.set()
        await go_on.wait()
        owned.append(message.is_owned)
        try:
            await message.ack_sync()
        except NotOwnedError as error:
            refused.append(error)

    async with (
        connect(f"nats://127.0.0.1:{cable.port}") as far,
        world.join("a", stuck, js=far.jetstream(), config=MANY) as first,
    ):
        await world.publish(40)
        await began.wait()
        await until(lambda: _is_full(first, 39))
        async with world.join("a", world.seen.handler("second"), config=MANY), at_end(go_on):
            cable.cut()
            await world.publish(20)
            await world.until_seen(1 + 60)
            assert not first.is_active
            go_on.set()
            await until(lambda: refused)
            cable.mend()
    cable.close()
    assert owned == [True, False]
    rows = world.seen.rows
    assert [row[0] for row in rows[:2]] == ["first", "second"]
    assert Counter(row[0] for row in rows) == {"first": 1, "second": 60}
    del rows[0]
    world.seen.check_once_and_in_order(60)


def _is_full(membership: Any, count: int) -> bool:
    """Whether it holds so many messages that wait."""
    consuming = membership._consumers["a"].consuming
    held = consuming._work.waiting() if consuming and consuming._work else []
    return bool(len(held) + consuming._consumption.buffered >= count)


async def test_a_handler_that_runs_when_the_pin_is_lost_is_told_and_the_next_owner_waits_for_it(
    world: World, js: JetStream
) -> None:
    await world.create(members=("a",))
    patient = ConsumerConfig(ack_wait=3.0, max_ack_pending=100)
    began, go_on = asyncio.Event(), asyncio.Event()
    lost: list[GroupMessage] = []

    async def stuck(message: GroupMessage) -> None:
        lost.append(message)
        began.set()
        await go_on.wait()
        world.seen.note("first", message)
        message.ack()

    async with world.join("a", stuck, config=patient):
        await world.publish(1)
        await began.wait()
        async with (
            world.join("a", world.seen.handler("second"), config=patient) as second,
            at_end(go_on),
        ):
            await _until_standby(js)
            await elastic.step_down(js, STREAM, GROUP, "a")
            await world.publish(5)
            await until(lambda: not lost[0].is_owned)
            with pytest.raises(NotOwnedError, match="not ours any more"):
                await lost[0].ack_sync()
            assert not world.seen.rows
            go_on.set()  # its acknowledgement comes late, and is good
            await world.until_seen()
            assert lost[0].generation < second.generation
    assert [row[0] for row in world.seen.rows] == ["first"] + 5 * ["second"]
    world.seen.check_once_and_in_order(6)


@asynccontextmanager
async def at_end(event: asyncio.Event) -> AsyncIterator[None]:
    """Let handlers go on, whatever happens, for those who wait for them."""
    try:
        yield
    finally:
        event.set()


async def _until_standby(js: JetStream) -> None:
    consumer = await js.consumer(f"{STREAM}-{GROUP}", "a")

    async def two_wait() -> bool:
        return (await consumer.info()).num_waiting >= 2

    await until(two_wait, "the second instance does not stand by")


@pytest.mark.parametrize("reference_server", ["nats-server"], indirect=True)
async def test_what_waits_or_runs_is_not_delivered_again_however_slow_the_handler(
    world: World,
) -> None:
    await world.create(members=("a",))
    failures = 0

    async def slow(message: GroupMessage) -> None:
        nonlocal failures
        late = message.metadata.timestamp_ns + int(1.2e9)
        await until(
            lambda: time.time_ns() > late
        )  # its ack_wait is over, and that of the next ones
        if not failures:
            failures += 1
            raise RuntimeError("not yet")
        world.seen.note("a", message)
        message.ack()

    async with world.join("a", slow, config=MANY, on_failure=Retry((0.3,))):
        await world.publish(3, keys=1)
        await world.until_seen()
    assert world.seen.numbers() == [0, 1, 2]
    assert [str(error) for error in world.errors] == ["not yet"]


async def test_several_handlers_at_once_are_never_two_of_one_key(world: World) -> None:
    await world.create(members=("a",))
    running: Counter[str] = Counter()
    most = 0

    async def handle(message: GroupMessage) -> None:
        nonlocal most
        running[message.subject] += 1
        assert running[message.subject] == 1
        most = max(most, running.total())
        await asyncio.sleep(0.002)
        running[message.subject] -= 1
        world.seen.note("a", message)
        message.ack()

    async with world.join("a", handle, config=MANY, concurrency=4) as membership:
        await world.publish(80, keys=8)
        await world.until_seen()
        assert most == 4
        assert membership.is_active
    world.seen.check_once_and_in_order(80)


@pytest.mark.parametrize("reference_server", ["headrace"], indirect=True)
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_handler_that_fails_ends_the_membership_and_the_next_instance_has_the_message(
    world: World, concurrency: int
) -> None:
    await world.create(members=("a",))

    def bad(message: GroupMessage) -> None:
        raise ZeroDivisionError("oh")

    async with world.join("a", bad, config=MANY, concurrency=concurrency) as membership:
        await world.publish(3, keys=1)
        with pytest.raises(
            HandlerFailedError, match=r"failed 1 time for message 1 on.*oh"
        ) as caught:
            await membership.wait()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    if concurrency > 1:
        return  # as with one
    async with world.join("a", config=MANY):
        await world.until_seen()
    assert world.seen.numbers() == [0, 1, 2]


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_a_failure_that_ends_the_membership_is_told_before_anybody_waits_for_it(
    world: World, kind: str, concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    await world.create(members=("a",))

    def plain(message: GroupMessage) -> None:
        raise ZeroDivisionError("oh")

    async def coroutine(message: GroupMessage) -> None:
        plain(message)

    events = world.js.connection.events()
    handler = plain if kind == "plain" else coroutine
    membership = await world.join("a", handler, config=MANY, concurrency=concurrency).start()
    await world.publish(1)
    async with asyncio.timeout(30):
        failed = await anext(each async for each in events if isinstance(each, HandlerFailed))
    assert (failed.subject, failed.sequence, failed.delivered) == (f"{STREAM}.k0", 1, 1)
    assert failed.key == ("k0",)
    assert isinstance(failed.error, ZeroDivisionError)
    (line,) = [each for each in caplog.messages if "failed" in each]
    assert "message 1 on 'ORDERS.k0' of member 'a'" in line
    assert "key ('k0',), delivery 1; the membership ends" in line
    assert membership.stats.handlers_failed == 1
    with pytest.raises(HandlerFailedError):
        await membership.wait()


async def test_a_message_that_fails_too_often_is_put_elsewhere_with_its_story(
    world: World, js: JetStream
) -> None:
    await world.create(members=("a",))
    dead = await js.create_stream(name="DEAD", subjects=["dead.>"])
    calls: list[int] = []

    async def picky(message: GroupMessage) -> None:
        calls.append(int(message.payload))
        if message.payload == b"1":
            raise ValueError("no ones")
        await message.ack_sync()
        world.seen.note("a", message)

    policy = DeadLetter("dead.orders", after=2, backoff=(0.01,))
    async with world.join("a", picky, config=MANY, on_failure=policy):
        await world.publish(3, keys=1)
        await world.until_seen(2)
    assert calls == [0, 1, 1, 2]
    letter = await dead.get_message(1)
    assert letter.payload == b"1"
    assert letter.headers["Headrace-Subject"] == f"{STREAM}.k0"
    assert letter.headers["Headrace-Sequence"] == "2"
    assert "no ones" in letter.headers["Headrace-Failure"]
    assert GROUP in letter.headers["Headrace-Group"]
    work = await js.stream(f"{STREAM}-{GROUP}")
    assert (await work.info()).state.messages == 0


async def test_a_dead_letter_is_stored_once_whichever_members_put_it_away(
    world: World, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes it at first; then it is stored, its message is not acknowledged, and another member's."""
    await world.create(members=("a", "b"))
    await elastic.set_mappings(js, STREAM, GROUP, world.mapped("a"))
    calls: Counter[str] = Counter()

    def failing(member: str) -> Callable[[GroupMessage], Awaitable[None]]:
        async def fails(message: GroupMessage) -> None:
            calls[member] += 1
            raise ValueError(member)

        return fails

    policy = DeadLetter("dead.orders", after=1)
    with monkeypatch.context() as lost:
        lost.setattr(GroupMessage, "ack", lambda message: None)
        async with world.join("a", failing("a"), config=QUICK, on_failure=policy):
            await world.publish(1)
            await until(lambda: world.errors, "no letter was refused")
            dead = await js.create_stream(name="DEAD", subjects=["dead.>"])

            async def is_stored() -> bool:
                return (await dead.info()).state.messages == 1

            await until(is_stored, "the letter was not stored")
    await elastic.set_mappings(js, STREAM, GROUP, world.mapped("b"))
    work = await js.stream(f"{STREAM}-{GROUP}")
    async with world.join("b", failing("b"), config=QUICK, on_failure=policy):

        async def is_empty() -> bool:
            return (await work.info()).state.messages == 0

        await until(is_empty, "the message was not acknowledged")
    assert calls["a"] and calls["b"]
    assert (await dead.info()).state.messages == 1


async def test_messages_can_be_iterated_instead(world: World) -> None:
    await world.create(members=("a",))
    await world.publish(20)
    async with world.join("a") as handled:
        with pytest.raises(Exception, match="there is a handler"):
            await anext(handled)
        await world.until_seen(20)
    await world.publish(20)
    membership = world.iterate("a", config=MANY)
    async with membership:
        async for message in membership:
            world.seen.note("a", message)
            message.ack()
            if len(world.seen.rows) == 40:
                break
    world.seen.check_once_and_in_order(40)


async def test_what_an_iteration_did_not_take_goes_to_the_next_instance_at_once(
    world: World,
) -> None:
    await world.create(members=("a",))
    await world.publish(9, keys=1)
    config = ConsumerConfig(ack_wait=30.0, max_ack_pending=100)
    async with world.iterate("a", config=config) as membership:
        async for message in membership:
            world.seen.note("first", message)
            await message.ack_sync()
            if len(world.seen.rows) == 2:
                await asyncio.sleep(0)  # the next one is offered
                break
    async with world.join("a", world.seen.handler("second"), config=config):
        await world.until_seen()
    assert [row[0] for row in world.seen.rows] == 2 * ["first"] + 7 * ["second"]
    world.seen.check_once_and_in_order(9)


async def test_an_iteration_ends_with_the_membership(world: World, js: JetStream) -> None:
    await world.create(members=("a",))
    await world.publish(1)
    async with world.iterate("a") as membership:
        taken = []
        async for message in membership:
            taken.append(message.subject)
            await message.ack_sync()
            await elastic.delete(js, STREAM, GROUP)
        assert taken == [f"{STREAM}.k0"]


async def test_a_body_that_is_cancelled_leaves_in_order(world: World) -> None:
    """Who comes at that moment may pull from a consumer that is deleted before nats-server looks at it."""
    await world.create(members=("a",))
    done = asyncio.Event()
    long = ConsumerConfig(ack_wait=300.0, max_ack_pending=1)

    async def body() -> None:
        async with world.join("a", config=long, on_active=lambda generation: done.set()):
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await world.publish(4)
    await done.wait()
    await world.until_seen()
    async with world.join("a", config=long) as standby:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await world.publish(4)
        await world.until_seen()  # much sooner than the pin runs out
        assert standby.is_active
    world.seen.check_once_and_in_order(8)


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_who_does_not_wait_for_a_handler_cancels_it(
    world: World, no_leaks: None, concurrency: int
) -> None:
    await world.create(members=("a",))
    began = asyncio.Event()
    ended: list[str] = []

    async def endless(message: GroupMessage) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    membership = await world.join("a", endless, concurrency=concurrency).start()
    await world.publish(1)
    await began.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await membership.leave()
    assert ended == ["cancelled"]
    await membership.wait()


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_a_handler_may_leave_and_callbacks_may_fail(world: World, concurrency: int) -> None:
    await world.create(members=("a",))

    async def last(message: GroupMessage) -> None:
        world.seen.note("a", message)
        message.ack()
        await membership.leave()

    def bad(*arguments: object) -> None:
        raise RuntimeError("callback")

    async with world.join(
        "a", last, on_active=bad, on_standby=bad, concurrency=concurrency
    ) as membership:
        await world.publish(3, keys=1)
        async with asyncio.timeout(5):
            await membership.wait()
    assert world.seen.numbers() == [0]
    assert [str(error) for error in world.errors] == ["callback"] * 2
