"""One physical connection: socket, TLS, handshake. Bytes that come in are parsed into frames."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Sequence
from typing import Final, cast

from ...errors import (
    AuthorizationError,
    ConfigurationError,
    ConnectFailedError,
    ConnectionClosedError,
    ProtocolError,
    ServerError,
)
from ...sockets import connect_to
from ...wire.frames import Frame
from ...wire.parser import Parser
from .handshake import Handshake, ServerAddress, ServerInfo
from .options import Options
from .outbox import Outbox

KEPT_BYTES: Final = 1024 * 1024
"""Four times what an event loop makes room for when it reads."""


def keep_freed_memory() -> None:
    """Have the C library keep what is freed of blocks as large as an event loop reads into.

    glibc takes blocks of 128 KiB and more from the system and gives them back at once, so the system clears
    each page anew: a fifth of what fetching costs. Once a larger block was freed, glibc keeps those below
    that size. The block is not touched, so this takes two system calls, and no memory.
    """
    bytes(KEPT_BYTES)


_TLS_FIRST_HINT = "; it said nothing: if it begins with TLS, set the option tls_first"


class Link(asyncio.Protocol):
    """The protocol object of one socket.

    Attributes:
        on_frames: called with the frames of each chunk, in order.
        on_lost: called once, when the socket is gone.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.on_frames: Callable[[list[Frame]], None] = _ignore
        self.on_lost: Callable[[Link, Exception | None], None] | None = None
        self.outbox: Outbox | None = None
        self.info = ServerInfo()
        self.early: list[Frame] = []
        self.received_bytes = 0
        self._parser = Parser.for_client()
        self._transport: asyncio.Transport | None = None
        self._lost = loop.create_future()
        self._lost_reason: Exception | None = None

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "the transport is set before anybody sees the link"
        return self._transport

    def abort(self, reason: Exception) -> None:
        """Drop the connection at once; ``on_lost`` is given the reason."""
        self._lost_reason = self._lost_reason or reason
        self.transport.abort()

    async def close(self) -> None:
        """Send what the transport still holds, then close; returns when the socket is gone."""
        self.transport.close()
        await asyncio.shield(self._lost)

    def upgrade(self, transport: asyncio.Transport) -> None:
        """Go on with the connection inside TLS."""
        self._transport = transport

    @property
    def is_lost(self) -> bool:
        """Whether the socket is gone."""
        return self._lost.done()

    @property
    def held_bytes(self) -> int:
        """What was received beyond whole frames."""
        return self._parser.held_bytes

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's have the shape, not the class.
        self._transport = cast(asyncio.Transport, transport)
        keep_freed_memory()

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        frames = self._parser.feed(data)
        if frames:
            self.on_frames(frames)

    def eof_received(self) -> bool:
        return False  # the server is done: close

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(None)
        if self.on_lost is not None:
            self.on_lost(self, self._lost_reason or exc)

    def pause_writing(self) -> None:
        if self.outbox is not None:
            self.outbox.pause()

    def resume_writing(self) -> None:
        if self.outbox is not None:
            self.outbox.resume()


async def open_link(address: ServerAddress, options: Options) -> Link:
    """Connect and shake hands with one server; the link is ready for commands.

    Raises:
        AuthorizationError: the server refused the credentials.
        ConnectFailedError: anything else, the time allowed included; the text says what.
    """
    loop = asyncio.get_running_loop()
    link = Link(loop)
    is_asked_for = address.tls or bool(options.tls)
    # A WebSocket is inside TLS from its first byte, asked for in whatever way, or not at all.
    is_encrypted = options.tls_first or (address.websocket and is_asked_for)
    handshake = Handshake(
        address,
        options.credentials,
        is_encrypted=is_encrypted,
        wants_tls=None if options.tls_first or address.websocket else is_asked_for,
        name=options.name,
        echo=options.echo,
    )
    try:
        async with asyncio.timeout(options.connect_timeout):
            shaking = Shaking(link, handshake)
            await _connect(loop, link, address, options, tls=is_encrypted)
            await shaking.introduced
            if handshake.needs_tls:
                await _start_tls(link, address, options)
            await shaking.accept()
            if link.is_lost:  # between the PONG and this line
                raise ConnectFailedError("the server closed the connection")
    except BaseException as error:
        if link._transport is not None:
            link._transport.abort()
        is_silent = link._transport is not None and handshake.info is None
        reason = _failure(error, address, options, is_silent=is_silent)
        if reason is error:
            raise
        raise reason from error
    link.on_lost = None
    return link


