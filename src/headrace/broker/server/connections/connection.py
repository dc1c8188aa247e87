"""One client's socket: bytes into its session, and once per tick its output into the socket.

What the session has no time for in a turn it keeps, and goes on with in its next one (``Slices``); until
that is handled nothing more is read.

Sockets to listen on are bound here, too: with one clear sentence when that fails, and never to strangers
by accident.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from .... import limits
from ....errors import ConfigurationError
from ....sockets import start_tls
from ...core.net.session import Session
from ...core.peer import Peer
from ..tls import Handshake, certificate_names, current_handshake
from .tracing import Trace, say_closed, trace_of, who

if TYPE_CHECKING:
    from .pump import Pump


logger = logging.getLogger("headrace.broker")

LINGER_S: Final = 1.0  # how long a client we have hung up on may take to read why
REFUSED_LINGER_MAX: Final = 32  # so many beyond max_connections may linger; others are cut off
STALLED_S: Final = limits.WRITE_DEADLINE_S
WRITE_HIGH_BYTES: Final = 1024 * 1024
EOF_SLICES: Final = 20  # for what was read with the end of the input
JOIN_BYTES_MAX: Final = 1024 * 1024  # more output in one tick is handed over without copying it
_REASONS = {
    errno.EADDRINUSE: "another process is listening there; choose another port, or -1 for any free one",
    errno.EACCES: "this user may not; choose a port above 1023",
    errno.EADDRNOTAVAIL: "this machine does not have that address",
}
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to recognise them


class Connection(asyncio.Protocol):
    """The asyncio end of one session; made by the listener for each accepted socket."""

    def __init__(
        self,
        pump: Pump,
        upgrade: ssl.SSLContext | None,
        *,
        is_tls: bool = False,
        tls_timeout: float = limits.TLS_TIMEOUT_S,
        carrier: Literal["nats", "websocket"] = "nats",
    ) -> None:
        self._carrier = carrier
        self._tls_timeout = tls_timeout
        self._pump = pump
        self._upgrade = upgrade
        self._is_tls = is_tls or upgrade is not None
        self._upgrading: asyncio.Task[None] | None = None
        self._early: list[bytes] = []  # what came while the connection was being upgraded
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._trace: Trace | None = None
        self.is_waiting = False
        self._left: str | None = None  # why the client is gone, while what it said is still handled
        self._reading_held = False
        self._reading_paused = False
        self._finishing = False
        self._linger: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._unsent_when_stalled = 0
        self.gone = asyncio.Event()
        """Set once the socket is closed."""

    # What the pump and the broker call

    def flush(self) -> None:
        """Write what the session has to say; hang up if it is closed."""
        session, transport = self._session, self._transport
        if session is None or transport is None or self._upgrading is not None:
            return
        parts = session.take_output()
        if parts and not self._finishing:
            if self._trace is not None:
                self._trace.said(parts)
            if len(parts) == 1:
                transport.write(parts[0])
            elif sum(map(len, parts)) <= JOIN_BYTES_MAX:
                transport.write(b"".join(parts))
            else:
                transport.writelines(parts)
            self._pump.hub.wrote(session, transport.get_write_buffer_size())
        if session.closed:
            self._finish()
        elif self._reading_paused:
            self._see_to_input(session)

    def use_slice(self) -> None:
        """Go on with what the client said before."""
        session = self._session
        assert session is not None, "nobody waits before connection_made"
        self._handle(session, None)
        if self._left is not None and not session.wants_slice:
            self._leave(session, self._left)

    def hold_reading(self, hold: bool) -> None:
        """Stop or go on reading, because the disk is behind or has caught up."""
        self._reading_held = hold
        self._regulate_reading()

    def hurry(self) -> None:
        """The broker stops: who was hung up on, or is not through its handshake, is not waited for."""
        if self._upgrading is not None:
            self._upgrading.cancel()
        if self._finishing or self._upgrading is not None:
            self.abort()

    def abort(self) -> None:
        """Close now, whatever is unsent."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def seniority(self) -> int:
        return self._session.client_id if self._session is not None else 0

    @property
    def subscriptions(self) -> int:
        return len(self._session.subscriptions) if self._session is not None else 0

    @property
    def authenticated(self) -> bool:
        return self._session is not None and self._session.authenticated

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's have the shape, not the class
        if self._pump.is_ending:
            # It was accepted, or in its handshake, when the listener was closed.
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        peer = Peer(host, port, is_tls=self._is_tls, transport=self._carrier)
        peer.tls_version = _tls_version(transport)
        peer.certificate = certificate_names(transport)
        session = self._pump.hub.connect(peer)
        self._session = session
        self._trace = trace_of(session)
        self._pump.connections[session.client_id] = self
        logger.debug("%s - Client connection created", who(session))
        if self._pump.reading_paused:
            self.hold_reading(True)
        # INFO has to be on its way before the client, or a TLS handshake, says anything.
        self.flush()
        if self._upgrade is not None and not session.closed:
            self._upgrading = self._pump.loop.create_task(
                self._start_tls(self._upgrade, session, transport)
            )
        self._pump.wake()

    def data_received(self, data: bytes) -> None:
        session = self._session
        assert session is not None, "data follows connection_made"
        if self._upgrading is not None:
            self._early.append(data)
            return
        if self._trace is not None:
            self._trace.heard(data)
        self._pump.slices.begin()
        self._handle(session, data)

    def eof_received(self) -> bool:
        # A script that pipes in its lines and hangs up still gets the answers to them. There is more to
        # handle only if TLS said the last bytes and the end in one breath: it waits no longer than this.
        session, slices = self._session, self._pump.slices
        for _ in range(EOF_SLICES):
            if session is None or not session.wants_slice:
                break
            slices.next_turn()
            slices.begin()
            self._handle(session, None)
        self._pump.flush_all()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self.gone.is_set() or self._left is not None:
            return
        for timer in (self._linger, self._stalled):
            if timer is not None:
                timer.cancel()
        session = self._session
        self._transport = None
        if session is None:
            self.gone.set()
            return
        reason = "Client Closed" if exc is None else f"Read Error: {exc}"
        if session.wants_slice and not self._pump.hub.is_shutting_down:
            self._left = reason
            self._pump.slices.ask(self)
        else:
            self._leave(session, reason)

    def pause_writing(self) -> None:
        self._watch_for_stall()

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        if self._session is not None and self._transport is not None:
            self._pump.hub.wrote(self._session, self._transport.get_write_buffer_size())
            self._pump.wake()

    # Private

    def _handle(self, session: Session, data: bytes | None) -> None:
        """Handle what the client says, or with None what it said before, as far as there is time."""
        pressure = self._pump.pressure
        is_behind, queued = pressure.is_behind, 0
        if is_behind:
            queued = self._pump.hub.queued_bytes
        try:
            if data is None:
                session.go_on()
            else:
                session.receive(data)
        except Exception:
            # A fault of ours, so of any kind. This client cannot be told what became of its messages, and is
            # hung up on; the loop serves everybody else, too, and an error that left here would end in its
            # handler, with the client still connected and its input half handled.
            logger.exception("%s - failed while handling a client's data", who(session))
            session.close("Internal Error")
        if is_behind:
            pressure.staged(self, self._pump.hub.queued_bytes - queued)
        if session.holds_input or self._reading_paused:
            self._see_to_input(session)
        self._pump.wake()

    def _see_to_input(self, session: Session) -> None:
        if session.wants_slice:
            self._pump.slices.ask(self)
        self._regulate_reading()

    def _leave(self, session: Session, reason: str) -> None:
        """The socket is gone, and everything that was said is handled."""
        self._pump.slices.withdraw(self)
        session.disconnected(reason)
        session.take_output()
        self._pump.pressure.forget(self)
        self._pump.connections.pop(session.client_id, None)
        say_closed(session, session.close_reason)
        self._pump.wake()
        self.gone.set()

    def _regulate_reading(self) -> None:
        """Read, unless the disk is behind or what the client said before is not handled yet."""
        session, transport = self._session, self._transport
        if session is None or transport is None:
            return
        if self._upgrading is not None or self._finishing or transport.is_closing():
            return
        pause = self._reading_held or session.holds_input
        if pause == self._reading_paused:
            return
        self._reading_paused = pause
        if pause:
            transport.pause_reading()
        else:
            transport.resume_reading()

    async def _start_tls(
        self, context: ssl.SSLContext, session: Session, transport: asyncio.Transport
    ) -> None:
        """Turn the connection into TLS after INFO went out in clear."""

        def failed() -> None:
            # Once the alert is written: the client reads it to its end, and leaves.
            self._pump.loop.call_soon(_say_no_more, transport)

        handshake = Handshake(who(session), failed)
        current_handshake.set(handshake)  # of this task, and of what it begins
        try:
            upgraded = await start_tls(
                transport, self, context, timeout_s=self._tls_timeout, early=self._early
            )
        except (OSError, EOFError) as error:
            logger.debug("%s - TLS handshake error: %s", who(session), error)
            transport.abort()
            self.connection_lost(error)
            _forget_frames(error)
            return
        except asyncio.CancelledError:
            transport.abort()
            self.connection_lost(None)
            raise
        finally:
            self._upgrading = None
            handshake.is_over()
        if upgraded is None:  # the client left during the handshake
            self.connection_lost(None)
            return
        self._transport = upgraded
        self._reading_paused = False
        session.peer.tls_version = _tls_version(upgraded)
        session.peer.certificate = certificate_names(upgraded)
        upgraded.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self._regulate_reading()
        self.flush()
        if early := b"".join(self._early):  # said right behind the handshake
            self._early.clear()
            self.data_received(early)

    def _finish(self) -> None:
        """Hang up so that the last words arrive: a socket closed over unread input loses them."""
        transport = self._transport
        if self._finishing or transport is None:
            return
        self._finishing = True
        patient = len(self._pump.connections) <= self._pump.connections_max + REFUSED_LINGER_MAX
        if transport.can_write_eof() and patient and not self._pump.hub.is_shutting_down:
            transport.write_eof()
            transport.resume_reading()  # what still comes is thrown away, until the client hangs up
        else:
            transport.close()
        self._linger = self._pump.loop.call_later(LINGER_S, self.abort)

    def _watch_for_stall(self) -> None:
        transport = self._transport
        if transport is None:
            return
        self._unsent_when_stalled = transport.get_write_buffer_size()
        self._stalled = self._pump.loop.call_later(STALLED_S, self._check_stall)

    def _check_stall(self) -> None:
        session, transport = self._session, self._transport
        if session is None or transport is None:
            return
        if transport.get_write_buffer_size() < self._unsent_when_stalled:
            self._watch_for_stall()
            return
        session.overflow("Write Deadline")
        self.abort()


