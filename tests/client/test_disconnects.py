"""A connection lost in every way, over and over, while messages are published and consumed.

``HEADRACE_DISCONNECTS=1000`` is the full size (``make faults``); the suite plays a part of it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import chaos
import peers
from headrace.client import Connection, Consumer, PublishFailure, Stream, connect
from headrace.errors import DisconnectedError, HeadraceError
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

DISCONNECTS = int(os.environ.get("HEADRACE_DISCONNECTS", "20"))
KINDS = ("reset", "black hole", "restart")
WEIGHTS = (85, 10, 5)
KEEP_EVERY = 97  # every so manieth message is never acknowledged
OPTIONS: dict[str, Any] = {
    "reconnect_wait": 0.005,
    "reconnect_wait_max": 0.05,
    "ping_interval": 0.05,
    "connect_timeout": 1.0,
    "request_timeout": 2.0,
}


class Restartable:
    """A server process on one port and one store, which can be replaced by its successor."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind = kind
        self._directory = directory
        self.port = peers.free_port()
        self.server = self._start()

    def _start(self) -> peers.ServerProcess:
        start = peers.start_headrace if self._kind == "headrace" else peers.start_nats_server
        return start(self._directory, port=self.port)

    def restart(self) -> None:
        """Ours is killed: what it acknowledged is on disk. nats-server does not promise that."""
        if self._kind == "headrace":
            self.server.kill()
        else:
            self.server.stop()
        self.server = self._start()


@pytest.fixture(params=["headrace", "nats-server"])
async def restartable(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Restartable]:
    server = Restartable(request.param, tmp_path)
    yield server
    server.server.stop()


