"""A connection without a socket: what a client and a server in one event loop say to each other.

Either end calls the other one directly, on the loop they share. Output goes over in chunks: bytes, as a
socket would carry them, or frames that were never bytes, which neither end has to encode or to parse.
Types only: the client's end is in ``client``, the server's in ``broker.server``.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from .frames import PUB, Frame

__all__ = [
    "FRAME_BYTES",
    "Acceptor",
    "Chunk",
    "ClientEnd",
    "FrameBatch",
    "PublishRun",
    "ServerEnd",
]

FRAME_BYTES = 24
"""What a frame counts beside its fields: about what verb, sizes and line ends take on a wire."""


class FrameBatch:
    """Message frames that go over together. ``len()`` is what they count in bytes, not their number,
    so that whoever counts bytes of output counts these, too."""

    __slots__ = ("_bytes", "frames")

    def __init__(self, frames: list[Frame], size: int) -> None:
        self.frames = frames
        self._bytes = size

    def __len__(self) -> int:
        return self._bytes


class PublishRun:
    """Publishes of one subject without headers, to be answered together if they can be.

    Whoever can take all of them sends one answer to ``reply``; anybody else takes ``frames``, the same
    publishes one by one, whose replies are ``prefix`` and consecutive numbers from ``first`` on.
    ``len()`` is what they count in bytes.
    """

    __slots__ = ("_bytes", "first", "payloads", "prefix", "subject")

    def __init__(
        self, subject: bytes, prefix: bytes, first: int, payloads: list[bytes], size: int
    ) -> None:
        self.subject = subject
        self.prefix = prefix
        self.first = first
        self.payloads = payloads
        self._bytes = size

    def __len__(self) -> int:
        return self._bytes

    def __contains__(self, number: int) -> bool:
        """Whether one of them has this number."""
        return self.first <= number < self.first + len(self.payloads)

    @property
    def key(self) -> bytes:
        """The last token of the reply for all: what no number is."""
        return b"%d-%d" % (self.first, len(self.payloads))

    @property
    def reply(self) -> bytes:
        return self.prefix + self.key

    @property
    def frames(self) -> list[Frame]:
        subject, prefix = self.subject, self.prefix
        return [
            (PUB, subject, b"%b%d" % (prefix, number), b"", payload)
            for number, payload in enumerate(self.payloads, self.first)
        ]


Chunk: TypeAlias = bytes | FrameBatch | PublishRun


class ClientEnd(Protocol):
    """What the server calls; never from within a call of the client's."""

    def frames_received(self, frames: list[Frame], size: int) -> None:
        """Frames of the server, in order, and what they count in bytes."""
        ...

    def pause_writing(self) -> None:
        """Send nothing until ``resume_writing``: the server has enough for now."""
        ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, reason: Exception | None) -> None:
        """It is over: called once, whoever ended it."""
        ...


class ServerEnd(Protocol):
    """What the client calls."""

    def receive(self, chunks: list[Chunk]) -> None:
        """What the client says, in order; frames are those of ``Parser.for_server``."""
        ...

    def close(self) -> None:
        """The client leaves; ``connection_lost`` follows after this turn of the loop."""
        ...


class Acceptor(Protocol):
    """Where a client knocks."""

    def __call__(self, client: ClientEnd) -> ServerEnd:
        """A new connection, which begins with the server's INFO.

        Raises ConnectionClosedError: there is no server any more; ConfigurationError: called outside
        of the server's event loop.
        """
        ...
