"""Sources of the pages: the NATS connection and the watcher, the job service, the monitoring port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final, Self, TypeVar

from ..client.connection import Connection
from ..client.jetstream_context import JetStream
from ..documents import DocumentError, read_json
from ..errors import HeadraceError
from ..findings.finding import Findings
from ..findings.jobs import judge_jobs
from .alerts import Alerts
from .answers import RefusedError
from .settings import Settings
from .watcher import Watcher

Monitoring = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""``VARZ``, ``CONNZ``, ``JSZ`` or ``ACCSTATZ`` and its options; the document. Raises HeadraceError."""

T = TypeVar("T")
_LOG: Final = logging.getLogger("headrace.console")
_ACCOUNTS: Final = "ACCSTATZ"
_MONITORING: Final = "the server's monitoring"

HTTP_TIMEOUT_S: Final = 5.0
FOLLOWERS_MAX: Final = 100


class Sources:
    """While it is entered, it looks at the server. It does not close the connection.

    Args:
        js: the connection's context; None for the usual one.
        monitoring: answers for the server's monitoring where it is in the same process.
        http: an ``httpx2.AsyncClient`` for job service and monitoring port, instead of one of its own.

    Attributes:
        settings: what the console was told.
        connection, js: to the server.
        watcher: the newest look.
        alerts: what is wrong in it.
        followers: browsers that follow a stream or the looks right now.
        uploads: objects that are being uploaded right now.
        ending: set when the console ends: pages that are kept up to date are let go.
    """

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        js: JetStream | None = None,
        monitoring: Monitoring | None = None,
        http: Any = None,
    ) -> None:
        self.settings = settings
        self.connection = connection
        self.js = js if js is not None else connection.jetstream()
        self.watcher = Watcher(connection, self.js, settings.interval_s)
        self.alerts = Alerts(
            self.js, self.watcher, jobs=self._judge_jobs if settings.jobs else None
        )
        self.followers = self.uploads = 0
        self.ending = asyncio.Event()
        self._given = monitoring
        self._stack = contextlib.AsyncExitStack()
        self._http = http

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            watching = asyncio.create_task(self.watcher.run(), name="console-watcher")
            stack.push_async_callback(_cancel, watching)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def http(self) -> Any:
        """The client it was given, or has made by now."""
        return self._http

    async def monitoring(self, page: str, options: dict[str, Any]) -> dict[str, Any]:
        """A document of the server's monitoring. Raises RefusedError (503)."""
        if self._given is not None:
            return await self._given(page, options)
        if self.settings.monitoring:
            return await self._over_http(page, options)
        return await self._system(page, options)

    async def jobs(self, path: str, method: str = "GET", **keywords: Any) -> Any:
        """A document of the job service. Raises RefusedError (503)."""
        if not self.settings.jobs:
            raise _unavailable("no job service; start the console with --jobs URL")
        headers = {"Accept": "application/json", **keywords.pop("headers", {})}
        if self.settings.jobs_token:
            headers["Authorization"] = f"Bearer {self.settings.jobs_token}"
        url = self.settings.jobs.rstrip("/") + path
        response = await self._request("the job service", method, url, headers=headers, **keywords)
        if response.status_code >= 400:
            raise _unavailable(_said(response))
        return _document(response.content, "the job service") if response.content else {}

    async def _judge_jobs(self, findings: Findings) -> None:
        status, said = await self.jobs("/_status"), await self.jobs("/v2/feeds")
        now = datetime.now(UTC)
        understood(lambda: judge_jobs(findings, status, said["feeds"], now), "the job service")

    async def _over_http(self, page: str, options: dict[str, Any]) -> dict[str, Any]:
        url = f"{self.settings.monitoring.rstrip('/')}/{page.lower()}"
        said = {name: _query(value) for name, value in options.items()}
        response = await self._request(_MONITORING, "GET", url, params=said)
        if response.status_code >= 400:
            raise _unavailable(f"{_MONITORING} answered {response.status_code}")
        found = _document(response.content, _MONITORING)
        if not isinstance(found, dict):
            raise _unavailable(f"{_MONITORING} answered no JSON object")
        return found

    async def _system(self, page: str, options: dict[str, Any]) -> dict[str, Any]:
        import msgspec

        server = self.connection.server_info.server_id
        subject = f"$SYS.REQ.SERVER.{server}.{page}"
        if page == _ACCOUNTS:  # which has another name there, and so has its option
            subject = "$SYS.REQ.ACCOUNT.PING.STATZ"
            options = {"include_unused": options.get("unused", False)}
        try:
            reply = await self.connection.request(
                subject, msgspec.json.encode(options), timeout=2.0
            )
        except HeadraceError as error:
            raise _unavailable(
                "connections and accounts are shown to users of the system account; connect as one of"
                " them, or name the server's monitoring port: --monitoring http://127.0.0.1:8222"
            ) from error
        document = _document(reply.payload, "the server")
        found = document.get("data", document) if isinstance(document, dict) else None
        if not isinstance(found, dict):
            raise _unavailable("what the server answered is not a JSON object")
        return found

    async def _request(self, who: str, method: str, url: str, **keywords: Any) -> Any:
        """Ask over HTTP. Where it is, and as whom, is for the log: browsers are not told."""
        import httpx2

        if self._http is None:
            self._http = httpx2.AsyncClient(timeout=HTTP_TIMEOUT_S, follow_redirects=False)
            self._stack.push_async_callback(self._http.aclose)
        try:
            return await self._http.request(method, url, **keywords)
        except httpx2.HTTPError as error:
            _LOG.warning("%s cannot be asked: %s %s", who, type(error).__name__, error)
            raise _unavailable(f"{who} does not answer; the console's log says why") from error


def understood(read: Callable[[], T], who: str) -> T:
    """Have ``read`` take something out of a document of ``who``. Raises RefusedError (503)."""
    try:
        return read()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise _unavailable(f"{who} answered in a form that this console does not know") from error


def _document(said: bytes, who: str) -> Any:
    try:
        return read_json(said)
    except DocumentError as error:
        raise _unavailable(f"what {who} answered cannot be read: {error}") from error


def _unavailable(text: str) -> RefusedError:
    """Refuse a page whose source is not there; the text says how to give it."""
    return RefusedError(503, "not_there", text)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])  # whoever cancels this meanwhile is heard, too
    if not task.cancelled():
        task.result()


def _query(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _said(response: Any) -> str:
    """Quote what a job service said of an error."""
    try:
        return str(read_json(response.content)["message"])
    except (ValueError, KeyError, TypeError):
        return f"the job service answered {response.status_code}"
