"""Small pages over HTTP (numbers, probes, monitoring) with nothing but the standard library.

Each connection brings one GET or HEAD request and is closed after the answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast
from urllib.parse import SplitResult, urlsplit

from ..sockets import stop_listening
from .connections import SWEEP_S, ConnectionLimits, Waiting, address_of

if TYPE_CHECKING:
    import socket

__all__ = [
    "NUMBERS",
    "PAGE_LIMITS",
    "Page",
    "PageServer",
    "PageThread",
    "plain",
]

NUMBERS: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The type of Prometheus' text format."""

ANSWERS_MAX: Final = 64  # answers made or sent at a time; one more request: 503
ANSWER_S: Final = 5.0  # a slower reader is cut

PAGE_LIMITS: Final = ConnectionLimits(connections_max=256, head_s=5.0)

_PLAIN: Final = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """One answer: status, type of the content, and the content."""

    status: int
    kind: str
    body: bytes
    more: str = ""
    """Further header lines, each with its end."""


def plain(status: int, text: str, more: str = "") -> Page:
    """A page of plain text."""
    return Page(status, _PLAIN, text.encode(), more)


Answer = Callable[[SplitResult], Page | Awaitable[Page]]
"""Function that returns the page at an address (path and query), at once or later."""


class PageServer:
    """Serves pages in the running loop.

    Args:
        answer: makes a page; an error that it raises is a 500, and goes to the loop's exception handler.
        limits: of its connections.
    """

    def __init__(self, answer: Answer, limits: ConnectionLimits = PAGE_LIMITS) -> None:
        self._answer = answer
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone = asyncio.Event()
        self._open = 0  # also those that were dropped, until they have ended
        self.answering = 0
        self.host, self.port = "", 0

    async def listen(self, host: str, port: int) -> Self:
        """Serve at an address; port 0 is any free one. Raises OSError: it cannot be had."""
        return await self._listen(host=host, port=port)

    async def listen_on(self, listener: socket.socket) -> Self:
        """Serve on a bound socket, which is closed with the server."""
        return await self._listen(sock=listener)

    async def _listen(self, **where: Any) -> Self:
        loop = asyncio.get_running_loop()
        self.waiting: Waiting[_PageConnection] = Waiting(self._limits, loop.time, _abort)
        self._server = await loop.create_server(lambda: _PageConnection(self, loop), **where)
        self.host, self.port = self._server.sockets[0].getsockname()[:2]
        return self

    @property
    def address(self) -> str:
        """Host and port, as they stand in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def close(self) -> None:
        """Stop listening, and end what is being served."""
        if self._server is None:
            return
        self.waiting.end()
        await stop_listening(self._server)
        if self._sweep is not None:
            self._sweep.cancel()
        for task in self._tasks:
            task.cancel()
        self.waiting.drop_all()
        if self._open:
            self._gone.clear()
            await self._gone.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    # What a connection calls

    def opened(self, connection: _PageConnection, peer: object) -> bool:
        """Take in a connection; False: there is no room."""
        self._open += 1
        if not self.waiting.opened(connection, address_of(peer)):
            return False
        self._arm()
        return True

    def closed(self, connection: _PageConnection) -> None:
        """Forget a connection."""
        self.waiting.closed(connection)
        self._open -= 1
        if not self._open:
            self._gone.set()

    def answer(self, connection: _PageConnection, head: bytes) -> None:
        """Have a request answered, by ``connection.send``."""
        page, headed = self._page(head)
        if isinstance(page, Page):
            connection.send(page, headed)
            return
        task = asyncio.ensure_future(self._later(connection, page, headed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _later(
        self, connection: _PageConnection, page: Awaitable[Page], headed: bool
    ) -> None:
        try:
            made = await page
        except Exception as error:
            made = _defect(error)
        connection.send(made, headed)

    def _page(self, head: bytes) -> tuple[Page | Awaitable[Page], bool]:
        """Answer a request head; and whether it asks for the answer's head alone."""
        line = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(line) != 3 or not line[2].startswith("HTTP/1."):
            return plain(400, "this port speaks HTTP/1.1\n"), False
        method, target, _version = line
        if method not in ("GET", "HEAD"):
            return plain(405, "accepted are GET and HEAD\n", "Allow: GET, HEAD\r\n"), False
        headed = method == "HEAD"
        if self.answering > ANSWERS_MAX:
            return plain(503, "too many requests at a time\n"), headed
        try:
            url = urlsplit(target)
        except ValueError as error:
            return plain(400, f"what is asked for is no address: {error}\n"), headed
        try:
            return self._answer(url), headed
        except Exception as error:
            return _defect(error), headed

    def _arm(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._swept)

    def _swept(self) -> None:
        self._sweep = None
        self.waiting.sweep()
        if len(self.waiting):
            self._arm()


