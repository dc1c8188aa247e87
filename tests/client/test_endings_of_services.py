"""What becomes of requests to a service when whoever answers them goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import peers
from headrace.client import Connection, Message, connect
from headrace.client.services import Service
from headrace.errors import HeadraceError

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


async def stop(_: Connection, service: Service) -> None:
    await service.stop()


async def leave(_: Connection, service: Service) -> None:
    async with service:
        pass


async def drain(connection: Connection, _: Service) -> None:
    await connection.drain()


async def close(connection: Connection, _: Service) -> None:
    await connection.close()


@pytest.mark.parametrize("end", [stop, leave, drain, close])
async def test_the_request_in_hand_is_answered_and_those_that_wait_unless_the_connection_is_closed(
    reference_server: peers.ServerProcess,
    connection: Connection,
    end: Callable[[Connection, Service], Awaitable[None]],
) -> None:
    begun, released = asyncio.Event(), asyncio.Event()
    wait_s = 0.6 if end is close else 10  # then three are not answered

    async def answer(message: Message) -> bytes:
        begun.set()
        await released.wait()
        return message.payload

    async def ask(number: int) -> bytes:
        try:
            return (await connection.request("ends", b"%d" % number, timeout=wait_s)).payload
        except (HeadraceError, TimeoutError):
            return b""

    async with connect(reference_server.url, close_timeout=2) as theirs:
        service = await theirs.add_service("ends", version="1.0.0")
        await service.add_endpoint("ends", answer)
        seen = await theirs.subscribe("ends")
        await theirs.flush()
        asking = [asyncio.create_task(ask(number)) for number in range(4)]
        await begun.wait()
        for _ in asking:
            await seen.next(timeout=5)
        await theirs.flush()  # so the service has each of them, too
        asyncio.get_running_loop().call_later(0.02, released.set)
        await end(theirs, service)
        answers = await asyncio.gather(*asking)
    expected = [b"0", b"1", b"2", b"3"] if end is not close else [b"0", b"", b"", b""]
    assert answers == expected
