"""NATS inside WebSockets: the upgrade, and the frames around the bytes of a connection.

The protocol is that of the ``websockets`` package (extra ``websocket``), used without its I/O. Client and
server cut their bytes into binary messages as they like, so a message is only a chunk of input, and one
write is one message.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from ....errors import ConfigurationError
from ....host_names import LOOPBACK_NAMES, Names, is_foreign
from ....sockets import stop_listening
from ..config.options import WebSocketOptions
from .connection import EOF_SLICES, LINGER_S, REFUSED_LINGER_MAX, Connection
from .pump import Pump

logger = logging.getLogger("headrace.broker")

BACKLOG: Final = 1024
HANDSHAKES_MAX: Final = 1024  # one more at a time: hung up on
STRANGER_BYTES_MAX: Final = 64 * 1024  # the longest message of a client that is not logged in: 1009
PIECE_BYTES: Final = 16 * 1024  # taken apart at a time
SMALL_PIECE_BYTES: Final = 4 * 1024  # the same while messages are short
PIECE_EVENTS: Final = 64  # more in one piece are many
SLACK_BYTES: Final = 256 * 1024  # beside a payload, in the longest message of one that is
_CONTENT: Final = frozenset({"BINARY", "TEXT", "CONT"})
POLICY: Final = 1008
GOING_AWAY: Final = 1001


class WebSocketListener:
    """Accepts WebSockets; each becomes a ``Connection`` once it is agreed upon."""

    def __init__(self, pump: Pump, options: WebSocketOptions, max_payload: int) -> None:
        self._pump = pump
        self._options = options
        self._protocol = _protocol_factory(options)
        self.message_bytes_max = max_payload + SLACK_BYTES
        self.loose: set[_WebSocket] = set()
        """Sockets without a session: in the handshake, or after a violation."""
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Serve on this bound socket. Raises ConfigurationError for certificates that are no good."""
        options = self._options
        context = options.tls.context() if options.tls else None
        self._server = await self._pump.loop.create_server(
            self._accept,
            sock=listener,
            backlog=BACKLOG,
            ssl=context,
            ssl_handshake_timeout=None if options.tls is None else options.tls.timeout,
        )

    async def close(self) -> None:
        """Stop listening; who is not through the handshake is hung up on."""
        if self._server is not None:
            await stop_listening(self._server)
        for waiting in list(self.loose):
            waiting.abort()

    async def wait_closed(self) -> None:
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self) -> asyncio.Protocol:
        return _WebSocket(self, self._pump, self._protocol(), self._options)


def _protocol_factory(options: WebSocketOptions) -> Callable[[], Any]:
    """What makes the protocol of a connection. Raises ConfigurationError without the extra."""
    try:
        from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
        from websockets.server import ServerProtocol
    except ImportError:
        raise ConfigurationError(
            "websocket: needs the extra websocket: pip install 'headrace[websocket]'"
        ) from None
    extensions = [ServerPerMessageDeflateFactory()] if options.compression else None
    origins: list[Any] | None = None
    if options.allowed_origins:
        origins = [*options.allowed_origins, None]  # None: a client that is no browser says none

    def make() -> Any:
        return ServerProtocol(
            origins=origins, extensions=extensions, max_size=STRANGER_BYTES_MAX, logger=_silent
        )

    return make


_silent = logging.getLogger("headrace.broker.websocket")
_silent.setLevel(logging.CRITICAL)


