"""A server of a test's own, on the test's loop: what it has accepted ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from headrace.sockets import stop_listening

__all__ = ["HOST", "Listening", "Serve"]

HOST: Final = "127.0.0.1"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listening:
    """Listens while it is entered. Each connection is served by ``serve``, and closed when that returns, or
    when its client has left in the middle.

    asyncio's own server is done when it listens no more. A connection that is still served then is closed by
    nobody, and told of in the test that runs when it is collected.
    """

    def __init__(self, serve: Serve, port: int = 0) -> None:
        self.port = port
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._writers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._failed: list[BaseException] = []

    @property
    def url(self) -> str:
        """Where it listens, as clients of NATS take it."""
        return f"nats://{HOST}:{self.port}"

    async def __aenter__(self) -> Self:
        return await self.listen()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def listen(self) -> Self:
        self._server = await asyncio.start_server(self._accept, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        """Listen no more, and cut every connection. Raises what a connection has failed with."""
        assert self._server is not None
        await stop_listening(self._server)
        for task, writer in list(self._writers.items()):
            task.cancel()
            writer.transport.abort()  # its task may not have begun
        while self._writers:
            await asyncio.wait(list(self._writers))
        for failure in self._failed:
            raise failure

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._run(reader, writer))
        self._writers[task] = writer
        task.add_done_callback(self._ended)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
            writer.close()  # what was written goes first
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has left
        finally:
            writer.transport.abort()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._writers[task]
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failed.append(failure)
