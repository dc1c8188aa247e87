"""A proxy between client and server that can hurt the connections going through it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from listening import HOST, Listening


class ChaosProxy:
    """Forwards TCP to ``host:port``. ``reset()`` cuts every connection with RST, ``swallow()`` turns
    them into black holes, where bytes vanish and nothing is closed; while ``is_frozen`` it does so with new
    ones, too. ``go_away()`` refuses connections until ``come_back()``. ``passed`` tells what is let through
    of a piece that a client has sent."""

    def __init__(
        self,
        host: str,
        port: int,
        scheme: str = "nats",
        passed: Callable[[bytes], Awaitable[bytes]] | None = None,
    ) -> None:
        self._target = (host, port)
        self._scheme = scheme
        self._passed = passed
        self._pipes: set[_Pipe] = set()
        self._listening: Listening | None = None
        self.port = 0
        self.accepted = 0
        self.is_frozen = False

    @property
    def url(self) -> str:
        return f"{self._scheme}://{HOST}:{self.port}"

    async def __aenter__(self) -> Self:
        await self.come_back()
        return self

    async def come_back(self) -> None:
        self._listening = await Listening(self._serve, self.port).listen()
        self.port = self._listening.port

    async def go_away(self) -> None:
        assert self._listening is not None
        self.reset()
        await self._listening.close()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.go_away()

    def reset(self) -> None:
        for pipe in list(self._pipes):
            pipe.reset()

    def freeze(self) -> None:
        self.is_frozen = True
        self.swallow()

    def swallow(self) -> None:
        for pipe in list(self._pipes):
            pipe.swallowing = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        pipe = _Pipe(writer, up_writer)
        pipe.swallowing = self.is_frozen
        self._pipes.add(pipe)
        try:
            await asyncio.gather(
                pipe.pump(reader, up_writer, self._passed), pipe.pump(up_reader, writer)
            )
        finally:
            self._pipes.discard(pipe)
            up_writer.transport.abort()


class _Pipe:
    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self.writers = writers
        self.swallowing = False

    def reset(self) -> None:
        for writer in self.writers:
            raw = writer.get_extra_info("socket")
            if raw is not None and raw.fileno() >= 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passed: Callable[[bytes], Awaitable[bytes]] | None = None,
    ) -> None:
        try:
            while data := await reader.read(65536):
                if passed is not None:
                    data = await passed(data)
                if not self.swallowing:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass  # cut on purpose
        finally:
            for side in self.writers:
                side.transport.abort()
