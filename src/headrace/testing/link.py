"""A link that is far: TCP to a server, forwarded after a while, in the order in which it was sent."""

from __future__ import annotations

import asyncio
import contextlib
import random as random_module
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from ..errors import ConfigurationError
from ..sockets import stop_listening

__all__ = ["Link"]

_CHUNK_BYTES: Final = 65_536
_CHUNKS_MAX: Final = 1024
"""Under way in each direction of a connection; beyond that the sender waits, as on a link that is full."""


class Link:
    """Forwards TCP to a server, each direction after a delay. For tests of programs whose server is far.

    A context manager, for tests with and without an event loop: it runs on a thread of its own::

        with Link(broker.client_url, round_trip_s=0.04) as link:
            with sync.connect(link.url) as connection: ...

    The delays may be changed while it runs; they hold for what is sent from then on.

    Args:
        server: the address of the server, ``nats://127.0.0.1:4222`` or with another scheme.
        round_trip_s: seconds for both ways together.
        jitter_s: so much longer at most, by chance, on each way. What was sent later does not arrive earlier.
        to_server_share: how much of the round trip is the way to the server: 0.9 is a slow way there, and
            a fast one back.
        random: for the jitter.

    Attributes:
        round_trip_s, jitter_s, to_server_share: as given.
        url: what a client connects to, once it was entered.

    Raises:
        ConfigurationError: the address has no host and port, or a number is out of range.
    """

    def __init__(
        self,
        server: str,
        round_trip_s: float,
        *,
        jitter_s: float = 0.0,
        to_server_share: float = 0.5,
        random: random_module.Random | None = None,
    ) -> None:
        parts = urlsplit(server)
        if not parts.hostname or not parts.port:
            raise ConfigurationError(
                f"server is {server!r}; accepted: an address with host and port, nats://127.0.0.1:4222"
            )
        if round_trip_s < 0 or jitter_s < 0 or not 0 <= to_server_share <= 1:
            raise ConfigurationError(
                f"round_trip_s is {round_trip_s!r}, jitter_s {jitter_s!r}, to_server_share "
                f"{to_server_share!r}; accepted: seconds from 0 on, and a share from 0 to 1"
            )
        self.round_trip_s = round_trip_s
        self.jitter_s = jitter_s
        self.to_server_share = to_server_share
        self.url = ""
        self._scheme = parts.scheme
        self._target = (parts.hostname, parts.port)
        self._random = random or random_module.Random()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        host, port = self._target
        return f"<Link to {host}:{port}, {self.round_trip_s:g} s there and back>"

    def __enter__(self) -> Self:
        listening = threading.Event()
        failed: list[OSError] = []

        def run() -> None:
            try:
                self._loop.run_until_complete(self._run(listening))
            except OSError as error:  # no port to listen on
                failed.append(error)
                listening.set()
            finally:
                self._loop.close()

        self._thread = threading.Thread(target=run, name="headrace-link", daemon=True)
        self._thread.start()
        listening.wait()
        if failed:
            raise failed[0]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._thread is not None
        self.cut()
        self._thread.join()

    def cut(self) -> None:
        """End every connection at once, with what is on its way, and accept no others: as for the server, so
        for the client whoever is at the other end is gone."""
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._over.set)

    async def _run(self, listening: threading.Event) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"{self._scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        listening.set()
        await self._over.wait()
        await stop_listening(server)
        connections = dict(self._connections)
        for task, writer in connections.items():
            task.cancel()
            writer.transport.abort()  # its task may not have begun
        if connections:
            await asyncio.wait(connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._forward(reader, writer)
        except OSError:
            pass  # the server is gone: the client sees its connection end
        finally:
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        ways = [
            _Way(reader, up_writer, lambda: self._delay_s(self.to_server_share)),
            _Way(up_reader, writer, lambda: self._delay_s(1 - self.to_server_share)),
        ]
        tasks = [asyncio.ensure_future(run()) for way in ways for run in (way.take, way.deliver)]
        try:
            # An end of either side reaches the other one behind what was sent before.
            await asyncio.wait(tasks[1::2], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks)
            up_writer.transport.abort()

    def _delay_s(self, share: float) -> float:
        return self.round_trip_s * share + self.jitter_s * self._random.random()


class _Way:
    """One direction of a connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        delay_s: Callable[[], float],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._delay_s = delay_s
        self._time = asyncio.get_running_loop().time
        self._under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_MAX)

    async def take(self) -> None:
        arrives = 0.0
        data = b"the first"
        while data:
            try:
                data = await self._reader.read(_CHUNK_BYTES)
            except OSError:
                data = b""  # cut: no more than an end can be told
            arrives = max(arrives, self._time() + self._delay_s())
            await self._under_way.put((arrives, data))

    async def deliver(self) -> None:
        while True:
            arrives, data = await self._under_way.get()
            if (left := arrives - self._time()) > 0:
                await asyncio.sleep(left)
            if not data:
                self._writer.close()  # what was written before goes first
                with contextlib.suppress(OSError):
                    await self._writer.wait_closed()
                return
            self._writer.write(data)
            try:
                await self._writer.drain()
            except OSError:
                return  # it has gone
