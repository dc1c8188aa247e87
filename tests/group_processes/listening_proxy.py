"""A proxy that writes down what a client publishes: its API calls, and what it stores in buckets."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from headrace.wire import frames
from headrace.wire.headers import parse_headers
from headrace.wire.parser import Parser
from listening import Listening

__all__ = ["Call", "ListeningProxy", "Store"]

API = "$JS.API."
BUCKETS = "$KV."


@dataclass(frozen=True)
class Call:
    """One API call: its subject without the common beginning, and its body."""

    subject: str
    body: Any


@dataclass(frozen=True)
class Store:
    """A value for a key of a bucket, with what the headers say of it."""

    subject: str
    headers: tuple[tuple[str, str], ...]
    value: str


class ListeningProxy:
    """Forwards TCP to a server. ``calls`` are the API calls that came through, in their order, and ``stores``
    what was stored."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listening = Listening(self._serve)
        self.calls: list[Call] = []
        self.stores: list[Store] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        await self._listening.listen()
        self.url = self._listening.url
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._listening.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        try:
            await asyncio.gather(
                self._pump(reader, up_writer, Parser.for_server()),
                self._pump(up_reader, writer, None),
            )
        finally:
            up_writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, parser: Parser | None
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                for frame in parser.feed(data) if parser is not None else ():
                    self._note(frame)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # the other side is gone
        finally:
            writer.transport.abort()

    def _note(self, frame: frames.Frame) -> None:
        if frame[0] != frames.PUB:
            return
        _, subject, _, headers, payload = frame
        if subject.startswith(BUCKETS.encode()):
            pairs = tuple(parse_headers(headers).items())
            self.stores.append(Store(subject.decode(), pairs, payload.decode()))
        if subject.startswith(API.encode()):
            body = json.loads(payload) if payload.startswith(b"{") else payload.decode()
            self.calls.append(Call(subject.decode().removeprefix(API), body))
