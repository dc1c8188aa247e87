"""Monitoring over HTTP: the endpoints existing tools know, on a port of their own.

A small HTTP/1.1 server, because it answers a handful of GET requests: one request per connection, with
limits on its size, its time and how many are served at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, cast
from urllib.parse import parse_qs, urlsplit

import msgspec

from ...errors import ConfigurationError
from ..core.hub import Hub
from ..core.monitor.accounts import accountz, accstatz, subsz
from ..core.monitor.connections import connz
from ..core.monitor.health import HealthQuestion, healthz
from ..core.monitor.server import gatewayz, jsz, leafz, routez, varz
from .connections.listener import bind, url_of

logger = logging.getLogger("headrace.broker")

REQUEST_BYTES_MAX: Final = 8 * 1024  # a longer request head: 431, closed
REQUEST_S: Final = 5.0  # a slower request or reader is cut
REQUESTS_MAX: Final = 64  # one more at a time: 503, closed
REQUESTS_OPEN_MAX: Final = 256  # one more: closed without an answer

_JETSTREAM_ONLY: Final = ("js-enabled-only", "js-enabled", "js-server-only")

Query = Mapping[str, list[str]]
Answer = tuple[int, Any]


class _Text(str):
    """A page that is no markup."""

    __slots__ = ()


class _QueryError(Exception):
    """A query parameter is not what it has to be; the text says which."""


class _Request(asyncio.Protocol):
    """One connection: a request head in, an answer out, closed."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_S, self.abort)
        self._monitor.opened(self)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= REQUEST_BYTES_MAX:
            return
        head = bytes(self._head[:end]) if 0 <= end <= REQUEST_BYTES_MAX else None
        transport.write(self._monitor.answer(head))
        if transport.can_write_eof():
            # Closing over unread input would take the answer with it; the deadline ends the rest.
            transport.write_eof()
            self._head.clear()
            self.data_received = _ignore  # type: ignore[method-assign]
        else:
            transport.close()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport = None
        self._monitor.closed(self)

    def abort(self) -> None:
        """Too slow, or the broker stops."""
        if self._transport is not None:
            self._transport.abort()


def _ignore(data: bytes) -> None:
    """What comes after the request is not read."""