async def _connect(
    loop: asyncio.AbstractEventLoop,
    link: Link,
    address: ServerAddress,
    options: Options,
    *,
    tls: bool,
) -> None:
    context, hostname = _tls(address, options) if tls else (None, None)
    if address.websocket:
        from .websocket import open_websocket

        await open_websocket(link, address, _tls(address, options) if tls else None)
        return
    connected = await connect_to(address.host, address.port)
    await loop.create_connection(
        lambda: link, sock=connected, ssl=context, server_hostname=hostname
    )


async def _start_tls(link: Link, address: ServerAddress, options: Options) -> None:
    context, hostname = _tls(address, options)
    loop = asyncio.get_running_loop()
    transport = await loop.start_tls(link.transport, link, context, server_hostname=hostname)
    if transport is None:  # what asyncio returns when the connection ended meanwhile
        raise ConnectionClosedError("the connection ended in the TLS handshake")
    link.upgrade(transport)


def _tls(address: ServerAddress, options: Options) -> tuple[ssl.SSLContext, str]:
    if isinstance(options.tls, ssl.SSLContext):
        context = options.tls
    else:
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context, options.tls_hostname or address.tls_name or address.host


class Shaking:
    """A handshake on a link, for one task that waits; what follows it is kept for the connection.

    Attributes:
        introduced: done with INFO.
    """

    def __init__(self, link: Link, handshake: Handshake) -> None:
        loop = asyncio.get_running_loop()
        self.introduced: asyncio.Future[ServerInfo] = loop.create_future()
        self._accepted: asyncio.Future[None] = loop.create_future()
        self._link = link
        self._handshake = handshake
        link.on_frames = self._frames
        link.on_lost = self._lost

    async def accept(self) -> None:
        """Say who we are, and wait until the server takes us."""
        self._link.transport.write(self._handshake.hello())
        await self._accepted

    def _frames(self, frames: Sequence[Frame]) -> None:
        link, handshake = self._link, self._handshake
        try:
            answers = handshake.receive(frames, link.held_bytes)
        except Exception as error:
            self._fail(error)
            return
        if answers:
            link.transport.write(answers)
        if handshake.info is not None and not self.introduced.done():
            link.info = handshake.info
            self.introduced.set_result(handshake.info)
        if handshake.is_accepted:
            link.early = handshake.early
            link.on_frames = link.early.extend
            if not self._accepted.done():
                self._accepted.set_result(None)

    def _lost(self, link: Link, reason: Exception | None) -> None:
        self._fail(ConnectFailedError(str(reason or "the server closed the connection")))

    def _fail(self, error: Exception) -> None:
        """Tell the one who waits; a future nobody waits for must not complain of it."""
        for future in (self.introduced, self._accepted):
            if not future.done():
                future.set_exception(error)
                future.exception()


def _failure(
    error: BaseException, address: ServerAddress, options: Options, *, is_silent: bool
) -> BaseException:
    """What to raise for a failed attempt: always with the server's address in it."""
    if isinstance(error, TimeoutError):
        hint = "" if not is_silent or options.tls_first else _TLS_FIRST_HINT
        return ConnectFailedError(
            f"{address}: no handshake within {options.connect_timeout} s (option connect_timeout)"
            f"{hint}"
        )
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return ConnectFailedError(
            f"{address}: the server does not begin with TLS; try without the option tls_first"
        )
    if isinstance(error, AuthorizationError):
        return AuthorizationError(f"{address}: {error}")
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectFailedError(f"{address}: certificate refused: {error.verify_message}")
    if isinstance(error, (ConfigurationError, asyncio.CancelledError)):
        return error
    if isinstance(error, UnicodeError):
        return ConnectFailedError(f"{address}: {address.host!r} cannot be a host name")
    if isinstance(error, (OSError, ConnectionClosedError, ProtocolError, ServerError)):
        return ConnectFailedError(f"{address}: {_plain(error)}")
    return error


def _plain(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        if error.errno and error.strerror.startswith("Connect call failed"):
            return os.strerror(error.errno)  # asyncio's text has the address again, and not why
        return error.strerror
    return str(error) or type(error).__name__


def _ignore(frames: list[Frame]) -> None:
    raise AssertionError(f"frames without a listener: {frames}")
