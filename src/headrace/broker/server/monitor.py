"""Monitoring over HTTP: the endpoints existing tools know, on a port of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import SplitResult, parse_qs

import msgspec

from ...errors import ConfigurationError
from ...web.connections import ConnectionLimits
from ...web.pages import NUMBERS, PAGE_LIMITS, Page, PageServer, plain
from ..core.hub import Hub
from ..core.monitor.connections import connz
from ..core.monitor.server import (
    HealthQuestion,
    accountz,
    accstatz,
    gatewayz,
    healthz,
    jsz,
    leafz,
    routez,
    subsz,
    varz,
)
from .connections.connection import bind, url_of

logger = logging.getLogger("headrace.broker")

_JETSTREAM_ONLY: Final = ("js-enabled-only", "js-enabled", "js-server-only")

Query = Mapping[str, list[str]]
Answer = tuple[int, Any]


class _QueryError(Exception):
    """A query parameter is not what it has to be; the text says which."""


class Monitor:
    """Serves one hub's numbers. Started and stopped by the broker, in its loop."""

    def __init__(self, hub: Hub, limits: ConnectionLimits = PAGE_LIMITS) -> None:
        self._hub = hub
        self._server = PageServer(self._answer, limits)
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
        await self._server.listen_on(await bind(host, port))
        self._host, self._port = host, self._server.port
        logger.info("Starting http monitor on %s", self.url.removeprefix("http://"))

    async def stop(self) -> None:
        """Stop listening and end what is being served."""
        await self._server.close()

    def _answer(self, url: SplitResult) -> Page:
        path = url.path.rstrip("/") or "/"
        page = self._pages.get(path)
        if page is None:
            return plain(404, f"not found; accepted are {', '.join(sorted(self._pages))}\n")
        self._asked[path] = self._asked.get(path, 0) + 1
        try:
            status, document = page(parse_qs(url.query))
        except (_QueryError, ConfigurationError) as error:
            return plain(400, f"{error}\n")
        if isinstance(document, Page):
            return document
        body = msgspec.json.format(msgspec.json.encode(document), indent=2)
        return Page(status, "application/json", body)

    # The pages that need more than a call

    def _index(self, query: Query) -> Answer:
        links = "".join(f'<li><a href=".{p}">{p}</a></li>' for p in sorted(self._pages) if p != "/")
        html = f"<!doctype html><title>Headrace</title><h1>Headrace</h1><ul>{links}</ul>"
        return 200, Page(200, "text/html; charset=utf-8", html.encode())

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

        return 200, Page(200, NUMBERS, metrics(self._hub, self._process()).encode())

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
