"""PING and PONG over the links of one session: is the server there, and what has it read?"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from ...errors import DisconnectedError
from .link import Link

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
