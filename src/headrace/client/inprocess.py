"""A connection to a broker in this process: no socket, and messages that are never bytes on a wire.

The session above is the usual one. Only its link, its outbox and what a command looks like are other ones:
control lines stay bytes, messages that go by the thousand are handed over as frames (``wire.direct``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, cast

from ..errors import (
    AuthorizationError,
    ConnectFailedError,
    ConnectionClosedError,
    LimitExceededError,
    ServerError,
)
from ..limits import CONTROL_LINE_BYTES_MAX
from ..subjects import check_subject
from ..wire.direct import FRAME_BYTES, Acceptor, Chunk, FrameBatch, ServerEnd
from ..wire.frames import PUB, Frame
from .handshake import ServerAddress, connect_command
from .link import Handshake, Link
from .message import HeadersLike
from .options import Options
from .outbox import Outbox
from .publisher import HEADS_KEPT_MAX, Publisher
from .reconnect import ServerGoneError
from .session import Session

__all__ = ["InProcessSession"]

_FIELDS_BYTES: Final = 64  # what verb, subject and reply of a publish count, about
_PIECE_MAX: Final = (
    256  # messages handed over together: few enough to be still in the processor's cache
)
_ERRORS: Final = (ConnectionClosedError, ServerError)


@dataclass(frozen=True, slots=True)
class InProcess(ServerAddress):
    """The one address of an in-process connection."""

    host: str = "in-process"
    port: int = 0

    def __str__(self) -> str:
        return "in-process"


class DirectLink(Link):
    """A link whose transport is itself: what is written goes to the broker's end at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._server: ServerEnd | None = None

    def open(self, acceptor: Acceptor) -> None:
        """Knock. The broker answers with INFO."""
        self._server = acceptor(self)
        self._transport = cast(asyncio.Transport, _Transport(self._server))

    # wire.direct.ClientEnd; the rest of it is inherited

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


async def open_direct(acceptor: Acceptor, options: Options) -> Link:
    """Connect and shake hands; the link is ready for commands. There is no TLS: nothing to hide from.

    Raises as ``open_link``, and ServerGoneError when the broker is not running.
    """
    link = DirectLink(asyncio.get_running_loop())
    handshake = Handshake(link)
    try:
        link.open(acceptor)
    except ConnectionClosedError as error:
        raise ServerGoneError(str(error)) from error
    try:
        async with asyncio.timeout(options.connect_timeout):
            link.info = info = await handshake.info
            credentials = options.credentials(info.nonce)
            hello = connect_command(info, credentials, name=options.name, echo=options.echo)
            link.transport.write(hello + b"PING\r\n")
            await handshake.accepted
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


class DirectOutbox(Outbox):
    """Hands its items over as they are; those that are bytes are joined first, for the parser."""

    __slots__ = ()

    def _hand_over(self, items: list[Any]) -> None:
        chunks: list[Chunk] = []
        for kind, run in groupby(items, type):
            if kind is bytes:
                chunks.append(b"".join(run))
            else:
                chunks += run
        cast(_Transport, self._transport).write_chunks(chunks)


def answer_frames(replies: list[bytes], body: bytes) -> Chunk:
    """What sends ``body`` to each of these reply subjects."""
    size = sum(map(len, replies)) + len(replies) * (len(body) + FRAME_BYTES)
    return FrameBatch([(PUB, reply, b"", b"", body) for reply in replies], size)


class DirectPublisher(Publisher):
    """A publisher whose commands are frames."""

    @staticmethod
    def _size(command: Any) -> int:
        return len(command[3]) + len(command[4]) + _FIELDS_BYTES

    def _total(self, commands: list[Any]) -> int:
        fields = sum([len(command[3]) + len(command[4]) for command in commands])
        return fields + _FIELDS_BYTES * len(commands)

    async def send_many(
        self, messages: Iterable[tuple[str, bytes] | tuple[str, bytes, HeadersLike]]
    ) -> int:
        before = self.sent
        iterator = iter(messages)
        exhausted = False
        while not exhausted:
            if self._is_full:
                await self._wait_for_window()
            exhausted = self._send_some(iterator)
            await asyncio.sleep(0)  # the broker works on this piece while it is still at hand
        return self.sent - before

    def _send_some(
        self, iterator: Iterator[tuple[str, bytes] | tuple[str, bytes, HeadersLike]]
    ) -> bool:
        if self._adds_headers:
            return super()._send_some(iterator)
        unacked, heads, prefix, command = self._unacked, self._heads, self._prefix, self._command
        index, size = self.sent, self._unacked_bytes
        last = index + min(self._window - len(unacked), _PIECE_MAX)
        size_max, window_bytes = self._max_payload, self._window_bytes
        out: list[Any] = []
        try:
            for message in iterator:
                subject, payload, *headers = message
                head = heads.get(subject)
                key = b"%d" % index
                if head and not headers and type(payload) is bytes and len(payload) <= size_max:
                    frame = unacked[key] = (PUB, head, prefix + key, b"", payload)
                    size += len(payload) + _FIELDS_BYTES
                else:
                    frame = unacked[key] = command(index, *message)
                    size += len(frame[3]) + len(frame[4]) + _FIELDS_BYTES
                out.append(frame)
                index += 1
                if index == last or size >= window_bytes:
                    return False
            return True
        finally:
            before, self._unacked_bytes = self._unacked_bytes, size
            self.sent = index
            if out and self._session.link is not None:
                self._put(out, size - before)

    def _put(self, commands: list[Any], size: int) -> None:
        self._session.counts.published += len(commands)
        self._session.outbox.put_once(FrameBatch(commands, size))

    def _command(
        self,
        index: int,
        subject: str,
        payload: bytes,
        headers: HeadersLike = None,
        msg_id: str = "",
    ) -> Any:
        head = self._heads.get(subject) or self._head(subject)
        block = b""
        if headers or msg_id or self._adds_headers:
            block = self._block(index, headers, msg_id)
        if len(payload) + len(block) > self._max_payload:
            self._connection._check_size(len(block) + len(payload))
        if type(payload) is not bytes:
            payload = bytes(payload)  # the caller may change what it has given
        return (PUB, head, b"%b%d" % (self._prefix, index), block, payload)

    def _head(self, subject: str) -> bytes:
        """The subject, checked once; its length, too, since no parser will."""
        self._check_open()
        head = check_subject(subject.encode())
        if len(head) + len(self._prefix) + FRAME_BYTES > CONTROL_LINE_BYTES_MAX:
            raise LimitExceededError(
                f"a subject of {len(head)} bytes; with its reply subject it must fit into a line "
                f"of {CONTROL_LINE_BYTES_MAX}"
            )
        if len(self._heads) < HEADS_KEPT_MAX:
            self._heads[subject] = head
        return head

    @staticmethod
    def _subject_of(command: Any) -> str:
        subject: bytes = command[1]
        return subject.decode()


class InProcessSession(Session):
    """The session of a connection to the broker behind ``acceptor``."""

    answers = staticmethod(answer_frames)
    outbox_type = DirectOutbox
    publisher_type = DirectPublisher

    def __init__(self, acceptor: Acceptor, options: Options) -> None:
        super().__init__([InProcess()], replace(options, discover_servers=False))
        self._acceptor = acceptor

    async def dial(self, address: ServerAddress, options: Options) -> Link:
        return await open_direct(self._acceptor, options)
