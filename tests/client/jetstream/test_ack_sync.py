"""Confirmed acknowledgements over links that are lost and servers that are restarted."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import peers
from headrace.client import Connection, JetStreamMessage, connect
from headrace.errors import AckUnknownError, DisconnectedError
from waiting import until

START: dict[str, Callable[[Path], peers.ServerProcess]] = {
    "headrace": peers.start_headrace,
    "nats-server": peers.start_nats_server,
}


@pytest.fixture(params=["headrace", pytest.param("nats-server", marks=pytest.mark.peer)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[peers.ServerProcess]:
    started = START[request.param](tmp_path)
    yield started
    started.stop()


def freeze(server: peers.ServerProcess) -> None:
    """From here on it reads nothing more."""
    os.kill(server.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)


async def delivered(connection: Connection) -> JetStreamMessage:
    js = connection.jetstream()
    stream = await js.create_stream(name="S", subjects=["s.*"])
    await js.publish("s.a", b"a")
    consumer = await stream.create_consumer(durable_name="C", ack_wait=1.0)
    message = await consumer.next()
    assert message is not None
    return message


async def again(connection: Connection) -> JetStreamMessage:
    consumer = await connection.jetstream().consumer("S", "C")
    message = await consumer.next(max_wait=5)
    assert message is not None
    return message


async def pending(connection: Connection) -> int:
    return (await (await connection.jetstream().consumer("S", "C")).info()).num_ack_pending


async def test_a_server_that_was_restarted_is_not_asked_again(server: peers.ServerProcess) -> None:
    async with connect(server.url, reconnect_wait=0.02) as connection:
        message = await delivered(connection)
        freeze(server)
        asked = asyncio.create_task(message.ack_sync())
        await asyncio.sleep(0)
        await asyncio.to_thread(server.kill)
        with pytest.raises(DisconnectedError):
            await asked
        await asyncio.to_thread(server.start_again)
        with pytest.raises(AckUnknownError, match="restarted") as caught:
            await message.ack_sync()
        assert caught.value.asked
        assert message.is_of_former_server
        assert not message.is_answered
        come_again = await again(connection)
        assert not come_again.is_of_former_server
        await come_again.ack_sync()
        assert await pending(connection) == 0


async def test_the_server_that_delivered_it_is_asked_again(server: peers.ServerProcess) -> None:
    async with connect(server.url, reconnect_wait=0.02) as connection:
        message = await delivered(connection)
        freeze(server)
        asked = asyncio.create_task(message.ack_sync())
        await asyncio.sleep(0)
        link = connection._session.link
        assert link is not None
        link.abort(ConnectionResetError("cut"))
        with pytest.raises(DisconnectedError):
            await asked
        os.kill(server.process.pid, signal.SIGCONT)
        await message.ack_sync()
        assert await pending(connection) == 0


async def test_the_first_question_may_be_for_the_server_that_follows(
    server: peers.ServerProcess,
) -> None:
    async with connect(server.url, reconnect_wait=0.02) as connection:
        message = await delivered(connection)
        # What a server has told of a consumer when it is asked, it knows after a kill, too.
        assert await pending(connection) == 1
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start_again)
        await until(lambda: connection.is_connected, "it does not come back")
        await message.ack_sync()
        assert await pending(connection) == 0
