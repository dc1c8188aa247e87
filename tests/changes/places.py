"""The servers and the job service that a soak of changes runs on, as processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import peers
import postgres_server
from headrace.jobs.client import AsyncJobsClient, JobsError

STARTS = 6
Kind = Literal["headrace", "nats-server"]

CHANNEL, CONSUMER = "c", "k"
PRODUCER: dict[str, Any] = {"channel_token": "ct", "producer": "p", "producer_token": "pt"}


@dataclass
class Server:
    """A broker, whose configuration is read again on a signal."""

    kind: Kind
    process: peers.ServerProcess
    restarts: int = 0
    is_down: bool = False
    was_down_at: float = float("-inf")

    @classmethod
    def start(cls, kind: Kind, folder: Path) -> Self:
        if kind == "headrace":
            return cls(kind, peers.start_headrace(folder, config="max_payload = 1048576"))
        return cls(kind, peers.start_nats_server(folder, config="max_payload: 1048576"))

    async def restart(self, *, kill: bool) -> None:
        """End it, politely or not, and start it again on its store and port."""
        self.is_down = True
        try:
            await asyncio.to_thread(self.process.kill if kill else self.process.stop)
            await asyncio.to_thread(self._start_again)
        finally:
            self.restarts += 1
            self.is_down = False
            self.was_down_at = time.monotonic()

    def _start_again(self) -> None:
        """A busy machine may need longer than a test gives it."""
        for _ in range(STARTS - 1):
            with contextlib.suppress(RuntimeError):
                return self.process.start_again()
        return self.process.start_again()

    def reload(self, max_payload: int) -> None:
        """Write another value into its configuration, and let it read that."""
        name, sign = ("headrace.toml", "=") if self.kind == "headrace" else ("nats.conf", ":")
        path = self.process.store_dir.parent / name
        kept = [line for line in path.read_text().splitlines() if "max_payload" not in line]
        path.write_text("\n".join([*kept, f"max_payload{sign} {max_payload}", ""]))
        self.process.process.send_signal(signal.SIGHUP)


@dataclass
class Service:
    """The job service, with a consumer that is pulled from or pushed to."""

    folder: Path
    database: str
    postgres: postgres_server.PostgresServer | None = None
    process: asyncio.subprocess.Process | None = None
    token: str = "kt"
    life: int = 0
    limits: dict[str, Any] = field(default_factory=lambda: {"max_retries": 50})
    consumer: str = CONSUMER
    databases: int = 0
    port: int = field(default_factory=peers.free_port)

    @classmethod
    async def start(cls, kind: Literal["sqlite", "postgres"], folder: Path) -> Self:
        server = None
        url = f"sqlite:///{folder / 'jobs.db'}"
        if kind == "postgres":
            server = await asyncio.to_thread(postgres_server.PostgresServer)
            await asyncio.to_thread(server.start)
            url = server.url()
        made = cls(folder, url, server)
        made.write()
        await made.run()
        async with made.client() as client:
            await client.put_producer("p", token="pt")
            await client.put_channel(CHANNEL, token="ct")
            await client.put_consumer(CHANNEL, CONSUMER, kind="pull", token=made.token)
        return made

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.end()
        if self.postgres is not None:
            await asyncio.to_thread(self.postgres.remove)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> AsyncJobsClient:
        return AsyncJobsClient(self.url)

    def write(self) -> None:
        """Its configuration file."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in self.limits.items()]
        lines += [f'database = "{self.database}"', 'allow_networks = ["127.0.0.0/8"]']
        (self.folder / "jobs.toml").write_text("\n".join([*lines, ""]))

    async def run(self) -> None:
        with (self.folder / "jobs.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headrace", "jobs", "serve", "--port", str(self.port)),
                *("--config", str(self.folder / "jobs.toml")),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        assert self.process.stdout is not None
        said = await self.process.stdout.readline()
        if b"listening" not in said:
            raise RuntimeError(f"the job service did not start: {said!r}")

    def reload(self) -> None:
        self.write()
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    async def end(self, *, kill: bool = False) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            async with asyncio.timeout(20):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    async def restart(self, *, kill: bool) -> None:
        await self.end(kill=kill)
        self.life += 1
        await self.run()

    async def next_database(self) -> str:
        """An empty one, of the other kind where there is a PostgreSQL."""
        self.databases += 1
        if self.postgres is not None and self.database.startswith("sqlite"):
            return await asyncio.to_thread(self.postgres.create, f"jobs{self.databases}")
        return f"sqlite:///{self.folder / f'jobs{self.databases}.db'}"

    async def counts(self) -> dict[str, int]:
        """Jobs by state."""
        async with self.client() as client:
            found = await client.consumer(CHANNEL, self.consumer)
        counts: dict[str, int] = found["jobs"]
        return counts


def is_away(error: JobsError) -> bool:
    """Whether the service is not there, or not for a moment."""
    return error.status in {0, 503}
