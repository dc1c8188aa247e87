"""An HTTP server on the loopback that does what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from listening import HOST, Listening

__all__ = ["Call", "Endpoint", "answer"]


@dataclass(frozen=True)
class Call:
    """A request that arrived."""

    target: str
    headers: dict[str, str]
    body: bytes


def answer(status: int = 200, body: bytes = b"", **headers: str) -> bytes:
    """A whole HTTP answer."""
    named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Word\r\nContent-Length: {len(body)}\r\n{named}\r\n".encode() + body


@dataclass
class Endpoint:
    """Listens while it is entered. ``respond`` decides what to answer; bytes go out as they are."""

    respond: Callable[[Call], bytes] = lambda call: answer()
    delay_s: float = 0.0
    calls: list[Call] = field(default_factory=list)
    running: int = 0
    most_at_once: int = 0
    connections: int = 0
    port: int = 0

    async def __aenter__(self) -> Endpoint:
        self._arrived = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self._listening = await Listening(self._serve, self.port).listen()
        self.port = self._listening.port
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._listening.close()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/hook?x=1"

    async def wait_for(self, calls: int, timeout_s: float = 10.0) -> list[Call]:
        """Until so many calls have arrived."""
        async with asyncio.timeout(timeout_s), self._arrived:
            await self._arrived.wait_for(lambda: len(self.calls) >= calls)
        return self.calls

    def cut(self) -> None:
        """Close every connection, as an endpoint does with idle ones."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in head[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self._handle(Call(head[0].split(" ")[1], headers, body), writer)
        finally:
            self._writers.discard(writer)

    async def _handle(self, call: Call, writer: asyncio.StreamWriter) -> None:
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
        finally:
            self.running -= 1
        async with self._arrived:
            self.calls.append(call)
            self._arrived.notify_all()
        writer.write(self.respond(call))
        await writer.drain()
