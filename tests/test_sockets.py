"""A host with several addresses: the first that answers is used, and nothing is left of the others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

import headrace
import peers
from headrace.clock import ManualClock
from headrace.jobs.push.guard import Guard
from headrace.jobs.push.sender import CallError, Sender
from headrace.sockets import Target, connect_first, connect_to, stop_listening
from jobs_endpoint import Endpoint, answer
from waiting import until

uvloop = peers.package("uvloop")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the whole of 127.0.0.0/8 is the loopback on Linux only"
)


@contextlib.contextmanager
def swallowing(address: str, port: int) -> Iterator[None]:
    """An address that drops what is sent to it: the queue of its listener is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((address, port))
        yield


def target(address: str, port: int) -> Target:
    return socket.AF_INET, (address, port)


async def resolve(host: str, port: int) -> list[str]:
    return ["127.0.0.2", "127.0.0.3", "127.0.0.1"]


async def test_a_call_goes_to_the_address_that_answers_and_not_to_those_that_swallow() -> None:
    sender = Sender(Guard(["127.0.0.0/8"], resolve=resolve), ManualClock())
    async with Endpoint() as endpoint:
        with swallowing("127.0.0.2", endpoint.port), swallowing("127.0.0.3", endpoint.port):
            url = f"http://shop.example:{endpoint.port}/"
            assert (await sender.post(url, {}, b"x", 60)).status == 200
            assert (await sender.post(url, {}, b"x", 60)).status == 200
        assert (endpoint.connections, len(endpoint.calls)) == (1, 2)
    sender.close()


async def test_an_address_that_refuses_is_followed_by_the_next_at_once() -> None:
    sender = Sender(Guard(["127.0.0.0/8"], resolve=resolve), ManualClock(), idle_max=0)
    async with Endpoint() as endpoint:
        url = f"http://shop.example:{endpoint.port}/"
        assert (await sender.post(url, {}, b"x", 60)).status == 200
    with pytest.raises(CallError, match=r"no connection to shop\.example: Connection refused"):
        await sender.post(url, {}, b"x", 60)
    sender.close()


async def test_a_second_address_takes_the_room_of_connections_kept_alive() -> None:
    guard = Guard(["127.0.0.0/8"], resolve=resolve)
    sender = Sender(guard, ManualClock(), idle_max=2)
    async with Endpoint() as kept, Endpoint() as endpoint:
        kept.respond = lambda call: answer(200)
        for name in ("a", "b"):
            await sender.post(f"http://{name}.example:{kept.port}/", {}, b"x", 60)
        with swallowing("127.0.0.2", endpoint.port), swallowing("127.0.0.3", endpoint.port):
            await sender.post(f"http://shop.example:{endpoint.port}/", {}, b"x", 60)
        await sender.post(f"http://a.example:{kept.port}/", {}, b"x", 60)
        assert kept.connections == 3
    sender.close()


async def test_without_room_a_second_address_waits_for_the_first() -> None:
    asked = asyncio.Event()

    def begin() -> bool:
        asked.set()
        return False

    async with Endpoint() as endpoint:
        with swallowing("127.0.0.2", endpoint.port):
            targets = [target("127.0.0.2", endpoint.port), target("127.0.0.1", endpoint.port)]
            call = asyncio.create_task(connect_first(targets, begin))
            await asked.wait()
            assert endpoint.connections == 0
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        connected = await connect_first(targets, begin)
        connected.close()


async def test_the_families_take_turns_and_all_failures_are_the_last_one(free_port: int) -> None:
    async with Endpoint() as endpoint:
        with swallowing("127.0.0.2", endpoint.port):
            six = (socket.AF_INET6, ("::1", free_port))
            targets = [target("127.0.0.2", endpoint.port)] * 3
            connected = await connect_first([*targets, six, target("127.0.0.1", endpoint.port)])
            connected.close()
            await until(lambda: endpoint.connections == 1)
    with pytest.raises(ConnectionRefusedError):
        await connect_first([target("127.0.0.1", free_port), target("127.0.0.2", free_port)])
    with pytest.raises(OSError, match="no address"):
        await connect_first([])


async def test_a_client_connects_to_the_address_that_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()

    async def getaddrinfo(host: str, port: int, **named: Any) -> list[Any]:
        found = await resolve(host, port)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    async with headrace.Broker() as broker:
        port = int(broker.client_url.rpartition(":")[2])
        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        with swallowing("127.0.0.2", port), swallowing("127.0.0.3", port):
            url = f"nats://shop.example:{port}"
            async with await headrace.connect(url, connect_timeout=60) as client:
                await client.flush()


async def test_where_no_connection_was_made_the_failure_does_not_blame_tls(free_port: int) -> None:
    with (
        swallowing("127.0.0.1", free_port),
        pytest.raises(headrace.ConnectFailedError, match="no handshake within") as failed,
    ):
        await headrace.connect(f"nats://127.0.0.1:{free_port}", connect_timeout=0.1)
    assert "TLS" not in str(failed.value)


async def test_a_name_is_looked_up_and_small_writes_are_not_held_back(free_port: int) -> None:
    async with Endpoint() as endpoint:
        connected = await connect_to("localhost", endpoint.port)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=connected)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        transport.abort()
    with pytest.raises(socket.gaierror):
        await connect_to("nobody.invalid", free_port)


@pytest.mark.parametrize("turns", range(1, 5))
async def test_a_stop_that_is_cancelled_leaves_no_listener_whom_nobody_answers(turns: int) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(asyncio.Protocol, "127.0.0.1", 0) for _ in range(2)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    stopping = loop.create_task(stop_listening(*servers))
    for _ in range(turns):
        await asyncio.sleep(0)
    stopping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await stopping
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            await connect_to("127.0.0.1", port)


@pytest.mark.parametrize("turns", range(7))
@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_whoever_is_accepted_by_a_listener_that_stops_is_known_when_it_has(
    turns: int, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    known: list[asyncio.Transport] = []

    class Known(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            known.append(cast("asyncio.Transport", transport))

    async def come(address: tuple[str, int]) -> socket.socket | None:
        for _ in range(turns):
            await asyncio.sleep(0)
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            return None

    async def stop() -> None:
        server = await asyncio.get_running_loop().create_server(Known, "127.0.0.1", 0)
        coming = asyncio.create_task(come(server.sockets[0].getsockname()))
        await stop_listening(server)
        seen = len(known)
        client = await coming
        for _ in range(8):
            await asyncio.sleep(0)
        assert len(known) == seen
        for transport in known:
            transport.abort()
        if client is not None:
            client.close()
        for _ in range(8):
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(stop())
