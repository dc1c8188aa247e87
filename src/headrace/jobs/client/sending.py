"""How requests reach the service: over httpx, on an event loop or by the thread that calls."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from functools import partial
from typing import Any, Final, TypeAlias

import httpx2

from ...handling.threads import Threads
from .calls import Call, ServiceAnswer, Settings, client_closed, unreachable

__all__ = ["BlockingSender", "LoopSender", "Sender"]


class LoopSender:
    """Sends on the event loop.

    Attributes:
        settings: of the client whose requests it sends.
    """

    def __init__(self, settings: Settings, transport: httpx2.AsyncBaseTransport | None) -> None:
        self.settings = settings
        self._http = httpx2.AsyncClient(transport=transport, **_options(settings))

    @property
    def url(self) -> httpx2.URL:
        """Where the service is; said as text, without the password."""
        return self._http.base_url

    async def send(self, call: Call[Any]) -> ServiceAnswer:
        """The answer to a request. Raises JobsError: there is none."""
        try:
            response = await self._http.request(**_request(call, self.settings))
        except httpx2.HTTPError as error:
            raise unreachable(error) from error
        except RuntimeError as error:
            if not self._http.is_closed:
                raise
            raise client_closed() from error
        return _answer(response)

    async def pause(self, seconds: float) -> None:
        """Do nothing for some seconds."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


class BlockingSender:
    """Sends by the thread that calls; several may. What is awaited of it never waits: it blocks.

    A forked child goes on with connections of its own.

    Attributes:
        settings: of the client whose requests it sends.
    """

    def __init__(self, settings: Settings, transport: httpx2.BaseTransport | None) -> None:
        self.settings = settings
        self._transport = transport
        self._http = self._made()
        self._is_forked = False
        _blocking.add(self)

    @property
    def url(self) -> httpx2.URL:
        """Where the service is; said as text, without the password."""
        return self._http.base_url

    async def send(self, call: Call[Any]) -> ServiceAnswer:
        """The answer to a request. Raises JobsError: there is none."""
        if self._is_forked:
            self._begin_anew()
        try:
            response = self._http.request(**_request(call, self.settings))
        except httpx2.HTTPError as error:
            raise unreachable(error) from error
        except RuntimeError as error:
            if not self._http.is_closed:
                raise
            raise client_closed() from error
        return _answer(response)

    async def pause(self, seconds: float) -> None:
        """Do nothing for some seconds."""
        time.sleep(seconds)  # noqa: ASYNC251 - it is run by no loop

    async def close(self) -> None:
        """Close the connections."""
        if self._is_forked:
            self._begin_anew()
        self._http.close()

    def on_loop(self) -> LoopSender:
        """One for an event loop with the same settings; a transport is called on threads."""
        transport = None
        if self._transport is not None:
            transport = _OnThreads(self._transport, self.settings.connections)
        return LoopSender(self.settings, transport)

    def _made(self) -> httpx2.Client:
        return httpx2.Client(transport=self._transport, **_options(self.settings))

    def _begin_anew(self) -> None:
        """In a forked child: what is answered on the connections that it has is its parent's."""
        if not self._http.is_closed:
            self._http = self._made()
        self._is_forked = False


class _OnThreads(httpx2.AsyncBaseTransport):
    """A transport that blocks, on threads. Who made it closes it."""

    def __init__(self, inner: httpx2.BaseTransport, limit: int) -> None:
        self._inner = inner
        self._threads = Threads(limit, "transport", waits=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._threads.run(partial(self._handle, request))

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        response = self._inner.handle_request(request)
        try:
            content = b"".join(response.iter_raw())
        finally:
            response.close()
        return httpx2.Response(
            response.status_code, headers=response.headers, stream=httpx2.ByteStream(content)
        )

    async def aclose(self) -> None:
        self._threads.close()


Sender: TypeAlias = LoopSender | BlockingSender

_blocking: Final[weakref.WeakSet[BlockingSender]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for sender in list(_blocking):
        sender._is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _options(settings: Settings) -> dict[str, Any]:
    """What both clients of httpx are made with."""
    most = settings.connections
    return {
        "base_url": settings.url,
        "headers": settings.headers(),
        "trust_env": False,
        "verify": settings.trust(),
        "limits": httpx2.Limits(max_connections=most, max_keepalive_connections=most),
    }


def _request(call: Call[Any], settings: Settings) -> dict[str, Any]:
    """A request as both clients of httpx take it."""
    return {
        "method": call.method,
        "url": call.path,
        "headers": call.sent_headers(),
        "content": call.content,
        "timeout": call.timeout_s(settings.timeout_s),
    }


def _answer(response: httpx2.Response) -> ServiceAnswer:
    return ServiceAnswer(response.status_code, response.content, response.headers)
