"""Services that feed jobs from a stream are killed again and again: each message becomes one, in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import peers
from headrace.client import connect
from headrace.jobs.store import open_database
from portions import portion
from waiting import until

CONFIG = """
database = {database}
[channels.c]
token = "ct"
[channels.c.consumers.k]
token = "kt"
type = "pull"
[[feeds]]
channel = "c"
stream = "S"
url = "{url}"
batch = 20
ordering_key = "subject"
"""


class Service:
    """A process of the service, which can be killed and started again."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headrace", "jobs", "serve"),
            *("--port", str(peers.free_port()), "--config", str(self._config)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def end(self, number: int = signal.SIGKILL) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)
        await self._process.wait()


@asynccontextmanager
async def two(config: Path) -> AsyncIterator[list[Service]]:
    services = [Service(config), Service(config)]
    for service in services:
        await service.start()
    try:
        yield services
    finally:
        for service in services:
            await service.end(signal.SIGTERM)


@pytest.mark.timeout(400)
async def test_each_message_becomes_one_job_in_order_whatever_is_killed(
    database_url: str, broker_url: str, tmp_path: Path
) -> None:
    total, kills = portion(3000, few=1000), portion(4, few=2)
    config = tmp_path / "jobs.toml"
    config.write_text(CONFIG.format(database=json.dumps(database_url), url=broker_url))
    database = open_database(database_url, threads=1)
    await database.start()

    async def stored() -> list[int]:
        rows = await database.read(lambda tx: tx.all("whole_page_job", after=0, n=2 * total))
        messages = await database.read(
            lambda tx: tx.all("whole_page_message", after=0, n=2 * total)
        )
        payloads = {row["seq"]: int(bytes(row["payload"])) for row in messages}
        return [payloads[row["message_seq"]] for row in rows]

    try:
        async with connect(broker_url) as nats, two(config) as services:
            js = nats.jetstream()
            await js.create_stream(name="S", subjects=("s.*",))

            async def more_than(count: int) -> bool:
                return len(await stored()) > count

            for kill in range(kills):
                before = len(await stored())
                async with js.publisher() as publisher:
                    for number in range(total * kill // kills, total * (kill + 1) // kills):
                        await publisher.send(f"s.{number % 3}", b"%d" % number)
                await until(lambda at=before: more_than(at), "nothing is fed", within=60)  # type: ignore[misc]
                for service in services[: 1 + kill % 2]:
                    await service.end()
                    await service.start()
            await until(lambda: more_than(total - 1), "messages are missing", within=120)
            assert await stored() == [*range(total)]
    finally:
        await database.close()
