"""Whoever has asked goes on where the answer is received, and may do anything there."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker, connect
from headrace.client import Connection, JetStream
from headrace.errors import ConnectionClosedError, NoRespondersError, RequestTimeoutError
from headrace.wire.frames import MSG, Frame


class Receiving:
    """Whether frames of a connection are being handed out."""

    def __init__(self, connection: Connection) -> None:
        link = connection._session.link
        assert link is not None
        self.now = False
        self._hand_out = link.on_frames
        link.on_frames = self._noted

    def _noted(self, frames: list[Frame]) -> None:
        self.now = True
        try:
            self._hand_out(frames)
        finally:
            self.now = False


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    async with Broker(store_dir=tmp_path) as broker, connect(broker.client_url) as made:
        await made.subscribe("echo", callback=lambda message: message.respond(message.payload))
        yield made


@pytest.fixture
async def js(connection: Connection) -> JetStream:
    js = connection.jetstream()
    await js.create_stream(name="S", subjects=["s.*"], storage="memory")
    return js


async def test_it_goes_on_within_the_turn_that_received_the_answer(
    connection: Connection, js: JetStream
) -> None:
    consumer = await js.create_consumer("S", durable_name="c", ack_policy="explicit")
    receiving = Receiving(connection)
    assert (await connection.request("echo", b"1")).payload == b"1"
    assert receiving.now
    assert (await js.publish("s.1", b"2")).seq == 1
    assert receiving.now
    await js.publish("s.1", b"3")
    message = await consumer.next()
    assert (receiving.now, message.payload) == (True, b"2")
    (message,) = await consumer.fetch(1)
    assert (receiving.now, message.payload) == (True, b"3")
    with pytest.raises(NoRespondersError):
        await connection.request("nobody")


async def test_who_closes_the_connection_there_takes_the_others_answers_with_it(
    connection: Connection,
) -> None:
    receiving = Receiving(connection)
    closed: list[bool] = []

    async def close() -> None:
        await connection.request("echo")
        closed.append(receiving.now)
        await connection.close()

    async def ask() -> None:
        await connection.request("nobody.knows", timeout=60.0)

    await connection.subscribe("nobody.*")
    ended = await asyncio.gather(close(), ask(), ask(), return_exceptions=True)
    assert closed == [True]
    assert ended[0] is None
    assert [type(each) for each in ended[1:]] == 2 * [ConnectionClosedError]
    assert connection.stats().requests_in_flight == 0


async def test_who_closes_the_connection_there_leaves_the_others_what_came_with_its_answer(
    connection: Connection,
) -> None:
    await connection.subscribe("nobody.*")

    async def close() -> None:
        await connection.request("nobody.0")
        await connection.close()

    closing = asyncio.create_task(close())
    others = [asyncio.create_task(connection.request(f"nobody.{n}")) for n in range(1, 3)]
    await connection.flush()
    requests, link = connection._session.requests, connection._session.link
    assert link is not None
    assert requests._route is not None
    sid, prefix = requests._route.sid, requests._prefix
    frames = [(MSG, prefix + b"%d" % n, sid, b"", b"", b"answer") for n in (1, 2, 3)]
    asyncio.get_running_loop().call_soon(link.on_frames, frames)
    await closing
    assert [(await each).payload for each in others] == 2 * [b"answer"]


class Held:
    """What a task has at hand while it waits."""


@pytest.mark.parametrize("seconds", [0.05, 60.0])
@pytest.mark.parametrize("kind", ["request", "next"])
async def test_one_that_failed_or_was_cancelled_keeps_nothing_of_its_task(
    connection: Connection, js: JetStream, kind: str, seconds: float
) -> None:
    consumer = await js.create_consumer("S", durable_name="c")
    await connection.subscribe("nobody.*")
    held: list[weakref.ref[Held]] = []

    async def ask(call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        mine = Held()
        held.append(weakref.ref(mine))
        await call()

    calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "request": lambda: connection.request("nobody.knows", timeout=seconds),
        "next": lambda: consumer.next(seconds),
    }
    await connection.flush()
    gc.disable()
    try:
        task = asyncio.create_task(ask(calls[kind]))
        if seconds > 1:
            await asyncio.sleep(0)
            task.cancel()
        with contextlib.suppress(RequestTimeoutError, asyncio.CancelledError):
            await task
        del task
        await connection.flush()
        assert [each() for each in held] == [None]
    finally:
        gc.enable()


async def test_a_request_that_is_cancelled_is_forgotten(connection: Connection) -> None:
    await connection.subscribe("nobody.*")
    asking = asyncio.create_task(connection.request("nobody.knows", timeout=60.0))
    await asyncio.sleep(0)
    assert connection.stats().requests_in_flight == 1
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert connection.stats().requests_in_flight == 0
