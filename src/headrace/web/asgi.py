"""An ASGI application behind uvicorn, with the limits of every HTTP server of ours.

uvicorn takes a request head of any size and waits for it without end, and asyncio gives a TLS handshake a
minute; so connections, handshakes and heads pass ``connections.Waiting`` first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ..sockets import start_tls, stop_listening
from .connections import SWEEP_S, ConnectionLimits, Stage, Waiting, address_of

__all__ = ["AsgiServer", "has_left"]

_LOG: Final = logging.getLogger("headrace.web")
_TRANSPORT: Final = "headrace_transport"
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def has_left(scope: Scope) -> bool:
    """Whether the client of a request has gone, as far as its connection tells."""
    transport: asyncio.Transport | None = scope.get(_TRANSPORT)
    return transport is not None and transport.is_closing()


class AsgiServer(uvicorn.Server):
    """uvicorn with our limits, and without its signal handlers: whoever starts it says when it ends.

    Args:
        app: what answers.
        limits: of its connections.
        tls: None for plain HTTP; its certificate may be changed while the server listens.
        drain_s: how long requests in progress may take after ``should_exit``.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: ConnectionLimits,
        *,
        tls: ssl.SSLContext | None = None,
        drain_s: float = 1.0,
    ) -> None:
        config = uvicorn.Config(
            app,
            lifespan="off",
            http=_Connection,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=max(1, round(drain_s)),
        )
        config.load()
        super().__init__(config)
        self._tls = tls
        self._limits = limits
        self._sweep: asyncio.TimerHandle | None = None
        self.waiting: Waiting[_Connection | _Handshake] = Waiting(
            limits, _monotonic, lambda connection: connection.drop()
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on ``sockets``."""
        await super().startup(sockets=[])
        loop = asyncio.get_running_loop()
        make = self.connection if self._tls is None else self._handshake
        for listener in sockets or []:
            self.servers.append(await loop.create_server(make, sock=listener, backlog=1024))
        self._sweep = loop.call_later(SWEEP_S, self._swept)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: nothing new is accepted, what is in progress has its time."""
        if self._sweep is not None:
            self._sweep.cancel()
        self.waiting.end()
        await stop_listening(*self.servers)
        self.waiting.drop_all(Stage.HANDSHAKE)
        await super().shutdown(sockets)

    def connection(self) -> _Connection:
        """A protocol for one connection whose bytes are HTTP."""
        made = _Connection(self.config, self.server_state, self.lifespan.state)
        made.waiting = self.waiting
        return made

    def _handshake(self) -> _Handshake:
        assert self._tls is not None
        return _Handshake(self, self._tls, self._limits.handshake_s)

    def _swept(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._swept)
        if dropped := self.waiting.sweep():
            _LOG.info("%d connections closed: their requests did not arrive in time", dropped)


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


class _Handshake(asyncio.Protocol):
    """A TLS connection until its handshake is over; what follows is handed to a ``_Connection``."""

    def __init__(self, server: AsgiServer, tls: ssl.SSLContext, patience_s: float) -> None:
        self._server = server
        self._tls = tls
        self._patience_s = patience_s
        self._early: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._shaking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._transport is not None:
            return  # the encrypted one, over the one that is known
        self._transport = cast(asyncio.Transport, transport)
        address = address_of(transport.get_extra_info("peername"))
        if not self._server.waiting.opened(self, address, Stage.HANDSHAKE):
            self._transport.abort()
            return
        self._transport.pause_reading()
        self._shaking = asyncio.create_task(self._shake(self._transport))

    async def _shake(self, transport: asyncio.Transport) -> None:
        secure: asyncio.Transport | None = None
        try:
            secure = await start_tls(
                transport, self, self._tls, timeout_s=self._patience_s, early=self._early
            )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            _LOG.debug("a TLS handshake failed: %s", error)
        finally:
            self._server.waiting.closed(self)
            if secure is None:
                transport.abort()
        if secure is None or secure.is_closing():
            return
        connection = self._server.connection()
        secure.set_protocol(connection)
        connection.connection_made(secure)
        for data in self._early:
            connection.data_received(data)

    def data_received(self, data: bytes) -> None:
        self._early.append(data)  # the handshake's beginning, or what came with its end

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.waiting.closed(self)

    def drop(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()
        if self._shaking is not None:
            self._shaking.cancel()


class _Connection(HttpToolsProtocol):
    """One connection; ``waiting`` is shared with the others of its server."""

    waiting: Waiting[_Connection | _Handshake]
    _head_bytes = 0
    _told_bytes = 0
    _in_head = _begun = False
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self.waiting.opened(self, address_of(transport.get_extra_info("peername"))):
            transport.write(_BUSY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._begun = False
        super().data_received(data)
        # Of the chunk in which a head begins it is not known where: what of it is whole is counted as it is
        # told, and the rest with the next one.
        if self._in_head and not self._begun and not self._refused:
            self._head_bytes += len(data)
            if self._head_bytes > self.waiting.limits.head_bytes_max:
                self._refuse()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._begun = True
        self._head_bytes = self._told_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def _count(self, length: int) -> None:
        self._told_bytes += length
        if self._told_bytes > self.waiting.limits.head_bytes_max:
            self._refused = True
            raise ValueError("the head of the request is too long")

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        self.scope[_TRANSPORT] = self.transport  # type: ignore[typeddict-unknown-key]
        self.waiting.wait(self, Stage.BODY)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.cycle.response_complete:  # rejected before all of it had arrived
            self.waiting.wait(self, Stage.HEAD)
        else:
            self.waiting.answer(self)

    def on_response_complete(self) -> None:
        if not self.pipeline and self in self.connections:
            self.waiting.wait(self, Stage.HEAD)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request: 431 if its head is too long."""
        if self._refused:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _refuse(self) -> None:
        self._refused = True
        most = self.waiting.limits.head_bytes_max
        text = f"a request's line and headers have at most {most} bytes".encode()
        self.transport.write(
            STATUS_LINE[431]
            + b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            + f"content-length: {len(text)}\r\n\r\n".encode()
            + text
        )
        self.transport.close()

    def drop(self) -> None:
        """Close it at once."""
        self.connections.discard(self)
        self.transport.abort()
