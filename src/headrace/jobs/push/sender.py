"""Makes one HTTP call: a checked address, a limited answer, a limited time, no redirect.

It uses asyncio and httptools instead of an HTTP client, because the connection must go to exactly the
checked address, and because reading must stop at a limit. Connections are kept alive.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import select
import socket
import ssl
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import SplitResult, quote, urlsplit

import httptools

from ...clock import Clock
from ...errors import HeadraceError
from ...sockets import Target, connect_first
from .. import limits
from ..ids import ascii_host
from .guard import Guard, OwnMachineError, check_name_service, own_fault

__all__ = ["CallError", "EndpointAnswer", "Sender"]

_SAFE: Final = "/%:@!$&'()*+,;=~-._?"
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_NO_TEXT: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_KEEP_ALIVE: Final = re.compile(rb"(?i)\btimeout\s*=\s*(\d{1,9})")


class CallError(HeadraceError):
    """Error of a call without an answer: the connection failed or broke, or the answer was not HTTP."""


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    """An answer of an endpoint; ``body`` is truncated at the limit."""

    status: int
    body: bytes
    retry_after: str | None


@dataclass(frozen=True, slots=True)
class _Origin:
    host: str
    port: int
    tls: bool


class _Exchange(asyncio.Protocol):
    """One connection, one call at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.idle_since_ns = 0
        self.reusable = True
        self.idle_max_s = limits.PUSH_CONNECTION_IDLE_S
        self._answer: asyncio.Future[EndpointAnswer] | None = None

    def send(self, request: bytes, answer: asyncio.Future[EndpointAnswer]) -> None:
        if self.transport is None:
            raise AssertionError("connected by whoever made it")
        self._answer = answer
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = 0
        self._body = bytearray()
        self._retry_after: str | None = None
        self._headers_complete = False
        self.transport.write(request)

    def is_readable(self) -> bool:
        """Whether data came without a request; most likely the end of the connection.

        The event loop may not have reported it yet. A request sent now would be lost, and count as an
        attempt.
        """
        if self.transport is None or self.transport.is_closing():
            return True
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    # asyncio.Protocol callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's, so this cannot be asked with isinstance.
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            # There was no request, or its answer is complete: this connection cannot be trusted.
            self.close()
            return
        if not self._headers_complete:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # 101: nobody asked for another protocol. It is the answer, and the connection is of no use.
            self._finish()
            self.close()
            return
        except httptools.HttpParserError as error:
            self._fail(f"the answer is not HTTP ({error})")
            return
        if not self._headers_complete and self._head_bytes > limits.RESPONSE_HEAD_BYTES_MAX:
            self._fail(
                f"the head of the answer is longer than {limits.RESPONSE_HEAD_BYTES_MAX} bytes"
            )

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        if self._answer is None or self._answer.done():
            return
        if self._headers_complete:
            # An answer without a length ends with the connection.
            self._finish()
        else:
            reason = "end of file" if error is None else _reason(error)
            own = None if error is None else own_fault(error)
            self._fail(f"the connection was closed before an answer came ({reason})", own)

    # httptools callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        lowered = name.lower()
        if lowered == b"retry-after":
            self._retry_after = value.decode("latin-1")[:64]
        elif lowered == b"keep-alive" and (found := _KEEP_ALIVE.search(value)):
            # A second less than the endpoint says, so that the two ends do not close at the same moment.
            self.idle_max_s = min(limits.PUSH_CONNECTION_IDLE_S, int(found[1]) - 1.0)

    def on_headers_complete(self) -> None:
        self._headers_complete = self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > limits.RESPONSE_BYTES_MAX:
            del self._body[limits.RESPONSE_BYTES_MAX :]
            self._finish()
            self.close()

    def on_message_complete(self) -> None:
        if self._headers_complete:
            self.reusable = self.reusable and self._parser.should_keep_alive()
            self._finish()

    def close(self) -> None:
        self.reusable = False
        if self.transport is not None:
            self.transport.abort()

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            status = self._parser.get_status_code()
            self._answer.set_result(EndpointAnswer(status, bytes(self._body), self._retry_after))

    def _fail(self, sentence: str, own: OwnMachineError | None = None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(own or CallError(sentence))
        self.close()


class Sender:
    """Calls endpoints. One for all consumers of a process; close it at the end.

    At most ``idle_max`` connections are open besides those of calls: kept alive, or to a second address.
    """

    def __init__(
        self,
        guard: Guard,
        clock: Clock,
        *,
        tls: ssl.SSLContext | None = None,
        idle_max: int = limits.PUSH_CONNECTIONS_IDLE_MAX,
    ) -> None:
        self.guard = guard
        self._clock = clock
        self._idle_max = idle_max
        self._extra = 0  # connections that are tried beside another one of the same call
        # Read now: what cannot be read later, for want of descriptors, would count as no authority at all.
        self._tls = tls or ssl.create_default_context()
        self._idle: dict[_Origin, list[_Exchange]] = {}
        self._by_age: OrderedDict[_Exchange, _Origin] = OrderedDict()  # idle for longest first

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> EndpointAnswer:
        """POST ``body`` once and return the answer, whatever its status.

        The request is sent at most once: an endpoint that reads it and closes the connection may have acted
        on it, so the caller decides whether to send it again. A connection that the endpoint closed while
        it was idle is not used.

        Raises :class:`CallError` if no answer came, ``TimeoutError`` after ``timeout_s`` in total,
        :class:`~.guard.RefusedAddressError` and :class:`~.guard.ResolveError`, and
        :class:`~.guard.OwnMachineError` if this machine could not make the call. Cancelling closes the
        connection.
        """
        parts = urlsplit(url)
        origin = _origin(parts)
        request = _request(parts, origin, headers, body)
        has_addresses = True
        try:
            async with asyncio.timeout(timeout_s):
                exchange = self._take(origin)
                if exchange is None:
                    self.guard.check_url(parts)
                    has_addresses = False
                    addresses = await self.guard.vet(origin.host, origin.port)
                    has_addresses = True
                    exchange = await self._connect(origin, addresses)
                return await self._call(origin, exchange, request)
        except TimeoutError:
            if not has_addresses:
                await check_name_service()
            raise

    async def _call(self, origin: _Origin, exchange: _Exchange, request: bytes) -> EndpointAnswer:
        future: asyncio.Future[EndpointAnswer] = asyncio.get_running_loop().create_future()
        try:
            exchange.send(request, future)
            answer = await future
        except BaseException:
            exchange.close()
            raise
        self._give_back(origin, exchange)
        return answer

    async def _connect(self, origin: _Origin, addresses: Sequence[str]) -> _Exchange:
        targets: list[Target] = [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, (address, origin.port))
            for address in addresses
        ]
        options: dict[str, Any] = {}
        if origin.tls:
            options = {"ssl": self._tls, "server_hostname": origin.host}
        try:
            connected = await connect_first(targets, self._begin_extra, self._end_extra)
            _, exchange = await asyncio.get_running_loop().create_connection(
                _Exchange, sock=connected, **options
            )
        except OSError as error:
            # An IPv6 address is not available, too, where there is no IPv6.
            if error.errno == errno.EADDRNOTAVAIL and not any(":" in each for each in addresses):
                raise OwnMachineError("this machine has no free port left") from None
            if (own := own_fault(error)) is not None:
                raise own from None
            raise CallError(f"no connection to {origin.host}: {_reason(error)}") from None
        return exchange

    def _begin_extra(self) -> bool:
        """Whether another address may be tried beside the first: room of the idle connections."""
        if self._extra >= self._idle_max:
            return False
        self._extra += 1
        self._make_room()
        return True

    def _end_extra(self) -> None:
        self._extra -= 1

    def _make_room(self) -> None:
        while self._by_age and len(self._by_age) + self._extra > self._idle_max:
            oldest = next(iter(self._by_age))
            self._forget(oldest)
            oldest.close()

    def _take(self, origin: _Origin) -> _Exchange | None:
        while waiting := self._idle.get(origin):
            exchange = waiting[-1]
            self._forget(exchange)
            idle_s = (self._clock.monotonic_ns() - exchange.idle_since_ns) / 1e9
            if exchange.reusable and idle_s < exchange.idle_max_s and not exchange.is_readable():
                return exchange
            exchange.close()
        return None

    def _give_back(self, origin: _Origin, exchange: _Exchange) -> None:
        if not exchange.reusable:
            exchange.close()
            return
        exchange.idle_since_ns = self._clock.monotonic_ns()
        self._idle.setdefault(origin, []).append(exchange)
        self._by_age[exchange] = origin
        self._make_room()

    def _forget(self, exchange: _Exchange) -> None:
        """Note that it is idle no more."""
        origin = self._by_age.pop(exchange)
        waiting = self._idle[origin]
        waiting.remove(exchange)
        if not waiting:
            del self._idle[origin]

    def close(self) -> None:
        """Close the connections that are kept alive."""
        for waiting in self._idle.values():
            for exchange in waiting:
                exchange.close()
        self._idle.clear()
        self._by_age.clear()


def _reason(error: Exception) -> str:
    """Why there is no connection, without the address, which those who read it need not know."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno:
        return os.strerror(error.errno)
    return str(error)


def _origin(parts: SplitResult) -> _Origin:
    tls = parts.scheme == "https"
    try:
        port = parts.port or (443 if tls else 80)
        host = ascii_host(parts.hostname or "")
    except ValueError as error:
        raise CallError(f"the URL cannot be called: {error}") from None
    return _Origin(host, port, tls)


def _request(parts: SplitResult, origin: _Origin, headers: Mapping[str, str], body: bytes) -> bytes:
    try:
        target = quote(parts.path or "/", safe=_SAFE)
        if parts.query:
            target += "?" + quote(parts.query, safe=_SAFE)
    except UnicodeEncodeError:
        raise CallError("the URL has half a character (a lone surrogate)") from None
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    if origin.port != (443 if origin.tls else 80):
        host += f":{origin.port}"
    lines = [f"POST {target} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
    for name, value in headers.items():
        if not _TOKEN.match(name):
            raise CallError(f"{name!r} cannot be the name of a header")
        if (found := _NO_TEXT.search(value)) is not None:
            raise CallError(f"the header {name} has {found[0]!r}, which HTTP cannot carry")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "replace") + body
