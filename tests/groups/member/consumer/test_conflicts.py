"""Who leaves deletes the consumer that serves nobody; who comes in between is given nothing by it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.api.consumers import ConsumerInfo
from headrace.client import JetStream
from headrace.client.jetstream.consumer import Consumer
from headrace.errors import ConsumerNotFoundError, HeadraceError
from headrace.groups.member.consumer import conflicts
from headrace.groups.member.consumer.conflicts import delete_unused
from waiting import until


class Watched:
    """The consumer of one that leaves; something may happen after a look at it."""

    def __init__(self, consumer: Consumer, after: dict[int, Callable[[], Awaitable[object]]]):
        self.calls: list[str] = []
        self._consumer = consumer
        self._after = after

    async def info(self) -> ConsumerInfo:
        self.calls.append("info")
        info = await self._consumer.info()
        if (what := self._after.get(self.calls.count("info"))) is not None:
            await what()
        return info

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._consumer, name)


async def made(js: JetStream) -> Consumer:
    await js.create_stream(name="S", subjects=["s"], storage="memory", retention="workqueue")
    await js.publish("s", b"one")
    return await js.create_consumer("S", name="c", durable_name="c", ack_wait=30.0)


async def left(watched: Watched) -> None:
    await delete_unused(watched, asyncio.get_running_loop().time)  # type: ignore[arg-type]


async def is_there(js: JetStream) -> bool:
    return [name async for name in js.consumer_names("S")] == ["c"]


async def test_what_serves_nobody_is_deleted(js: JetStream) -> None:
    watched = Watched(await made(js), {})
    await left(watched)
    assert watched.calls == ["info", "pause", "info", "delete"]
    assert not await is_there(js)


async def test_what_is_pulled_from_is_left_as_it_is(js: JetStream) -> None:
    consumer = await made(js)
    await (await js.stream("S")).purge()
    async with asyncio.TaskGroup() as group:
        pull = group.create_task(consumer.next(max_wait=20))

        async def is_waiting() -> bool:
            return (await consumer.info()).num_waiting == 1

        await until(is_waiting)
        watched = Watched(consumer, {})
        await left(watched)
        assert watched.calls == ["info"]
        await js.publish("s", b"two")
        assert (await pull).payload == b"two"


async def test_who_is_given_something_before_the_pause_keeps_the_consumer(js: JetStream) -> None:
    consumer = await made(js)
    taken: list[Any] = []

    async def come() -> None:
        taken.append(await consumer.next(max_wait=5))

    watched = Watched(consumer, {1: come})
    await left(watched)
    assert watched.calls == ["info", "pause", "info", "resume"]
    await taken[0].ack_sync()  # it is the server's still
    await js.publish("s", b"two")
    assert (await consumer.next(max_wait=5)).payload == b"two"


async def test_who_comes_after_the_last_look_is_given_nothing_by_it(js: JetStream) -> None:
    """And learns that it is gone; what it makes instead gives it the message, for the first time."""
    consumer = await made(js)
    pulls: list[asyncio.Task[Any]] = []

    async def come() -> None:
        pulls.append(asyncio.create_task(consumer.next(max_wait=20)))

        async def is_waiting() -> bool:
            return (await consumer.info()).num_waiting == 1

        await until(is_waiting)

    watched = Watched(consumer, {2: come})
    await left(watched)
    assert watched.calls == ["info", "pause", "info", "delete"]
    with pytest.raises(HeadraceError, match=r"Consumer Deleted"):
        await pulls[0]
    again = await js.create_consumer("S", name="c", durable_name="c", ack_wait=30.0)
    message = await again.next(max_wait=5)
    assert (message.payload, message.metadata.delivered) == (b"one", 1)


async def test_one_that_is_paused_by_another_who_leaves_is_theirs(js: JetStream) -> None:
    consumer = await made(js)
    await consumer.pause(20)
    watched = Watched(consumer, {})
    await left(watched)
    assert watched.calls == ["info"]
    assert await is_there(js)


async def test_who_dies_in_between_leaves_a_pause_that_ends(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflicts, "PAUSE_S", 0.5)
    consumer = await made(js)

    async def die() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await left(Watched(consumer, {2: die}))
    assert (await consumer.next(max_wait=10)).payload == b"one"


async def test_what_is_not_paused_any_more_is_not_deleted(js: JetStream) -> None:
    """The answers took longer than the pause, or somebody has ended it: who came has what is there."""
    consumer = await made(js)

    class Resumed(Watched):
        async def pause(self, until: Any) -> None:
            self.calls.append("pause")
            await consumer.pause(until)
            await consumer.resume()

    watched = Resumed(consumer, {})
    await left(watched)
    assert watched.calls == ["info", "pause", "info"]
    assert await is_there(js)


async def test_an_answer_that_comes_late_in_the_pause_is_no_reason_to_delete(js: JetStream) -> None:
    watched = Watched(await made(js), {})
    times = iter([0.0, conflicts.PAUSE_S / 2])
    await delete_unused(watched, lambda: next(times))  # type: ignore[arg-type]
    assert watched.calls == ["info", "pause", "info"]
    assert await is_there(js)


async def test_one_that_is_gone_is_said_to_be(js: JetStream) -> None:
    consumer = await made(js)
    await js.delete_consumer("S", "c")
    with pytest.raises(ConsumerNotFoundError):
        await left(Watched(consumer, {}))


async def test_a_deletion_is_not_waited_for_beyond_the_pause(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may meet a consumer that serves somebody by then."""
    monkeypatch.setattr(conflicts, "PAUSE_S", 0.5)
    consumer = await made(js)

    async def never() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(consumer, "delete", never)
    async with asyncio.timeout(10):
        await left(Watched(consumer, {}))
    assert (await consumer.next(max_wait=10)).payload == b"one"