class _PageConnection(asyncio.Protocol):
    """One connection: a request head in, an answer out, closed."""

    def __init__(self, server: PageServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._head = bytearray()
        self._asked = False
        self._half_closed = False
        self._deadline: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if not self._server.opened(self, transport.get_extra_info("peername")):
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._asked or self.transport is None or self.transport.is_closing():
            return  # what comes after the request is not read
        self._head += data
        end = self._head.find(b"\r\n\r\n", max(0, len(self._head) - len(data) - 3))
        most = self._server.waiting.limits.head_bytes_max
        if end < 0 and len(self._head) <= most:
            return
        self._asked = True
        self._server.answering += 1
        self._server.waiting.answer(self)
        head = bytes(self._head[:end]) if 0 <= end <= most else None
        self._head.clear()
        if head is None:
            self.send(plain(431, f"the request is longer than {most} bytes\n"), headed=False)
        else:
            self._server.answer(self, head)

    def send(self, page: Page, headed: bool) -> None:
        """Answer with ``page``, or with its head alone, and close."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.write(_response(page, headed))
        # A reader that stops, or goes on talking, is cut.
        self._deadline = self._loop.call_later(ANSWER_S, transport.abort)
        if transport.can_write_eof() and not self._half_closed:
            transport.write_eof()  # closing over unread input would take the answer with it
        else:
            transport.close()

    def eof_received(self) -> bool:
        # Half closed: who has asked may still read the answer. Once that is sent, both sides are done.
        self._half_closed = True
        return self._asked and self._deadline is None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._asked:
            self._server.answering -= 1
        self.transport = None
        self._server.closed(self)


class PageThread:
    """Serves pages from a thread of its own, for programs without a loop.

    Raises OSError: the address cannot be had.
    """

    def __init__(self, answer: Answer, host: str, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        try:
            self._server = self._loop.run_until_complete(PageServer(answer).listen(host, port))
        except BaseException:
            self._loop.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="headrace-pages", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Port on which it listens."""
        return self._server.port

    def close(self) -> None:
        """Stop serving."""
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    def _serve(self) -> None:
        async def serve() -> None:
            await self._ending.wait()
            await self._server.close()

        self._loop.run_until_complete(serve())
        self._loop.close()


def _abort(connection: _PageConnection) -> None:
    if connection.transport is not None:
        connection.transport.abort()


def _defect(error: Exception) -> Page:
    asyncio.get_running_loop().call_exception_handler(
        {"message": "a page could not be made", "exception": error}
    )
    return plain(500, "this page could not be made; the log says why\n")


def _response(page: Page, headed: bool) -> bytes:
    from email.utils import formatdate  # these two are a tenth of what a broker's start costs
    from http import HTTPStatus

    head = (
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\n"
        f"Date: {formatdate(usegmt=True)}\r\n"
        f"Content-Type: {page.kind}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        f"Connection: close\r\n{page.more}\r\n"
    ).encode()
    return head if headed else head + page.body
