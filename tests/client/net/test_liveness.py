"""A server that stands still is noticed soon; one that is slow, or a client that stood still, is not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import chaos
import peers
from headrace.api.consumers import ConsumerConfig
from headrace.client import Connection, connect
from headrace.client.events import Disconnected, Event, Reconnected
from headrace.client.net.liveness import LAST_LOOK_S, Doubt
from headrace.errors import DisconnectedError, TimeoutUnknownError
from listening import Listening
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

OPTIONS: dict[str, Any] = {
    "ping_timeout": 0.1,
    "reconnect_wait": 0.005,
    "reconnect_wait_max": 0.01,
    "connect_timeout": 5.0,
}
SOON_S = 0.05


@pytest.fixture
async def proxy(reference_server: peers.ServerProcess) -> AsyncIterator[chaos.ChaosProxy]:
    server = reference_server
    async with chaos.ChaosProxy(server.host, server.port, server.scheme) as proxy:
        yield proxy


@pytest.mark.parametrize("call", ["publish", "request", "batch", "windowed", "fast", "flush"])
async def test_a_server_that_stands_still_is_given_up_after_a_call_and_a_ping(
    call: str, proxy: chaos.ChaosProxy, connection: Connection
) -> None:
    steady = connection.jetstream()
    await steady.create_stream(
        name="STILL", subjects=["still"], storage="memory", allow_batched=True
    )
    events: list[Event] = []
    async with connect(proxy.url, on_event=events.append, **OPTIONS) as hurt:
        js = hurt.jetstream(timeout=SOON_S)

        async def in_window(fast: bool) -> None:
            async with js.publisher(
                fast=fast, ack_timeout=SOON_S, retries=0, on_failure=lambda failure: None
            ) as publisher:
                await publisher.send("still", b"1")

        async def batch() -> None:
            async with js.batch() as batch:
                batch.add("still", b"1")

        calls: dict[str, Any] = {
            "publish": lambda: js.publish("still"),
            "request": lambda: hurt.request("still", timeout=SOON_S),
            "batch": batch,
            "windowed": lambda: in_window(False),
            "fast": lambda: in_window(True),
            "flush": lambda: hurt.flush(SOON_S),
        }
        proxy.freeze()
        assert hurt.is_connected
        calling = asyncio.ensure_future(calls[call]())
        await until(lambda: not hurt.is_connected)
        await asyncio.wait([calling])
        assert call in ("windowed", "fast") or isinstance(calling.exception(), TimeoutError)
        (lost,) = [event for event in events if isinstance(event, Disconnected)]
        assert isinstance(lost.reason, DisconnectedError)
        assert "no ping within 0.1 s (option ping_timeout)" in str(lost.reason)
        proxy.is_frozen = False
        proxy.reset()
        await until(lambda: any(isinstance(event, Reconnected) for event in events))
        await hurt.flush()
    await steady.delete_stream("STILL")


@pytest.mark.parametrize(("reader", "beat"), [("fetch", 0.1), ("consume", 0.5), ("listen", 0.1)])
async def test_a_consumer_that_misses_a_heartbeat_has_the_server_asked(
    reader: str, beat: float, proxy: chaos.ChaosProxy, connection: Connection
) -> None:
    stream = await connection.jetstream().create_stream(
        name="BEATS", subjects=["beats"], storage="memory"
    )
    config = ConsumerConfig(durable_name="c")
    if reader == "listen":
        config = ConsumerConfig(durable_name="c", deliver_subject="beats.sent", idle_heartbeat=beat)
    await stream.create_consumer(config)
    events: list[Event] = []
    async with connect(proxy.url, on_event=events.append, **OPTIONS) as hurt:
        consumer = await hurt.jetstream().consumer("BEATS", "c")

        async def read() -> None:
            if reader == "fetch":
                await consumer.fetch(1, max_wait=10, heartbeat=beat)
            elif reader == "consume":
                async with consumer.consume(expires=10, heartbeat=beat) as messages:
                    async for message in messages:
                        raise AssertionError(message)
            else:
                async with await consumer.listen() as deliveries:
                    await deliveries.next(10)

        reading = asyncio.ensure_future(read())
        if reader == "listen":
            await until(lambda: hurt.stats().subscriptions >= 1)
        else:
            await until(lambda: hurt.stats().pulls == 1)
        await hurt.flush()
        proxy.freeze()
        # Its own pings are two minutes apart: it is the heartbeats that are missed.
        await until(lambda: not hurt.is_connected)
        (lost,) = [event for event in events if isinstance(event, Disconnected)]
        assert "no ping within 0.1 s (option ping_timeout)" in str(lost.reason)
        reading.cancel()
        await asyncio.wait([reading])
        proxy.is_frozen = False
        proxy.reset()
        await until(lambda: any(isinstance(event, Reconnected) for event in events))
    await stream.delete()


async def test_a_listener_that_is_silent_does_not_cost_the_connection(
    connection: Connection, reference_server: peers.ServerProcess
) -> None:
    silent = await connection.subscribe("silent")
    await connection.flush()
    async with connect(reference_server.url, **OPTIONS) as asking:
        for _ in range(3):
            with pytest.raises(TimeoutUnknownError):
                await asking.request("silent", timeout=SOON_S)
        await asking.flush()
        assert (asking.reconnects, asking.is_connected) == (0, True)
        assert asking._session.doubt._timer is None
    await silent.unsubscribe()


async def test_a_server_that_speaks_of_something_else_is_not_given_up() -> None:
    slow_for_s = 0.6

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":100000000,"headers":true}\r\n')
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        for _ in range(round(slow_for_s / 0.02) + 1):
            writer.write(b"MSG x 99 0\r\n\r\n")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await reader.read(1000)
        while await reader.read(1000):
            pass

    async with (
        Listening(slow) as server,
        connect(server.url, reconnect=False, **OPTIONS) as connection,
    ):
        began = time.monotonic()
        with pytest.raises(TimeoutUnknownError):
            await connection.request("x", timeout=0.01)
        await until(lambda: connection.is_closed)
        assert time.monotonic() - began >= slow_for_s


CLIENT = """
import asyncio, sys
import headrace

