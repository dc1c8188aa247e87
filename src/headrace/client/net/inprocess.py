"""A connection to a broker in this process: no socket, and messages that are never bytes on a wire.

The session is the usual one, with another link and another outbox. Control lines stay bytes; messages that
go by the thousand are handed over as frames (``wire.inprocess``).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final, cast

from ...errors import AuthorizationError, ConnectFailedError, ConnectionClosedError, ServerError
from ...wire.frames import PUB, Frame
from ...wire.inprocess import FRAME_BYTES, Acceptor, Chunk, FrameBatch, ServerEnd
from .handshake import Handshake, ServerAddress
from .link import Link, Shaking
from .options import Options
from .outbox import Outbox
from .reconnect import ServerGoneError
from .session import Session

_ERRORS: Final = (ConnectionClosedError, ServerError)


@dataclass(frozen=True, slots=True)
class InProcess(ServerAddress):
    """The one address of an in-process connection."""

    host: str = "in-process"
    port: int = 0

    def __str__(self) -> str:
        return "in-process"


class InProcessLink(Link):
    """A link whose transport is itself: what is written goes to the broker's end at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._server: ServerEnd | None = None

    def open(self, acceptor: Acceptor) -> None:
        """Knock. The broker answers with INFO."""
        self._server = acceptor(self)
        self._transport = cast(asyncio.Transport, _Transport(self._server))

    # wire.inprocess.ClientEnd; the rest of it is inherited

    def frames_received(self, frames: list[Frame], size: int) -> None:
        self.received_bytes += size
        self.on_frames(frames)


class _Transport:
    """As much of a transport as a link's owner uses."""

    __slots__ = ("_server",)

    def __init__(self, server: ServerEnd) -> None:
        self._server = server

    def write(self, data: bytes) -> None:
        self._server.receive([data])

    def write_chunks(self, chunks: list[Chunk]) -> None:
        self._server.receive(chunks)

    def get_write_buffer_size(self) -> int:
        return 0  # the broker takes everything at once

    def close(self) -> None:
        self._server.close()

    abort = close


async def open_inprocess(acceptor: Acceptor, address: ServerAddress, options: Options) -> Link:
    """Connect and shake hands; the link is ready for commands. There is no TLS: nobody can listen.

    Raises as ``open_link``, and ServerGoneError when the broker is not running.
    """
    link = InProcessLink(asyncio.get_running_loop())
    handshake = Handshake(
        address,
        options.credentials,
        is_encrypted=False,
        wants_tls=None,
        name=options.name,
        echo=options.echo,
    )
    shaking = Shaking(link, handshake)
    try:
        link.open(acceptor)
    except ConnectionClosedError as error:
        raise ServerGoneError(str(error)) from error
    try:
        async with asyncio.timeout(options.connect_timeout):
            await shaking.introduced
            await shaking.accept()
            if link.is_lost:
                raise ConnectFailedError("the broker closed the connection")
    except BaseException as error:
        link.transport.abort()
        if isinstance(error, TimeoutError):
            raise ConnectFailedError(
                f"in-process: no handshake within {options.connect_timeout} s "
                "(option connect_timeout)"
            ) from error
        if isinstance(error, _ERRORS) and not isinstance(error, AuthorizationError):
            raise ConnectFailedError(f"in-process: {error}") from error
        raise
    link.on_lost = None
    return link


class InProcessOutbox(Outbox):
    """Hands its items over as they are; those that are bytes are joined first, for the parser."""

    __slots__ = ()

    carries_frames = True

    @staticmethod
    def answers(replies: list[bytes], body: bytes) -> Chunk:
        size = sum(map(len, replies)) + len(replies) * (len(body) + FRAME_BYTES)
        return FrameBatch([(PUB, reply, b"", b"", body) for reply in replies], size)

    def _hand_over(self, items: list[Any]) -> None:
        chunks: list[Chunk] = []
        for kind, group in groupby(items, type):
            if kind is bytes:
                chunks.append(b"".join(group))
            else:
                chunks += group
        cast(_Transport, self._transport).write_chunks(chunks)


def inprocess_session(acceptor: Acceptor, options: Options) -> Session:
    """The session of a connection to the broker behind ``acceptor``."""
    return Session(
        [InProcess()],
        replace(options, discover_servers=False),
        outbox_type=InProcessOutbox,
        dial=partial(open_inprocess, acceptor),
        may_run_readers=False,  # the broker is in the midst of its tick
    )