def _say_no_more(transport: asyncio.Transport) -> None:
    if not transport.is_closing() and transport.can_write_eof():
        with contextlib.suppress(OSError):  # gone already, so there is nobody to tell
            transport.write_eof()


def _forget_frames(error: BaseException | None) -> None:
    """Free what waits for the garbage collector else: frames that know the future which knows the error."""
    while error is not None:
        error.__traceback__, error = None, error.__context__


def _tls_version(transport: asyncio.Transport) -> str:
    """The version agreed on; empty before a handshake."""
    tls = transport.get_extra_info("ssl_object")
    return "" if tls is None else tls.version() or ""


async def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the first address of ``host``; ``port`` of 0 or -1 is any free one.

    Raises ConfigurationError when the name is unknown or the address cannot be had.
    """
    port = max(0, port)
    found = await _look_up(host, port)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)  # IPv4 first, as clients try it
    family, kind, protocol, _name, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.setblocking(False)
        listener.bind(address)
    except OSError as error:
        listener.close()
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise ConfigurationError(f"cannot listen on {shown_host(host)}:{port}: {reason}") from error
    return listener


async def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``. A name counts by every address it has."""
    found = await _look_up(host, 0)
    return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)


async def _look_up(host: str, port: int) -> list[Any]:
    try:
        # An address needs no resolver, and so no thread of the loop's executor.
        return socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
        )
    except OSError:
        pass  # a name
    loop = asyncio.get_running_loop()
    try:
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"host: cannot find {host!r}: {error.strerror}") from error


def shown_host(host: str) -> str:
    """The host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def url_of(scheme: str, host: str, port: int) -> str:
    """The URL at which this machine reaches a listener on ``host``."""
    return f"{scheme}://{shown_host(_WILDCARDS.get(host, host))}:{port}"