class _WebSocket(asyncio.Protocol):
    """The protocol of the socket, and the transport of the connection above it."""

    def __init__(
        self, listener: WebSocketListener, pump: Pump, protocol: Any, options: WebSocketOptions
    ) -> None:
        self._listener = listener
        self._pump = pump
        self._protocol = protocol
        self._options = options
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._above: Connection | None = None
        self._refused = False
        self._limited = True
        self._held = False  # the connection above wants no more for now
        self._clogged = False  # the client does not read
        self._paused = False
        self._rest = b""  # read, and not taken apart yet
        self._piece = SMALL_PIECE_BYTES
        self.is_waiting = False
        self.seniority = self.subscriptions = 0  # those are the connection's above

    # Below: asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        room = self._pump.connections_max + REFUSED_LINGER_MAX - len(self._pump.connections)
        if self._pump.is_ending or len(self._listener.loose) >= min(HANDSHAKES_MAX, room):
            self._transport.abort()
            return
        self._abort_in(self._options.handshake_timeout)

    def data_received(self, data: bytes) -> None:
        self._rest = self._rest + data if self._rest else data
        self._pump.slices.begin()
        self._go_on()

    def use_slice(self) -> None:
        """Go on with what was read before."""
        self._go_on()
        self._regulate_reading()

    def eof_received(self) -> bool:
        slices = self._pump.slices
        for _ in range(EOF_SLICES):  # TLS may have said the last bytes and the end in one breath
            if not self._rest:
                break
            slices.next_turn()
            slices.begin()
            self._go_on()
        self._protocol.receive_eof()
        if self._above is not None:
            self._above.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_longer_loose()
        self._pump.slices.withdraw(self)
        self._rest = b""
        self._transport = None
        if self._above is not None:
            self._above.connection_lost(exc)

    def pause_writing(self) -> None:
        # Pings are answered without asking the session, so who does not read is not read from.
        self._clogged = True
        self._regulate_reading()
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        self._clogged = False
        self._go_on_later()
        if self._above is not None:
            self._above.resume_writing()

    # Above: what a connection uses of a transport

    def write(self, data: bytes) -> None:
        if self._protocol.state.name == "OPEN":
            self._protocol.send_binary(data)
            self._send()

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def set_write_buffer_limits(self, high: int) -> None:
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=high)

    def get_write_buffer_size(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str) -> Any:
        return None if self._transport is None else self._transport.get_extra_info(name)

    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._held = True
        self._regulate_reading()

    def resume_reading(self) -> None:
        self._held = False
        self._go_on_later()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Say that nothing follows; the client closes, or is cut off."""
        if self._protocol.state.name == "OPEN":
            self._protocol.send_close(POLICY)
            self._send()

    def close(self) -> None:
        if self._protocol.state.name == "OPEN":
            self._protocol.send_close(GOING_AWAY)
            self._send()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Private

    def _go_on(self) -> None:
        """Take apart what was read, as far as there is time and the connection above takes it."""
        slices = self._pump.slices
        while self._rest and not (self._held or self._clogged):
            if slices.is_used_up():
                slices.ask(self)
                break
            piece, self._rest = self._rest[: self._piece], self._rest[self._piece :]
            many = self._take_apart(piece) > PIECE_EVENTS
            self._piece = SMALL_PIECE_BYTES if many else PIECE_BYTES
        self._regulate_reading()

    def _go_on_later(self) -> None:
        if self._rest:
            self._pump.slices.ask(self)
        self._regulate_reading()

    def _regulate_reading(self) -> None:
        pause = self._held or self._clogged or bool(self._rest)
        if pause == self._paused or self._transport is None:
            return
        self._paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _take_apart(self, data: bytes) -> int:
        """Hand on what is in some bytes of the socket; returns how many frames they ended."""
        protocol, above = self._protocol, self._above
        if above is not None and self._limited and above.authenticated:
            self._limited = False
            protocol.max_message_size = self._listener.message_bytes_max
        if above is None:
            data = self._shake_hands(data)
            if self._above is None:
                return 0
        protocol.receive_data(data)
        events = protocol.events_received()
        chunks = [event.data for event in events if event.opcode.name in _CONTENT]
        self._send()  # answers to pings, and to a close
        if chunks and self._above is not None:
            self._above.data_received(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if protocol.parser_exc is not None and self._above is not None:
            self._above.connection_lost(protocol.parser_exc)
        return len(events)

    def _shake_hands(self, data: bytes) -> bytes:
        """Answer the request, once it is there; returns what stands behind it.

        The protocol gets it line by line: of one piece it would take what follows for frames before we
        have said whether there will be any.
        """
        protocol = self._protocol
        while data and self._above is None and not self._refused:
            end = data.find(b"\n") + 1 or len(data)
            line, data = data[:end], data[end:]
            protocol.receive_data(line)
            for request in protocol.events_received():
                self._answer(request)
            if protocol.handshake_exc is not None:
                self._refused = True
        self._send()
        return data

    def _answer(self, request: Any) -> None:
        """Agree to the upgrade, or say why not."""
        protocol = self._protocol
        if self._is_guarded() and not _is_own_page(request.headers, self._options.host or ""):
            response = protocol.reject(403, "the page comes from another origin\n")
        else:
            response = protocol.accept(request)
        protocol.send_response(response)
        self._send()
        if protocol.state.name != "OPEN":
            self._refused = True
            return
        self._no_longer_loose()
        tls = self._options.tls is not None
        above = self._above = Connection(self._pump, None, is_tls=tls, carrier="websocket")
        above.connection_made(cast(asyncio.Transport, self))

    def _is_guarded(self) -> bool:
        """Whether a page has to come from here: unless said otherwise, where nobody has to log in."""
        options = self._options
        if options.same_origin is not None or options.allowed_origins:
            return bool(options.same_origin)
        return not self._pump.hub.authenticator.required

    def _send(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        ending = False
        parts: list[bytes] = []
        for part in self._protocol.data_to_send():
            if part:
                parts.append(part)
            else:
                ending = True  # the protocol's way to say: close after this
        if parts:
            transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
        if ending:
            self._finish(transport)

    def _finish(self, transport: asyncio.Transport) -> None:
        """Close so that the last words arrive: over unread input they would be lost."""
        if transport.can_write_eof():
            transport.write_eof()
            self._abort_in(LINGER_S)
        else:
            transport.close()

    def _abort_in(self, seconds: float) -> None:
        self._listener.loose.add(self)
        if self._deadline is None:
            self._deadline = self._pump.loop.call_later(seconds, self.abort)

    def _no_longer_loose(self) -> None:
        self._listener.loose.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _is_own_page(headers: Any, host: str) -> bool:
    """Whether a page of this very origin asks, under a name that nobody can have moved here; clients that
    are no browsers name no origin."""
    origins, hosts = headers.get_all("Origin"), headers.get_all("Host")
    if not origins:
        return True
    if len(origins) > 1 or len(hosts) != 1:
        return False  # no browser says either of them twice
    if is_foreign(hosts[0], origins[0], headers.get("Sec-Fetch-Site")):
        return False
    return Names((*LOOPBACK_NAMES, host), local=True).accept(hosts[0])
