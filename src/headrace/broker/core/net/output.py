"""What waits to be written to one connection, and how a message becomes the frame that waits.

A MSG frame to many subscribers differs only in the subscription id, so it is made of a head and a
tail which are built once, and the id between them:

    MSG <subject>| <sid> |[<reply> ]<size>\\r\\n<payload>\\r\\n
    HMSG <subject>| <sid> |[<reply> ]<header size> <total size>\\r\\n<headers><payload>\\r\\n
"""

from __future__ import annotations

from typing import Any, Final, Generic, Protocol, TypeVar

from ....limits import OUTBOUND_BLOCKED_BYTES, OUTBOUND_BYTES_MAX

COPY_BYTES_MAX = 32 * 1024
"""A payload up to this is copied into its frame; a larger one stays a part of its own."""


class Reader(Protocol):
    """The session that an output belongs to."""

    def overflow(self) -> None:
        """The client reads too slowly."""


class _Nobody:
    """In place of a session that has ended, for whoever still finds its output."""

    def overflow(self) -> None:
        """There is nobody to hang up on."""


NOBODY: Final[Any] = _Nobody()
R_co = TypeVar("R_co", bound=Reader, covariant=True)


class Output(Generic[R_co]):
    """The unsent bytes of one connection: ``parts`` of this tick, and what the socket did not take.

    Deliveries append to ``parts`` and add to ``size`` and ``payload_bytes`` themselves (these are the
    hottest lines of a fan-out); ``touched`` is the hub's list of outputs with something in them, joined
    by whoever finds ``parts`` empty. With ``size`` above ``room`` the reader is too slow:
    ``session.overflow``.
    """

    __slots__ = (
        "_blocked_at",
        "_bytes_max",
        "_waited_for",
        "has_headers",
        "parts",
        "payload_bytes",
        "room",
        "session",
        "size",
        "touched",
        "unsent",
        "written",
    )

    def __init__(
        self, session: R_co, touched: list[Output[R_co]], bytes_max: int = OUTBOUND_BYTES_MAX
    ) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.room = bytes_max
        self.unsent = 0  # bytes the socket has not taken yet, as the shell last said
        self.payload_bytes = 0  # of messages delivered, with their headers; senders add to it
        self.written = 0  # bytes handed to the shell since the connection began
        self.has_headers = False  # whether the peer understands HMSG
        self.session = session
        self.touched = touched
        self._bytes_max = bytes_max
        self._blocked_at = min(OUTBOUND_BLOCKED_BYTES, bytes_max // 4)
        self._waited_for = False

    def write(self, data: bytes) -> None:
        """Add bytes that are no message: a status line, a PONG."""
        if not self.parts:
            self.touched.append(self)
        self.parts.append(data)
        self.size += len(data)

    def write_message(
        self, head: bytes, sid: bytes, tail: bytes, payload: bytes | None = None
    ) -> None:
        """Add a frame of ``head_of``, the sid between spaces, ``tail_of``; see ``COPY_BYTES_MAX``."""
        parts = self.parts
        if not parts:
            self.touched.append(self)
        if payload is None:
            frame = head + sid + tail
            parts.append(frame)
            size = self.size + len(frame)
        else:
            parts += (head + sid + tail, payload, b"\r\n")
            size = self.size + len(head) + len(sid) + len(tail) + len(payload) + 2
        self.size = size
        if size > self.room:
            self.session.overflow()

    def write_frames(self, frames: list[bytes]) -> None:
        """Add whole frames, at least one."""
        if not self.parts:
            self.touched.append(self)
        self.parts += frames
        self.size = size = self.size + sum(map(len, frames))
        if size > self.room:
            self.session.overflow()

    def take(self) -> list[bytes]:
        """Hand over everything that waits."""
        parts = self.parts
        self.parts = []
        self.written += self.size
        self.size = 0
        return parts

    def discard(self) -> None:
        """Drop what waits: nobody will read it."""
        self.parts.clear()
        self.size = 0

    def let_go(self) -> None:
        """``discard``, and let the session go: the shell has its last words, or nobody will read them."""
        self.discard()
        self.session = NOBODY

    @property
    def blocked(self) -> bool:
        """Whether senders with much more should wait. Remembers that somebody asked."""
        if self.size + self.unsent <= self._blocked_at:
            return False
        self._waited_for = True
        return True

    def took(self, unsent: int) -> bool:
        """The shell reports how many bytes are unsent. True if somebody waited, and there is room now."""
        self.unsent = unsent
        self.room = self._bytes_max - unsent
        if self._waited_for and self.size + unsent <= self._blocked_at // 2:
            self._waited_for = False
            return True
        return False


def head_of(subject: bytes, headers: bytes) -> bytes:
    """The frame up to the sid."""
    return (b"HMSG " if headers else b"MSG ") + subject


def tail_of(reply: bytes, headers: bytes, payload: bytes) -> tuple[bytes, bytes | None]:
    """The frame after the sid, and the payload if it is too large to be copied into it."""
    if headers:
        count = b"%d %d\r\n%b" % (len(headers), len(headers) + len(payload), headers)
    else:
        count = b"%d\r\n" % len(payload)
    if reply:
        count = reply + b" " + count
    if len(payload) > COPY_BYTES_MAX:
        return count, payload
    return b"%b%b\r\n" % (count, payload), None
