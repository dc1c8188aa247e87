"""The WebSocket between a link and its socket: ``ws://`` and ``wss://``, as nats-server speaks it.

The bytes of the NATS protocol travel in binary messages, cut anywhere. The protocol itself is that of the
``websockets`` package (extra ``headrace[websocket]``), used without its I/O.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final, cast

from ...errors import ConfigurationError, ConnectFailedError, ProtocolError
from ...sockets import connect_to

if TYPE_CHECKING:
    from .handshake import ServerAddress
    from .link import Link

MESSAGE_BYTES_MAX: Final = 256 * 1024  # longer output goes out in several messages


async def open_websocket(
    link: Link, address: ServerAddress, tls: tuple[ssl.SSLContext, str] | None
) -> None:
    """Connect ``link`` through a WebSocket; returns when the server has agreed to it.

    Raises:
        ConfigurationError: the ``websockets`` package is not installed.
        ConnectFailedError: the server answered, but not as a WebSocket server.
        OSError: it could not be reached.
    """
    loop = asyncio.get_running_loop()
    socket = _Socket(link, _protocol(address), loop.create_future())
    context, hostname = tls or (None, None)
    connected = await connect_to(address.host, address.port)
    await loop.create_connection(
        lambda: socket, sock=connected, ssl=context, server_hostname=hostname
    )
    await socket.open


def _protocol(address: ServerAddress) -> Any:
    try:
        from websockets.client import ClientProtocol
        from websockets.uri import parse_uri
    except ImportError:
        raise ConfigurationError(
            f"{address}: WebSockets need the package websockets; install headrace[websocket]"
        ) from None
    # There is no limit here: the NATS parser has its own, and messages are cut anywhere.
    return ClientProtocol(parse_uri(f"{address}{address.path or '/'}"), max_size=None)


class _Socket(asyncio.Protocol):
    """The protocol object of the socket, and the transport of the link above it."""

    def __init__(self, link: Link, protocol: Any, opened: asyncio.Future[None]) -> None:
        self.open = opened
        self._link = link
        self._protocol = protocol
        self._transport: asyncio.Transport | None = None
        self._data: tuple[Any, ...] = ()

    # Above: what the link's owner uses of a transport

    def write(self, data: bytes) -> None:
        protocol = self._protocol
        if not self.open.done() or self.open.cancelled() or protocol.state.name != "OPEN":
            return  # it is ending, and the link will hear of it
        if len(data) <= MESSAGE_BYTES_MAX:
            protocol.send_binary(data)
        else:
            view = memoryview(data)
            for start in range(0, len(data), MESSAGE_BYTES_MAX):
                protocol.send_binary(view[start : start + MESSAGE_BYTES_MAX])
        self._send()

    def get_write_buffer_size(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        """Say good-bye, then close; what was written before still leaves."""
        if self._protocol.state.name == "OPEN":
            self._protocol.send_close(1000)
            self._send()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Below: asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        from websockets.frames import DATA_OPCODES, Frame

        self._data = (Frame, DATA_OPCODES)
        self._transport = cast(asyncio.Transport, transport)
        self._link.connection_made(cast(asyncio.Transport, self))
        self._protocol.send_request(self._protocol.connect())
        self._send()

    def data_received(self, data: bytes) -> None:
        protocol = self._protocol
        protocol.receive_data(data)
        kind, data_opcodes = self._data
        parts: list[bytes] = []
        for event in protocol.events_received():
            if not isinstance(event, kind):
                self._answered()
            elif event.opcode in data_opcodes:
                parts.append(event.data)
        self._send()  # answers to pings, and to a close
        if parts:
            # bytes: frames of the parser may keep parts of it
            self._link.data_received(b"".join(parts))
        if protocol.parser_exc is not None and self.open.done():
            self._link.abort(ProtocolError(f"the WebSocket broke: {protocol.parser_exc}"))

    def eof_received(self) -> bool:
        self._protocol.receive_eof()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.open.done():
            why = f": {exc}" if exc else ""
            self._fail(f"the server closed the connection during the WebSocket handshake{why}")
        self._link.connection_lost(exc)

    def pause_writing(self) -> None:
        self._link.pause_writing()

    def resume_writing(self) -> None:
        self._link.resume_writing()

    # Private

    def _answered(self) -> None:
        """The response to our request has come."""
        refusal = self._protocol.handshake_exc
        if self.open.done():
            return
        if refusal is None:
            self.open.set_result(None)
        else:
            self._fail(f"the server is no WebSocket server here: {refusal}")

    def _fail(self, text: str) -> None:
        self.open.set_exception(ConnectFailedError(text))
        self.open.exception()  # a caller that was cancelled does not ask any more

    def _send(self) -> None:
        transport = self._transport
        parts = self._protocol.data_to_send()
        if transport is None or transport.is_closing():
            return
        for part in parts:
            if part:
                transport.write(part)
            elif transport.can_write_eof():
                transport.write_eof()
            else:
                transport.close()
