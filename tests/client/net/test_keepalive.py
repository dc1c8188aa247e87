"""Pings over links that come and go: who is answered, who is told, and when a link is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.net.liveness import PING_COMMAND, KeepAlive
from headrace.errors import DisconnectedError

LOST = DisconnectedError("lost")


class Line:
    """A link, what is sent on it, and a clock that goes by hand."""

    def __init__(self, max_out: int = 2) -> None:
        self.sent = 0
        self.now = 0.0
        self.aborted: Exception | None = None
        self.due: list[Callable[[], None]] = []
        self.keepalive = KeepAlive(self, 10.0, max_out, self._send)  # type: ignore[arg-type]

    def _send(self, data: bytes) -> None:
        assert data == PING_COMMAND
        self.sent += 1

    def up(self) -> None:
        self.keepalive.start(self)  # type: ignore[arg-type]

    def beat(self, late: float = 0.0) -> None:
        self.now += 10.0 + late
        self.due.pop(0)()

    # The loop's side, and the link's

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        assert seconds == 10.0
        self.due.append(call)
        return asyncio.get_running_loop().call_later(3600, lambda: None)

    def abort(self, reason: Exception) -> None:
        self.aborted = reason


async def test_answers_go_to_those_who_asked_in_their_order() -> None:
    line = Line()
    line.up()
    first = line.keepalive.ping()
    line.beat()
    second = line.keepalive.ping()
    assert (line.sent, line.keepalive.waiting) == (3, 3)
    line.keepalive.pong()
    line.keepalive.pong()
    assert (first.done(), second.done()) == (True, False)
    line.keepalive.pong()
    assert second.done()
    line.keepalive.pong()  # one that nobody asked for
    line.keepalive.stop(LOST)


async def test_a_server_that_answers_no_ping_is_given_up_and_one_that_does_is_not() -> None:
    line = Line(max_out=2)
    line.up()
    for _ in range(10):
        line.beat()
        line.keepalive.pong()
    assert line.aborted is None
    line.beat()
    line.beat()
    assert line.aborted is None
    line.beat()
    assert isinstance(line.aborted, DisconnectedError)
    assert not line.due
    line.keepalive.stop(LOST)


async def test_whoever_waits_on_a_lost_link_is_told_and_later_ones_wait_for_the_next() -> None:
    line = Line()
    line.up()
    lost = line.keepalive.ping()
    line.keepalive.stop(LOST)
    with pytest.raises(DisconnectedError, match="lost"):
        await lost
    line.beat()  # too late: there is no link to ask on
    later = line.keepalive.ping()
    assert line.keepalive.waiting == 1
    line.up()
    line.keepalive.pong()
    await later
    line.keepalive.stop(LOST)


@pytest.mark.parametrize("end", ["answered", "lost", "no link"])
async def test_a_call_is_made_when_the_server_has_read_or_there_is_no_server(end: str) -> None:
    line = Line()
    called = asyncio.Event()
    if end != "no link":
        line.up()
    line.keepalive.call_when_read(called.set)
    assert not called.is_set()
    if end == "answered":
        line.keepalive.pong()
    line.keepalive.stop(LOST)
    async with asyncio.timeout(5):
        await called.wait()


async def test_who_stood_still_himself_gives_no_server_up_for_it() -> None:
    line = Line(max_out=1)
    line.up()
    line.beat()
    line.beat(late=600.0)  # stopped for ten minutes; the answer has not been read yet
    assert line.aborted is None
    line.keepalive.pong()
    line.beat()
    assert line.aborted is None
    line.beat()
    assert line.aborted is not None
    line.keepalive.stop(LOST)