class Monitor:
    """Serves one hub's numbers. Started and stopped by the broker, in its loop."""

    def __init__(self, hub: Hub, open_max: int = REQUESTS_OPEN_MAX) -> None:
        """``open_max`` is how many connections it may have; one more is closed without an answer."""
        self._hub = hub
        self._open_max = open_max
        self._server: asyncio.Server | None = None
        self._open: set[_Request] = set()
        self._all_closed = asyncio.Event()
        self._host = ""
        self._port = 0
        self._asked: dict[str, int] = {}
        self._pages: dict[str, Callable[[Query], Answer]] = {
            "/": self._index,
            "/healthz": self._healthz,
            "/metrics": self._metrics,
            "/varz": lambda query: (200, varz(hub, self._process())),
            "/jsz": self._jsz,
            "/connz": self._connz,
            "/accountz": self._accountz,
            "/accstatz": lambda query: (200, accstatz(hub, unused=_switch(query, "unused"))),
            "/routez": lambda query: (200, routez(hub)),
            "/gatewayz": lambda query: (200, gatewayz(hub)),
            "/leafz": lambda query: (200, leafz(hub)),
            "/subsz": self._subsz,
            "/subscriptionsz": self._subsz,
        }

    @property
    def url(self) -> str:
        return url_of("http", self._host, self._port)

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises ConfigurationError if the port cannot be had."""
        listener = await bind(host, port)
        self._host = host
        self._port = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Request(self), sock=listener)
        logger.info("Starting http monitor on %s", self.url.removeprefix("http://"))

    async def stop(self) -> None:
        """Stop listening and end what is being served."""
        if self._server is None:
            return
        self._server.close()
        if self._open:
            self._all_closed.clear()
            for request in list(self._open):
                request.abort()
            await self._all_closed.wait()
        await self._server.wait_closed()

    # What a request calls

    def opened(self, request: _Request) -> None:
        self._open.add(request)
        if len(self._open) > min(self._open_max, REQUESTS_OPEN_MAX):
            request.abort()

    def closed(self, request: _Request) -> None:
        self._open.discard(request)
        if not self._open:
            self._all_closed.set()

    def answer(self, head: bytes | None) -> bytes:
        """The whole response to a request head; None: it was too long."""
        if len(self._open) > REQUESTS_MAX:
            return _plain(503, "too many requests at a time\n")
        return self._answer(head)

    def _answer(self, head: bytes | None) -> bytes:
        if head is None:
            return _plain(431, f"the request is longer than {REQUEST_BYTES_MAX} bytes\n")
        line = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(line) != 3 or not line[2].startswith("HTTP/1."):
            return _plain(400, "this is the monitoring port; it speaks HTTP/1.1\n")
        method, target, _version = line
        if method not in ("GET", "HEAD"):
            return _plain(405, "accepted are GET and HEAD\n", "Allow: GET, HEAD\r\n")
        try:
            url = urlsplit(target)
        except ValueError as error:
            return _plain(400, f"what is asked for is no address: {error}\n")
        page = self._pages.get(url.path.rstrip("/") or "/")
        if page is None:
            return _plain(404, f"not found; accepted are {', '.join(sorted(self._pages))}\n")
        path = url.path.rstrip("/") or "/"
        self._asked[path] = self._asked.get(path, 0) + 1
        try:
            status, document = page(parse_qs(url.query))
        except (_QueryError, ConfigurationError) as error:
            return _plain(400, f"{error}\n")
        if isinstance(document, _Text):
            answer = _response(
                status, document.encode(), "text/plain; version=0.0.4; charset=utf-8"
            )
        elif isinstance(document, str):
            answer = _response(status, document.encode(), "text/html; charset=utf-8")
        else:
            body = msgspec.json.format(msgspec.json.encode(document), indent=2)
            answer = _response(status, body, "application/json")
        return answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else answer

    # The pages that need more than a call

    def _index(self, query: Query) -> Answer:
        links = "".join(f'<li><a href=".{p}">{p}</a></li>' for p in sorted(self._pages) if p != "/")
        return 200, f"<!doctype html><title>Headrace</title><h1>Headrace</h1><ul>{links}</ul>"

    def _healthz(self, query: Query) -> Answer:
        question = HealthQuestion(
            account=_text(query, "account"),
            stream=_text(query, "stream"),
            consumer=_text(query, "consumer"),
            jetstream_only=any(map(partial(_switch, query), _JETSTREAM_ONLY)),
            details=_switch(query, "details"),
        )
        return healthz(self._hub, question)

    def _metrics(self, query: Query) -> Answer:
        from ..core.monitor.metrics import metrics  # a start needs it not yet

        return 200, _Text(metrics(self._hub, self._process()))

    def _connz(self, query: Query) -> Answer:
        document = connz(
            self._hub,
            offset=_number(query, "offset", 0),
            limit=_number(query, "limit", 1024),
            cid=_number(query, "cid", 0),
            account=_text(query, "acc"),
            user=_text(query, "user"),
            sort=_text(query, "sort"),
            state=_text(query, "state"),
            subject=_text(query, "filter_subject"),
            subscriptions=_listing(query),
        )
        return 200, document

    def _jsz(self, query: Query) -> Answer:
        account = _text(query, "acc")
        document = jsz(
            self._hub,
            account=account,
            accounts=_switch(query, "accounts"),
            streams=_switch(query, "streams"),
            consumers=_switch(query, "consumers"),
            config=_switch(query, "config"),
            offset=_number(query, "offset", 0),
            limit=_number(query, "limit", 0),
        )
        if account and not document.get("account_details"):
            raise _QueryError(f"acc: {account!r} is no account with JetStream")
        return 200, document

    def _accountz(self, query: Query) -> Answer:
        account = _text(query, "acc")
        document = accountz(self._hub, account)
        if document is None:
            raise _QueryError(f"acc: there is no account {account!r}")
        return 200, document

    def _subsz(self, query: Query) -> Answer:
        document = subsz(
            self._hub,
            name=_text(query, "acc"),
            listed=_switch(query, "subs"),
            test=_text(query, "test"),
            offset=_number(query, "offset", 0),
            limit=_number(query, "limit", 1024),
        )
        return 200, document

    def _process(self) -> dict[str, Any]:
        """What only the process knows."""
        return {
            "http_host": self._host,
            "http_port": self._port,
            "http_base_path": "",
            "https_port": 0,
            "http_req_stats": {**dict.fromkeys(self._pages, 0), **self._asked},
            **self._hub.about_process(),
        }


def _text(query: Query, name: str) -> str:
    return query.get(name, [""])[0]


def _switch(query: Query, name: str) -> bool:
    return query.get(name, ["0"])[0] not in ("0", "false")


def _listing(query: Query) -> Literal["", "list", "detail"]:
    if _text(query, "subs") == "detail":
        return "detail"
    return "list" if _switch(query, "subs") else ""


def _number(query: Query, name: str, default: int) -> int:
    text = query.get(name, [str(default)])[0]
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise _QueryError(f"{name}: {text!r}; accepted is a whole number")
    return int(text)


def _plain(status: int, text: str, more: str = "") -> bytes:
    return _response(status, text.encode(), "text/plain; charset=utf-8", more)


def _response(status: int, body: bytes, content_type: str, more: str = "") -> bytes:
    from email.utils import formatdate  # these two are a tenth of what a start costs
    from http import HTTPStatus

    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        f"Date: {formatdate(usegmt=True)}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        f"Connection: close\r\n{more}\r\n"
    )
    return head.encode() + body