async def main():
    async with headrace.connect(sys.argv[1], ping_interval=0.5, ping_timeout=0.5) as connection:
        echo = await connection.subscribe("mute")
        await connection.flush()
        asking = asyncio.ensure_future(connection.request("mute", timeout=0.5))
        print("asks", flush=True)
        try:
            await asking
        except headrace.RequestTimeoutError:
            pass
        await asyncio.sleep(0.2)
        await connection.flush()
        print("reconnects", connection.reconnects, flush=True)

asyncio.run(main())
"""


async def test_a_client_that_stood_still_itself_keeps_its_connection(
    reference_server: peers.ServerProcess,
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, reference_server.url], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asks\n"
        # It stands still for longer than all that it waits for.
        still = f"kill -STOP {process.pid}; sleep 1.2; kill -CONT {process.pid}"
        subprocess.run(["sh", "-c", still], check=True)
        assert process.stdout.readline() == "reconnects 0\n"
    assert process.returncode == 0


async def test_a_server_process_that_is_stopped_is_noticed_and_found_again(
    reference_server: peers.ServerProcess,
) -> None:
    process = reference_server.process
    options = {**OPTIONS, "connect_timeout": 2.0}  # a process on a busy machine takes its time
    async with connect(reference_server.url, **options) as connection:
        js = connection.jetstream(timeout=SOON_S)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        try:
            with pytest.raises(TimeoutUnknownError):
                await js.publish("any")
            await until(lambda: not connection.is_connected)
        finally:
            process.send_signal(signal.SIGCONT)
        await until(lambda: connection.is_connected)
        await connection.flush()


class Slowly:
    """A loop, a link and its output, of which a server takes a little at a time."""

    def __init__(self, *, is_quick: bool = False) -> None:
        self.is_quick = is_quick
        self.now = 0.0
        self.received_bytes = self.written_bytes = 0
        self.unsent_bytes = 1000
        self.pings: list[asyncio.Future[None]] = []
        self.due: tuple[float, Any] = (0.0, None)
        self.given_up = False
        self.transport = self
        itself: Any = self
        self.doubt = Doubt(itself, 4.0, itself, itself, lambda: itself)

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Any, *args: Any) -> Any:
        self.due = (self.now + seconds, partial(call, *args))
        return self

    def cancel(self) -> None:
        self.due = (0.0, None)

    def ping(self) -> asyncio.Future[None]:
        self.pings.append(asyncio.get_running_loop().create_future())
        return self.pings[-1]

    def write_now(self) -> None:
        if self.is_quick:
            self.written_bytes, self.unsent_bytes = self.unsent_bytes, 0

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self, reason: Exception) -> None:
        assert isinstance(reason, DisconnectedError)
        self.given_up = True

    def ring(self, *, late: float = 0.0) -> None:
        self.now = self.due[0] + late
        self.due[1]()


async def test_a_server_that_takes_what_stands_before_the_ping_is_not_given_up() -> None:
    slowly = Slowly()
    slowly.doubt.begin()
    slowly.doubt.begin()
    assert len(slowly.pings) == 1  # it is asked once at a time
    for taken in range(100, 1001, 100):
        slowly.written_bytes, slowly.unsent_bytes = taken, 1000 - taken
        slowly.ring()
    slowly.written_bytes = 2000  # what is sent after it is no sign of life: a socket holds much
    slowly.ring()
    assert not slowly.given_up
    slowly.ring()
    assert slowly.given_up


async def test_a_ping_that_leaves_at_once_is_no_sign_of_life() -> None:
    silent = Slowly(is_quick=True)
    silent.doubt.begin()
    silent.ring()
    silent.ring()  # the last look
    assert silent.given_up
    assert silent.now == 4.0 + LAST_LOOK_S


async def test_a_client_that_was_busy_looks_again_before_it_gives_a_server_up() -> None:
    slowly = Slowly()
    slowly.doubt.begin()
    for _ in range(3):
        slowly.ring(late=60)
    slowly.ring()
    assert not slowly.given_up
    slowly.ring(late=60)  # at the last look
    assert not slowly.given_up
    slowly.pings[0].set_result(None)
    await asyncio.sleep(0)
    assert slowly.due[1] is None
