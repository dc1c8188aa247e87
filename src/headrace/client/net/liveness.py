"""Whether the server is there, asked at once when a call or a heartbeat did not come in time.

A ping is sent. If it is not answered either within ``seconds``, the link is given up, unless there was
another sign of life: bytes that came, or output before the ping that was taken. And unless it was this
process that stood still, stopped or busy: then what came meanwhile is read first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from ...errors import DisconnectedError
from .keepalive import KeepAlive, is_late
from .link import Link
from .outbox import Outbox

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
