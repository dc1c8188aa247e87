"""Whether the server is there, asked at once when a call or a heartbeat did not come in time.

A ping is sent. If it is not answered either within ``seconds``, the link is given up, unless there was
another sign of life: bytes that came, or output before the ping that was taken. And unless it was this
process that stood still, stopped or busy: then what came meanwhile is read first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from ...errors import DisconnectedError
from .link import Link
from .outbox import Outbox

PING_COMMAND = b"PING\r\n"
LATE_SHARE: Final = 0.25  # of an interval, and at least …
LATE_S: Final = 0.5  # who wakes so late has not looked meanwhile


class KeepAlive:
    """The unanswered pings in the order sent, each with its future if something waits for it.

    Args:
        interval: seconds between two pings that only ask whether the server is there.
        max_out: how many of these may be unanswered; at the next one the link is dropped.
        send: sends on the current link, and drops what it is given without one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        interval: float,
        max_out: int,
        send: Callable[[bytes], None],
    ) -> None:
        self._loop = loop
        self._interval = interval
        self._max_out = max_out
        self._send = send
        self._link: Link | None = None
        self._pongs: deque[asyncio.Future[None] | None] = deque()  # None: nobody waits for it
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when the next beat should be

    @property
    def waiting(self) -> int:
        """How many pings have no answer."""
        return len(self._pongs)

    def ping(self) -> asyncio.Future[None]:
        """Done when the server has read everything sent before; without a link, on the next one."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._pongs.append(future)
        self._send(PING_COMMAND)
        return future

    def call_when_read(self, call: Callable[[], object]) -> None:
        """Call once the server has read everything sent before, or the link is gone."""
        if self._link is None:
            future: asyncio.Future[None] = self._loop.create_future()
            future.set_result(None)
        else:
            future = self.ping()
        future.add_done_callback(partial(_call_when_done, call))

    def start(self, link: Link) -> None:
        """There is a link. The owner sends as many pings as are ``waiting``."""
        self._link = link
        self._beat_later()

    def stop(self, reason: Exception) -> None:
        """The link is gone: what waits for a pong fails with ``reason``."""
        self._link = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pongs, self._pongs = self._pongs, deque()
        for future in pongs:
            if future is not None and not future.done():
                future.set_exception(reason)

    def pong(self) -> None:
        """An answer came."""
        if self._pongs and (future := self._pongs.popleft()) is not None and not future.done():
            future.set_result(None)

    def _beat(self) -> None:
        link = self._link
        if link is None:
            return
        if is_late(self._loop.time() - self._due, self._interval):
            self._beat_later()  # this process was stopped or busy: what came meanwhile is read first
            return
        if self._pongs.count(None) >= self._max_out:
            link.abort(
                DisconnectedError(
                    f"{self._max_out} pings went unanswered, one every {self._interval} s"
                )
            )
            return
        self._pongs.append(None)
        self._send(PING_COMMAND)
        self._beat_later()

    def _beat_later(self) -> None:
        self._due = self._loop.time() + self._interval
        self._timer = self._loop.call_later(self._interval, self._beat)


def is_late(seconds: float, interval: float) -> bool:
    """Whether a timer rang so late that this process must have stood still, stopped or busy."""
    return seconds > max(interval * LATE_SHARE, LATE_S)


def _call_when_done(call: Callable[[], object], future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()  # read: a lost link ends the wait as well
    call()


LAST_LOOK_S: Final = 0.05


class Doubt:
    """The question of one session, asked of one link at a time, and once at a time.

    Args:
        seconds: how long the answer may take.
        link: says which link there is.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        keepalive: KeepAlive,
        outbox: Outbox,
        link: Callable[[], Link | None],
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._keepalive = keepalive
        self._outbox = outbox
        self._link = link
        self._timer: asyncio.TimerHandle | None = None
        self._ping_at = 0  # where in all output it stands
        self._received = self._taken = 0  # when it was looked last
        self._due = 0.0

    def begin(self) -> None:
        """A call was not answered, or a consumer missed a heartbeat."""
        link = self._link()
        if link is None or self._timer is not None:
            return
        pong = self._keepalive.ping()
        self._outbox.write_now()  # if it can leave at once, that is no sign of life
        self._ping_at = self._taken_by(link) + self._outbox.unsent_bytes
        pong.add_done_callback(self._answered)
        self._look_later(link)

    def end(self) -> None:
        """The link is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answered(self, pong: asyncio.Future[None]) -> None:
        if not pong.cancelled():
            pong.exception()  # read: the link was lost
        self.end()

    def _taken_by(self, link: Link) -> int:
        """Bytes of output that left this process."""
        return self._outbox.written_bytes - link.transport.get_write_buffer_size()

    def _look_later(self, link: Link) -> None:
        self._received, self._taken = link.received_bytes, self._taken_by(link)
        self._due = self._loop.time() + self._seconds
        self._timer = self._loop.call_later(self._seconds, self._look, link)

    def _look(self, link: Link, *, is_last: bool = False) -> None:
        was_away = is_late(self._loop.time() - self._due, self._seconds)
        speaks = link.received_bytes != self._received
        takes = self._taken < self._ping_at and self._taken_by(link) != self._taken
        if was_away or speaks or takes:
            self._look_later(link)
            return
        if not is_last:  # some loops ring before they read
            self._due = self._loop.time() + LAST_LOOK_S
            self._timer = self._loop.call_later(
                LAST_LOOK_S, partial(self._look, link, is_last=True)
            )
            return
        self._timer = None
        link.abort(
            DisconnectedError(
                f"a call was not answered, and then no ping within {self._seconds} s (option ping_timeout)"
            )
        )