class Load:
    """Publishes in windows and one by one, and consumes, over one connection that is being hurt."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.over = False
        self.windowed = 0
        self.failures: list[PublishFailure] = []
        self.awaited = Counter[str]()
        self.acknowledged: set[bytes] = set()
        self.seen: set[bytes] = set()
        self.withheld: set[bytes] = set()

    async def publish_in_windows(self) -> None:
        js = self.connection.jetstream()
        async with js.publisher(
            window=200, retries=100_000, deduplicate=True, on_failure=self.failures.append
        ) as publisher:
            while not self.over:
                await publisher.send("load", b"w%d" % publisher.sent)
                if publisher.sent % 20 == 0:
                    await asyncio.sleep(0.001)
            await publisher.flush()
            assert publisher.sent == publisher.acked + publisher.failed
            self.windowed = publisher.sent

    async def publish_one_by_one(self) -> None:
        js = self.connection.jetstream()
        number = 0
        while not self.over:
            payload = b"a%d" % number
            number += 1
            try:
                await js.publish("load", payload, timeout=2)
            except HeadraceError as error:
                self.awaited[type(error).__name__] += 1
            else:
                self.acknowledged.add(payload)
                self.awaited["acked"] += 1
        assert self.awaited.total() == number

    async def consume(self, consumer: Consumer) -> None:
        async with consumer.consume(
            max_messages=500, expires=5, on_error=lambda error: None
        ) as messages:
            async for message in messages:
                if message.metadata.stream_seq % KEEP_EVERY == 0:
                    self.withheld.add(message.payload)
                    continue
                message.ack()
                self.seen.add(message.payload)


async def hurt(
    proxy: Any, server: Restartable, connection: Connection, source: random.Random
) -> Counter[str]:
    """Cut the connection DISCONNECTS times, each time once it is back and has done some work."""
    done = Counter[str]()

    def is_back(reconnects: int) -> bool:
        return connection.reconnects > reconnects

    for _ in range(DISCONNECTS):
        await asyncio.sleep(source.uniform(0, 0.02))
        reconnects = connection.reconnects
        kind = source.choices(KINDS, WEIGHTS)[0]
        done[kind] += 1
        if kind == "reset":
            proxy.reset()
        elif kind == "black hole":
            proxy.swallow()
        else:
            await asyncio.to_thread(server.restart)
        await until(partial(is_back, reconnects), within=60)
    return done


@pytest.mark.timeout(60 + 4 * DISCONNECTS)
async def test_nothing_is_lost_and_nothing_is_left(restartable: Restartable) -> None:
    source = random.Random(7)
    async with chaos.ChaosProxy("127.0.0.1", restartable.port) as proxy:
        async with connect(proxy.url, **OPTIONS) as connection:
            js = connection.jetstream()
            stream = await js.create_stream(name="LOAD", subjects=["load"], storage="file")
            consumer = await stream.create_consumer(
                durable_name="c", ack_wait=2, max_ack_pending=-1
            )
            load = Load(connection)
            before = _objects(connection)
            consuming = asyncio.create_task(load.consume(consumer))
            publishing = [
                asyncio.create_task(load.publish_in_windows()),
                asyncio.create_task(load.publish_one_by_one()),
            ]
            done = await hurt(proxy, restartable, connection, source)
            load.over = True
            await asyncio.wait_for(asyncio.gather(*publishing), 60)
            # What judges is not cut off, as the other is by its short pings when the machine stalls.
            async with connect(f"nats://127.0.0.1:{restartable.port}") as calm:
                stream = await calm.jetstream().stream("LOAD")
                await _settled(stream, load)
                consuming.cancel()
                await asyncio.wait([consuming])
                await until(partial(_flushed, connection), "not connected for a flush", within=60)
                await _judge(stream, load)
            # What was lost last is given up by and by where the machine is busy; what leaks stays.
            with _what_waits_is_told():
                await until(
                    lambda: _objects(connection)["waiting"] <= before["waiting"] + 5, within=60
                )
            left = _objects(connection)
        print(f"\n{dict(done)}, windowed {load.windowed}, awaited {dict(load.awaited)}")
    await asyncio.get_running_loop().shutdown_default_executor()
    assert left["links"] == before["links"]
    assert left["frames"] <= before["frames"] + 1
    assert left["routes"] <= before["routes"] + 2  # requests, and what a reader may still drain
    assert {name: left[name] for name in ("observers", "subscriptions", "requests", "unsent")} == {
        "observers": 0, "subscriptions": 0, "requests": 0, "unsent": 0,
    }  # fmt: skip


async def _flushed(connection: Connection) -> bool:
    try:
        await connection.flush()
    except DisconnectedError:
        return False
    return True


async def _settled(stream: Stream, load: Load) -> None:
    """Wait until everything but the withheld messages has been acknowledged."""

    async def is_so() -> bool:
        info = await (await stream.consumer("c")).info()
        withheld = _withheld(info.delivered.stream_seq)
        return info.num_pending == 0 and info.num_ack_pending == withheld

    await until(is_so, "not all was delivered and acknowledged", within=60)


def _withheld(last_seq: int) -> int:
    return last_seq // KEEP_EVERY


async def _judge(stream: Stream, load: Load) -> None:
    state = (await stream.info()).state
    assert load.failures == []
    stored = load.seen | load.withheld
    assert {b"w%d" % number for number in range(load.windowed)} <= stored
    assert load.acknowledged <= stored
    # Only awaited publishes may be stored twice or without their ack: those are sent once, without id.
    assert load.windowed + load.awaited["acked"] <= state.messages
    assert state.messages <= load.windowed + load.awaited.total()
    info = await (await stream.consumer("c")).info()
    assert info.num_ack_pending == _withheld(state.last_seq), (
        "something was acked that we did not ack"
    )


def _waiting() -> list[asyncio.Future[Any]]:
    """What nobody has answered yet in this loop: other tests' threads have their own."""
    loop = asyncio.get_running_loop()
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, asyncio.Future) and not each.done() and each.get_loop() is loop
    ]


@contextmanager
def _what_waits_is_told() -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        error.add_note("\n".join(["waiting:", *map(repr, _waiting())]))
        raise


def _objects(connection: Connection) -> dict[str, int]:
    """What a leak would add to, disconnect by disconnect."""
    gc.collect()
    session = connection._session
    kinds = Counter(type(each).__name__ for each in gc.get_objects())
    return {
        "links": kinds["Link"],
        "waiting": len(_waiting()),
        "frames": kinds["Fetch"] + kinds["Publisher"] + kinds["Consumption"],
        "routes": len(session.routes.by_sid),
        "observers": len(session.observers),
        "subscriptions": len(session.subscriptions),
        "requests": len(session.requests),
        "unsent": session.outbox.unsent_bytes,
    }
