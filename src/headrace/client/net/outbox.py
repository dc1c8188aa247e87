"""Everything on its way to the server: collected, and written once per turn of the event loop.

Items are whole commands as bytes, one or several joined. The outbox outlives a lost connection: what was
published but not yet handed to the socket waits for the next one, up to a limit in bytes. What somebody
waits for, and no longer, is withdrawn as long as it was not handed over (``Slip``).
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from asyncio import _get_running_loop as running_loop
from collections.abc import Callable
from threading import get_ident
from typing import Any, ClassVar, Final

from ...errors import BufferFullError, ConnectionClosedError, LimitExceededError, WrongLoopError
from ...limits import CONTROL_LINE_BYTES_MAX
from ...wire.frames import Frame
from ...wire.inprocess import Chunk

_WHAT_TO_DO: Final = (
    "Each asyncio.run has a loop of its own, and so has each call of an async view under WSGI. Connect in "
    "the loop that uses the connection, or use headrace.sync, which all threads and loops may use"
)


def wrong_loop(loop: AbstractEventLoop) -> WrongLoopError | None:
    """What to raise where something is done to what belongs to ``loop``, if it cannot be done here.

    Without a running loop it can: what is queued is sent when ``loop`` goes on.
    """
    running = running_loop()
    if running is loop:
        return None
    if loop.is_closed():
        return WrongLoopError(
            f"the event loop that this connection was made in is closed. {_WHAT_TO_DO}"
        )
    if running is not None:
        return WrongLoopError(
            f"this connection was made in another event loop than the one that runs here. {_WHAT_TO_DO}"
        )
    return None


def check_loop(loop: AbstractEventLoop) -> None:
    """Raises WrongLoopError: as ``wrong_loop``."""
    if running_loop() is not loop and (error := wrong_loop(loop)) is not None:
        raise error


def require_loop() -> None:
    """Raises WrongLoopError: nothing can be made here, as no event loop of asyncio runs."""
    if running_loop() is None:
        raise WrongLoopError(
            "no event loop of asyncio runs here. The client is asyncio's, and does not run with trio and "
            "curio: connect inside of asyncio.run, or use headrace.sync, which needs no loop"
        )


# How long a line may be: INFO does not say it, so this is nats-server's default (``max_control_line``), and
# ours. What is longer is refused before it is sent, or it would cost the connection all that is under way.
_NUMBERS_BYTES: Final = 24  # two sizes or a number of a subscription, and spaces
WORDS_BYTES_MAX: Final = CONTROL_LINE_BYTES_MAX - _NUMBERS_BYTES
"""What subject and reply subject, or subject and queue group, may have together."""

INBOX_PREFIX_BYTES_MAX: Final = 512
_INBOX_BYTES: Final = (
    64  # what follows the prefix in the reply of a request or a publisher, at most
)


def reply_bytes(inbox_prefix: str) -> int:
    """How long the reply subjects made from inboxes are, at most."""
    return len(inbox_prefix.encode()) + _INBOX_BYTES


def check_line(subject: bytes, others_bytes: int = 0) -> None:
    """Raises LimitExceededError: with what else its line has, a subject is too long to be sent."""
    if len(subject) + others_bytes > WORDS_BYTES_MAX:
        shown = subject[:32].decode(errors="ignore")
        beside = (
            f" and {others_bytes} bytes of reply subject or queue group" if others_bytes else ""
        )
        raise LimitExceededError(
            f"a subject of {len(subject)} bytes{beside} ({shown}…) is too long for a line: a server takes "
            f"{CONTROL_LINE_BYTES_MAX} bytes with all that is in it (its max_control_line), and closes the "
            "connection of who sends more"
        )


# A longer turn is written in pieces, so that the server works on the first while the rest is made:
# little at first, for an idle server, then twice as much each time, to save system calls.
WRITE_AT_BYTES: Final = 4 * 1024
WRITE_AT_BYTES_MAX: Final = 32 * 1024
HARD_LIMIT_FACTOR: Final = 4
_WITHDRAWN_KEPT_MAX: Final = 64  # empty slips beyond it, and beyond half of all, are taken out


class Slip:
    """A command that waits, and may be withdrawn until it is written.

    Attributes:
        data: the command; empty once it was withdrawn, or dropped with its link.
        is_written: whether it was handed to a transport, so that the server may have it.
    """

    __slots__ = ("data", "is_written")

    def __init__(self, data: Chunk) -> None:
        self.data = data
        self.is_written = False

    def __len__(self) -> int:
        return len(self.data)

    def drop(self) -> None:
        """It will not be sent."""
        self.data = b""


class Outbox:
    """The output of one connection.

    Args:
        limit: unsent bytes above which ``wait_for_room`` waits; at four times as much ``put`` raises.
        disconnected_limit: bytes kept while there is no transport; more raise BufferFullError.
    """

    carries_frames: ClassVar[bool] = False
    """Whether messages go over as frames that were never bytes."""

    __slots__ = (
        "_bytes", "_closed", "_disconnected_limit", "_has_slips", "_items", "_keep", "_limit",
        "_loop", "_scheduled", "_thread", "_transport", "_waiters", "_withdrawn", "_write_at", "is_flowing",
        "written_bytes",
        "written_publishes",
    )  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, limit: int, disconnected_limit: int
    ) -> None:
        self._loop = loop
        self._thread = get_ident()
        self._limit = limit
        self._disconnected_limit = disconnected_limit
        self._items: list[Chunk | Slip] = []
        self._keep: list[Chunk | Slip] = []  # those of the items that survive a lost connection
        self._has_slips = False  # among the items
        self._withdrawn = 0  # how many of them are empty
        self._bytes = 0
        self._transport: asyncio.WriteTransport | None = None
        self.is_flowing = False  # there is a transport and it takes more
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
            WrongLoopError: it belongs to another event loop.
        """
        self._items.append(data)
        self._keep.append(data)
        self._bytes += len(data)
        if self.is_flowing:
            if self._bytes >= self._write_at:
                self._write_early()
            elif not self._scheduled:
                if get_ident() != self._thread:
                    self._check_room(len(data))
                try:
                    self._loop.call_soon(self._write_scheduled)
                except RuntimeError:  # the loop is closed
                    self._check_room(len(data))
                    raise
                self._scheduled = True
        else:
            self._check_room(len(data))

    def put_once(self, data: Chunk) -> None:
        """As ``put``, for what belongs to this link only: dropped with it, and never refused, so the
        caller must bound it."""
        self._items.append(data)
        self._bytes += len(data)
        if self.is_flowing:
            if self._bytes >= self._write_at:
                self._write_early()
            elif not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._write_scheduled)

    def put_now(self, data: Chunk) -> None:
        """As ``put_once``, and written with all that waits, without a turn of the loop for it."""
        self._items.append(data)
        self._bytes += len(data)
        if self.is_flowing:
            self._write()

    def put_slip(self, data: Chunk, *, keep: bool) -> Slip | None:
        """As ``put`` (``keep``) or ``put_once``. While nothing can be written, what it returns can be
        ``withdrawn``; None: it is as good as written, and the server may get it."""
        if self.is_flowing:
            self.put(data) if keep else self.put_once(data)
            return None
        slip = Slip(data)
        self._items.append(slip)
        self._bytes += len(data)
        if keep:
            self._keep.append(slip)
            self._check_room(len(data))
        self._has_slips = True
        return slip

    def withdraw(self, slip: Slip | None) -> bool:
        """Take back what ``put_slip`` returned this for. False: the server may have it, or get it."""
        if slip is None or slip.is_written:
            return False
        if slip.data:  # it was not dropped with its link
            self._bytes -= len(slip)
            slip.drop()
            self._withdrawn += 1
            if self._withdrawn > max(_WITHDRAWN_KEPT_MAX, len(self._items) // 2):
                self._items = [item for item in self._items if item]
                self._keep = [item for item in self._keep if item]
                self._withdrawn = 0
        return True

    def _check_room(self, size: int) -> None:
        """Take the last item back if it should not have been queued."""
        error: Exception
        if self._closed is not None:
            error = ConnectionClosedError(str(self._closed))
        elif (elsewhere := wrong_loop(self._loop)) is not None:
            error = elsewhere
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
        self.is_flowing = True
        if first:
            self._items.insert(0, first)
            self._bytes += len(first)
        self._write()

    def detach(self) -> None:
        """The connection is lost. What ``put`` queued and was not handed to it is kept for the next."""
        self._transport = None
        self.is_flowing = False
        if self._has_slips:
            self._drop_slips(besides=set(map(id, self._keep)))
        self._items = self._keep.copy()
        self._bytes = sum(map(len, self._items))
        self._release()

    def held(self) -> list[Chunk]:
        """What ``put`` was given and was not written. Of what is on slips somebody else is told."""
        return [item for item in self._keep if not isinstance(item, Slip)]

    def close(self, reason: Exception) -> None:
        """Take no more, and drop what was not sent."""
        self._closed = reason
        self._transport = None
        self.is_flowing = False
        self._drop_slips(besides=set())
        self._items.clear()
        self._keep.clear()
        self._bytes = 0
        self._release()

    def _drop_slips(self, besides: set[int]) -> None:
        for item in self._items:
            if isinstance(item, Slip) and id(item) not in besides:
                item.drop()

    def pause(self) -> None:
        """The transport has enough for now."""
        self.is_flowing = False

    def resume(self) -> None:
        """The transport takes more again."""
        if self._transport is not None:
            self.is_flowing = True
            self._write()

    def write_now(self) -> None:
        """Hand everything to the transport without waiting for the turn's end."""
        if self.is_flowing:
            self._write()

    def write_after(self, receive: Callable[[list[Frame]], None], frames: list[Frame]) -> None:
        """Call ``receive`` with frames, and write at once what is put meanwhile, in no turn of its own."""
        is_due, self._scheduled = self._scheduled, True
        try:
            receive(frames)
        finally:
            self._scheduled = is_due
            self._write_at = WRITE_AT_BYTES
            if self.is_flowing and (self._items or self._waiters):
                self._write()

    def _write_early(self) -> None:
        """The turn is not over, and there is a piece to write."""
        self._write_at = min(2 * self._write_at, WRITE_AT_BYTES_MAX)
        self._write()

    def _write_scheduled(self) -> None:
        self._scheduled = False
        self._write_at = WRITE_AT_BYTES
        if self.is_flowing:
            self._write()

    def _write(self) -> None:
        items = self._items
        if items:
            self._items = []
            if self._has_slips:
                items = self._take_slips(items)
            self.written_publishes += len(self._keep)
            self.written_bytes += self._bytes
            self._keep.clear()
            self._bytes = 0
            if items:
                self._hand_over(items)
        if self._waiters and not self.over_limit:
            self._release()

    def _take_slips(self, items: list[Chunk | Slip]) -> list[Chunk | Slip]:
        """The items with what is on the slips in their places, which cannot be withdrawn from here on."""
        taken: list[Chunk | Slip] = []
        for item in items:
            if not isinstance(item, Slip):
                taken.append(item)
            elif item.data:
                item.is_written = True
                taken.append(item.data)
        self._keep = [item for item in self._keep if item]
        self._has_slips, self._withdrawn = False, 0
        return taken

    def _hand_over(self, items: list[Any]) -> None:
        """Give these to the transport, which may call ``pause``."""
        assert self._transport is not None
        self._transport.write(items[0] if len(items) == 1 else b"".join(items))

    def _release(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
