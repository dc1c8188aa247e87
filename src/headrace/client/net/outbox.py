"""Everything on its way to the server: collected, and written once per turn of the event loop.

Items are whole commands as bytes, one or several joined. The outbox outlives a lost connection: what was
published but not yet handed to the socket waits for the next one, up to a limit in bytes.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

from ...errors import BufferFullError, ConnectionClosedError
from ...wire.inprocess import Chunk

# A longer turn is written in pieces, so that the server works on the first while the rest is made:
# little at first, for an idle server, then twice as much each time, to save system calls.
WRITE_AT_BYTES: Final = 4 * 1024
WRITE_AT_BYTES_MAX: Final = 32 * 1024
HARD_LIMIT_FACTOR: Final = 4


class Outbox:
    """The output of one connection.

    Args:
        limit: unsent bytes above which ``wait_for_room`` waits; at four times as much ``put`` raises.
        disconnected_limit: bytes kept while there is no transport; more raise BufferFullError.
    """

    carries_frames: ClassVar[bool] = False
    """Whether messages go over as frames that were never bytes."""

    __slots__ = (
        "_bytes", "_closed", "_disconnected_limit", "_flowing", "_items", "_keep", "_limit", "_loop",
        "_scheduled", "_transport", "_waiters", "_write_at", "written_bytes", "written_publishes",
    )  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, limit: int, disconnected_limit: int
    ) -> None:
        self._loop = loop
        self._limit = limit
        self._disconnected_limit = disconnected_limit
        self._items: list[Chunk] = []
        self._keep: list[Chunk] = []  # those of the items that survive a lost connection
        self._bytes = 0
        self._transport: asyncio.WriteTransport | None = None
        self._flowing = False  # there is a transport and it takes more
        self._scheduled = False
        self._write_at = WRITE_AT_BYTES
        self._closed: Exception | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.written_bytes = 0  # handed to a transport
        self.written_publishes = 0  # how many of `put` were

    @property
    def unsent_bytes(self) -> int:
        """What waits here and in the transport."""
        transport = self._transport
        return self._bytes + (transport.get_write_buffer_size() if transport else 0)

    @property
    def over_limit(self) -> bool:
        """Whether more than the limit waits: a polite publisher waits for room."""
        return self._bytes > self._limit

    def put(self, data: Chunk) -> None:
        """Queue whole commands.

        Raises:
            BufferFullError: the limit for this state is reached; nothing was queued.
            ConnectionClosedError: the connection is closed.
        """
        self._items.append(data)
        self._keep.append(data)
        self._bytes += len(data)
        if self._flowing:
            if self._bytes >= self._write_at:
                self._write_early()
            elif not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._write_scheduled)
        else:
            self._check_room(len(data))

    def put_once(self, data: Chunk) -> None:
        """As ``put``, for what belongs to this link only: dropped with it, and never refused, so the
        caller must bound it."""
        self._items.append(data)
        self._bytes += len(data)
        if self._flowing:
            if self._bytes >= self._write_at:
                self._write_early()
            elif not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._write_scheduled)

    def put_now(self, data: Chunk) -> None:
        """As ``put_once``, and written with all that waits, without a turn of the loop for it."""
        self._items.append(data)
        self._bytes += len(data)
        if self._flowing:
            self._write()

    def _check_room(self, size: int) -> None:
        """Take the last item back if it should not have been queued."""
        if self._closed is not None:
            error: Exception = ConnectionClosedError(str(self._closed))
        elif self._transport is None and self._bytes > self._disconnected_limit:
            error = BufferFullError(
                f"disconnected, and {self._bytes - size} bytes already wait to be sent; "
                f"option reconnect_buffer_bytes allows {self._disconnected_limit}"
            )
        elif self._bytes > self._limit * HARD_LIMIT_FACTOR:
            error = BufferFullError(
                f"{self._bytes - size} bytes already wait to be sent and the server takes no more; "
                f"at most {HARD_LIMIT_FACTOR} times option outbound_bytes ({self._limit}) may wait"
            )
        else:
            return
        self._items.pop()
        self._keep.pop()
        self._bytes -= size
        raise error

    async def wait_for_room(self) -> None:
        """Wait until no more than the limit is unsent. Returns at once if that is so."""
        while self.over_limit:
            if self._closed is not None:
                raise ConnectionClosedError(str(self._closed))
            if self._transport is None:
                return  # disconnected: the other limit holds, and it raises
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    @staticmethod
    def answers(replies: list[bytes], body: bytes) -> Chunk:
        """What sends ``body`` to each of these reply subjects, made in one go."""
        end = b" %d\r\n%b\r\n" % (len(body), body)
        return b"PUB " + (end + b"PUB ").join(replies) + end

    # The connection's side

    def attach(self, transport: asyncio.WriteTransport, first: bytes) -> None:
        """A connection stands: send ``first``, then what waited."""
        self._transport = transport
        self._flowing = True
        if first:
            self._items.insert(0, first)
            self._bytes += len(first)
        self._write()

    def detach(self) -> None:
        """The connection is lost. What ``put`` queued and was not handed to it is kept for the next."""
        self._transport = None
        self._flowing = False
        self._items = self._keep.copy()
        self._bytes = sum(map(len, self._items))
        self._release()

    def close(self, reason: Exception) -> None:
        """Nothing more is taken; what was not sent is dropped."""
        self._closed = reason
        self._transport = None
        self._flowing = False
        self._items.clear()
        self._keep.clear()
        self._bytes = 0
        self._release()

    def pause(self) -> None:
        """The transport has enough for now."""
        self._flowing = False

    def resume(self) -> None:
        """The transport takes more again."""
        if self._transport is not None:
            self._flowing = True
            self._write()

    def write_now(self) -> None:
        """Hand everything to the transport without waiting for the turn's end."""
        if self._flowing:
            self._write()

    def hold(self) -> bool:
        """Ask for no turn of the loop until ``release``, which takes what this returns: it comes at once."""
        is_due, self._scheduled = self._scheduled, True
        return is_due

    def release(self, is_due: bool) -> None:
        """Write what was put since ``hold``."""
        self._scheduled = is_due
        self._write_at = WRITE_AT_BYTES
        if self._flowing:
            self._write()

    def _write_early(self) -> None:
        """The turn is not over, and there is a piece to write."""
        self._write_at = min(2 * self._write_at, WRITE_AT_BYTES_MAX)
        self._write()

    def _write_scheduled(self) -> None:
        self._scheduled = False
        self._write_at = WRITE_AT_BYTES
        if self._flowing:
            self._write()

    def _write(self) -> None:
        items = self._items
        if items:
            self._items = []
            self.written_publishes += len(self._keep)
            self.written_bytes += self._bytes
            self._keep.clear()
            self._bytes = 0
            self._hand_over(items)
        if self._waiters and not self.over_limit:
            self._release()

    def _hand_over(self, items: list[Any]) -> None:
        """Give these to the transport, which may call ``pause``."""
        assert self._transport is not None
        self._transport.write(items[0] if len(items) == 1 else b"".join(items))

    def _release(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
