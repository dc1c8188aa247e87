"""An in-process connection: what a client and a server in one event loop exchange without a socket.

Each end calls the other on the loop they share. Output passes in chunks: bytes, as a socket would carry
them, or frames, which neither end has to encode or parse. This module has types only: the client's end
is in ``client``, the server's in ``broker.server``.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from .frames import PUB, Frame

FRAME_BYTES = 24
"""The bytes counted for a frame beside its fields: about what verb, sizes and line ends take."""


class FrameBatch:
    """Message frames that pass together. ``len()`` is their size in bytes, not their number, so code
    that counts bytes of output also counts these.
    """

    __slots__ = ("_bytes", "frames")

    def __init__(self, frames: list[Frame], size: int) -> None:
        self.frames = frames
        self._bytes = size

    def __len__(self) -> int:
        return self._bytes


class PublishRun:
    """Publishes on one subject without headers, which may be acknowledged together.

    A receiver that stores all of them sends one answer to ``reply``. Any other receiver uses
    ``frames``, the same publishes one by one, whose replies are ``prefix`` and consecutive numbers from
    ``first`` on. ``len()`` is their size in bytes.
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
        """Whether one of the publishes has this number."""
        return self.first <= number < self.first + len(self.payloads)

    @property
    def key(self) -> bytes:
        """The last token of the shared reply; it is not a number."""
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
    """The methods that the server calls, but never from within a call by the client."""

    def frames_received(self, frames: list[Frame], size: int) -> None:
        """Frames from the server, in order, and their size in bytes."""
        ...

    def pause_writing(self) -> None:
        """Send nothing until ``resume_writing``: the server has enough input for now."""
        ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, reason: Exception | None) -> None:
        """The connection has ended. Called once, whichever end closed it."""
        ...


class ServerEnd(Protocol):
    """The methods that the client calls."""

    def receive(self, chunks: list[Chunk]) -> None:
        """Input from the client, in order; frames are those of ``Parser.for_server``."""
        ...

    def close(self) -> None:
        """Close the connection; ``connection_lost`` follows after this turn of the event loop."""
        ...


class Acceptor(Protocol):
    """Accepts in-process connections."""

    def __call__(self, client: ClientEnd) -> ServerEnd:
        """Open a new connection, which begins with the server's INFO.

        Raises ConnectionClosedError: the server has stopped; ConfigurationError: called outside of the
        server's event loop.
        """
        ...
