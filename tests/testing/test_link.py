"""A link that is far: what it delays, in which order, and how it ends."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Broker, connect, sync
from headrace.errors import ConfigurationError
from headrace.testing import Link
from late_comers import TURNS, is_hung_up_on


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def pair(listener: socket.socket, link: Link) -> tuple[socket.socket, socket.socket]:
    near = socket.create_connection(("127.0.0.1", int(link.url.rpartition(":")[2])))
    far, _ = listener.accept()
    for each in (near, far):
        each.settimeout(30)
    return near, far


def url_of(listener: socket.socket) -> str:
    return f"nats://127.0.0.1:{listener.getsockname()[1]}"


def test_each_way_takes_its_share_and_no_less(listener: socket.socket) -> None:
    with Link(url_of(listener), 0.2, to_server_share=0.75) as link:
        near, far = pair(listener, link)
        with near, far:
            for one, other, least in ((near, far, 0.15), (far, near, 0.05)):
                began = time.monotonic()
                one.sendall(b"hello")
                assert other.recv(100) == b"hello"
                assert time.monotonic() - began >= least * 0.99


def test_everything_arrives_in_its_order_whatever_the_jitter(listener: socket.socket) -> None:
    with Link(url_of(listener), 0.0, jitter_s=0.02) as link:
        near, far = pair(listener, link)
        sent = b"".join(b"%06d" % number for number in range(5_000))
        with near, far:
            for place in range(0, len(sent), 600):
                near.sendall(sent[place : place + 600])
            near.shutdown(socket.SHUT_WR)
            came = b""
            while data := far.recv(65536):
                came += data
    assert came == sent


def test_a_delay_may_be_changed_while_it_runs(listener: socket.socket) -> None:
    with Link(url_of(listener), 0.0) as link:
        near, far = pair(listener, link)
        with near, far:
            near.sendall(b"fast")
            assert far.recv(100) == b"fast"
            link.round_trip_s = 0.2
            began = time.monotonic()
            near.sendall(b"slow")
            assert far.recv(100) == b"slow"
            assert time.monotonic() - began >= 0.099


def test_a_cut_ends_both_ends_and_accepts_no_others(listener: socket.socket) -> None:
    with Link(url_of(listener), 0.01) as link:
        near, far = pair(listener, link)
        with near, far:
            near.sendall(b"here")
            assert far.recv(100) == b"here"
            link.cut()
            for each in (near, far):
                with pytest.raises(ConnectionResetError):
                    if each.recv(100) == b"":
                        raise ConnectionResetError
        assert link._thread is not None
        link._thread.join(30)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(link.url.rpartition(":")[2])))


@pytest.mark.parametrize("turns", TURNS)
def test_whoever_is_accepted_while_it_ends_is_hung_up_on(
    turns: int, listener: socket.socket
) -> None:
    link = Link(url_of(listener), 0.01)

    async def life() -> bool:
        listening = threading.Event()
        running = asyncio.create_task(link._run(listening))
        while not listening.is_set():
            await asyncio.sleep(0)

        async def end() -> None:
            link.cut()
            await running

        return await is_hung_up_on(int(link.url.rpartition(":")[2]), turns, end)

    with asyncio.Runner(loop_factory=lambda: link._loop) as runner:
        assert runner.run(life())


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = url_of(gone)
    with Link(url, 0.01) as link:
        near = socket.create_connection(("127.0.0.1", int(link.url.rpartition(":")[2])))
        near.settimeout(30)
        with near, pytest.raises(ConnectionResetError):
            if near.recv(100) == b"":
                raise ConnectionResetError


def test_a_program_works_over_it() -> None:
    with (
        sync.Broker() as broker,
        Link(broker.client_url, 0.05) as link,
        sync.connect(link.url) as connection,
    ):
        began = time.monotonic()
        connection.flush()
        assert time.monotonic() - began >= 0.049


async def test_so_it_does_in_a_loop() -> None:
    async with Broker(port=0) as broker:
        with Link(broker.client_url, 0.05) as link:
            async with connect(link.url) as connection:
                await asyncio.wait_for(connection.flush(), 30)


@pytest.mark.parametrize(
    ("server", "numbers", "text"),
    [
        ("nats://127.0.0.1", {}, "accepted: an address with host and port"),
        ("nats://127.0.0.1:4222", {"round_trip_s": -1}, "accepted: seconds from 0 on"),
        ("nats://127.0.0.1:4222", {"to_server_share": 2}, "a share from 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused(server: str, numbers: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Link(server, **{"round_trip_s": 0.04, **numbers})
