"""A stream of numbers on a server, and what can happen to it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import peers
from headrace.api.streams import SubjectTransformConfig
from headrace.cli import main
from headrace.client import JetStream, Stream, connect

__all__ = ["HAPPENINGS", "Happening", "RefusedError", "World", "command", "world_on"]

NUMBERED = SubjectTransformConfig(src="s.*", dest="{{partition(2,1)}}.s.{{wildcard(1)}}")


async def command(*words: str) -> tuple[int, str]:
    """Run a command in this process; its status and what it said."""
    said = io.StringIO()

    def run() -> int:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return main(list(words))

    return await asyncio.to_thread(run), said.getvalue()


class RefusedError(Exception):
    """Something refuses to go on, in these words."""


class World:
    """A stream ``S`` of numbers, and where it is: on a server of this kind, until it is moved."""

    def __init__(
        self, directory: Path, kind: str, stack: AsyncExitStack, *, numbered: bool
    ) -> None:
        self.directory = directory
        self.kind = kind
        self.stream = "S"
        self.numbered = numbered
        self.along = ["S"]
        """The streams that are copied together."""
        self.said = ""
        """By the command that was run last."""
        self.server = self._start(kind)
        self.url = self.server.url
        self._stack = stack
        stack.push_async_callback(self._end)
        self._servers = [self.server]
        self.js: JetStream = None  # type: ignore[assignment]  # given by the beginning

    def _start(self, kind: str) -> peers.ServerProcess:
        place = self.directory / f"server{len(list(self.directory.glob('server*')))}"
        return peers.start_either(kind, place, durable=True)

    async def _end(self) -> None:
        for server in self._servers:
            await asyncio.to_thread(server.kill if server.process.poll() is None else server.stop)

    async def begin(self) -> None:
        """Make the stream."""
        self.js = await self._connected(self.server)
        await self.make()

    async def make(self) -> Stream:
        return await self.js.create_stream(
            name="S",
            subjects=["s.*"],
            subject_transform=NUMBERED if self.numbered else None,
            allow_direct=True,
        )

    async def _connected(self, server: peers.ServerProcess) -> JetStream:
        connection = await self._stack.enter_async_context(connect(server.url))
        return connection.jetstream()

    async def turn_to(self, server: peers.ServerProcess) -> None:
        """Everything turns to this server from now on."""
        self._servers.append(server)
        self.url, self.js = server.url, await self._connected(server)

    async def another(self, kind: str) -> tuple[str, JetStream]:
        """Another server, of this kind."""
        server = await asyncio.to_thread(self._start, kind)
        self._servers.append(server)
        return server.url, await self._connected(server)

    async def publish(self, *numbers: int) -> None:
        for number in numbers:
            await self.js.publish("s.k", b"%d" % number)

    async def go_to(self, kind: str) -> str:
        """Have another server, to which everything turns from now on; the address of the one before."""
        before = self.url
        self.url, self.js = await self.another(kind)
        return before

    # What happens in two steps: beside what was read of it then.

    async def backed_up(self) -> None:
        await (await self.js.stream("S")).backup(self.directory / "backup")

    async def put_back(self) -> None:
        """The stream alone, as it was when it was backed up."""
        await self.js.delete_stream("S")
        await self.js.restore_stream(self.directory / "backup")

    async def backed_up_and_put_back(self) -> None:
        await self.backed_up()
        await self.put_back()

    async def store_copied(self) -> None:
        """The whole store."""
        await asyncio.to_thread(self.server.stop)
        shutil.copytree(self.server.store_dir, self.directory / "copy")
        await self._again()

    async def store_put_back(self) -> None:
        """The server as it was when its store was copied: what it has stored since is lost."""
        await asyncio.to_thread(self.server.kill)
        shutil.rmtree(self.server.store_dir)
        shutil.copytree(self.directory / "copy", self.server.store_dir)
        await self._again()

    async def _again(self) -> None:
        await asyncio.to_thread(self.server.start_again)
        self.js = await self._connected(self.server)

    async def copied(self) -> None:
        """To another server of its kind, by the command of the page."""
        here = await self.go_to(self.kind)
        for name in self.along:
            await self._run("copy", name, name, "--server", here, "--to-server", self.url)

    async def moved(self) -> None:
        """All of it to a server of the other kind, by the commands of the page."""
        (other,) = set(peers.EITHER) - {self.kind}
        await self.all_of_it_to(other)

    async def all_of_it_to(self, kind: str) -> None:
        """All of it to another server of this kind, by the commands of the page."""
        here = await self.go_to(kind)
        for verb, url in (("backup", here), ("restore", self.url)):
            await self._run(verb, "--all", str(self.directory / "all"), "--server", url)

    async def made_again(self) -> None:
        await self.js.delete_stream("S")
        await self.make()

    async def renamed(self) -> None:
        await self._run("rename", "S", "T", "--force", "--server", self.url)
        self.stream = "T"

    async def purged(self) -> None:
        await (await self.js.stream("S")).purge()

    async def repartitioned(self) -> None:
        await self._run("repartition", "S", "T", "4", "--force", "--server", self.url)
        self.stream = "T"

    async def _run(self, *words: str) -> None:
        status, self.said = await command("stream", *words)
        if status:
            raise RefusedError(self.said)


async def _nothing(_: World) -> None:
    """Nothing has to be done before."""


@dataclass(frozen=True)
class Happening:
    """What happens to a stream: ``before`` its last messages are read, and ``then``."""

    then: Callable[[World], Awaitable[None]]
    before: Callable[[World], Awaitable[None]] = _nothing


HAPPENINGS = {
    "restored": Happening(World.backed_up_and_put_back),
    "copied": Happening(World.copied),
    "moved": Happening(World.moved),
    "tail lost": Happening(World.store_put_back, World.store_copied),
    "older put back": Happening(World.put_back, World.backed_up),
    "made again": Happening(World.made_again),
    "renamed": Happening(World.renamed),
    "purged": Happening(World.purged),
    "repartitioned": Happening(World.repartitioned),
}


@asynccontextmanager
async def world_on(directory: Path, kind: str, *, numbered: bool) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        made = World(directory, kind, stack, numbered=numbered)
        await made.begin()
        yield made
