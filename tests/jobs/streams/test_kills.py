"""A service that pushes from a stream is killed in the middle, again and again: nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

import peers
from headrace.client import JetStream, connect
from jobs_endpoint import Call, Endpoint, answer
from portions import portion
from stream_channel_world import SUBJECTS, StreamWorld, stream_world
from waiting import until

KEYS = ("a", "b", "")
CONFIG = """
database = {database}
allow_networks = ["127.0.0.0/8"]
[streams]
url = "{url}"
ack_wait_seconds = 2
[channels.c]
token = "ct"
stream = {{ name = "S" }}
[channels.c.consumers.h]
token = "ht"
callback_url = "{endpoint}"
[channels.c.consumers.h.settings]
concurrency = 4
timeout_s = 1
breaker = {{ failures = 1000 }}
retry = {{ kind = "schedule", delays_s = [0.2] }}
"""


class Service:
    """A process of the service, which can be killed and started again."""

    def __init__(self, config: Path) -> None:
        self.port = peers.free_port()
        self._config = config
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headrace", "jobs", "serve"),
            *("--port", str(self.port), "--config", str(self._config)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def end(self, number: int = signal.SIGKILL) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)
        await self._process.wait()

    async def standing(self) -> dict[str, object]:
        url = f"http://127.0.0.1:{self.port}/v2/channel/c/consumer/h/stream"
        try:
            async with httpx2.AsyncClient(verify=False) as http:
                found: dict[str, object] = (await http.get(url)).json()
        except httpx2.TransportError:
            return {}
        return found


async def publish(js: JetStream, first: int, last: int) -> None:
    async with js.publisher() as publisher:
        for number in range(first, last):
            key = KEYS[number % 3]
            headers = {"X-Broker-Ordering-Key": key} if key else {}
            await publisher.send("s.a", b"%d" % number, headers=headers)


@pytest.mark.timeout(400)
async def test_each_message_is_delivered_and_those_of_a_key_in_order_whatever_is_killed(
    database_url: str, broker_url: str, tmp_path: Path
) -> None:
    """Some calls fail, too. A message may be called again after a kill, and its followers with it."""
    total, kills = 150, portion(2, few=1)
    failed: set[bytes] = set()

    def respond(call: Call) -> bytes:
        if int(call.body) % 17 == 0 and call.body not in failed:
            failed.add(call.body)
            return answer(500)
        return answer()

    config = tmp_path / "jobs.toml"
    async with Endpoint(respond=respond, delay_s=0.01) as endpoint, connect(broker_url) as nats:
        text = CONFIG.format(
            database=json.dumps(database_url), url=broker_url, endpoint=endpoint.url
        )
        config.write_text(text)
        js = nats.jetstream()
        await js.create_stream(name="S", subjects=SUBJECTS)
        service = Service(config)
        await service.start()
        try:

            async def is_there() -> bool:
                return (await service.standing()).get("lag") == 0

            await until(is_there, "the service never begins", within=60)
            for kill in range(kills):
                before = len(endpoint.calls)
                await publish(js, total * kill // kills, total * (kill + 1) // kills)
                await endpoint.wait_for(before + 20, 60)
                await service.end()
                await service.start()

            async def is_done() -> bool:
                found = await service.standing()
                delivered = {call.body for call in endpoint.calls}
                return (found.get("lag"), found.get("under_way")) == (0, 0) and len(
                    delivered
                ) == total

            await until(is_done, "messages are missing", within=120)
        finally:
            await service.end(signal.SIGTERM)
    first: dict[str, list[int]] = defaultdict(list)
    for call in endpoint.calls:
        number = int(call.body)
        if KEYS[number % 3] and number not in first[KEYS[number % 3]]:
            first[KEYS[number % 3]].append(number)
    for key, numbers in first.items():
        assert numbers == sorted(numbers), f"those of {key} came out of order"


@asynccontextmanager
async def beside(world: StreamWorld) -> AsyncIterator[StreamWorld]:
    """Another process of the service, on the same database."""
    other = StreamWorld(world.database_url, world.broker_url, world.options, world.js)
    await other.start()
    try:
        yield other
    finally:
        await other.stop()


async def test_two_processes_share_the_consumers_and_take_over_what_one_gives_back(
    database_url: str, broker_url: str
) -> None:
    async with Endpoint(delay_s=0.002) as endpoint, stream_world(database_url, broker_url) as world:
        names = [f"h{number}" for number in range(6)]
        for name in names:
            await world.consumer(name, endpoint)
        async with beside(world) as other:

            async def is_shared() -> bool:
                ours, theirs = set(world.engine.consumers), set(other.engine.consumers)
                return not ours & theirs and len(ours | theirs) == len(names)

            await until(is_shared, "the consumers are not shared out", within=30)
            # Names that are random decide who has which: now and then all are one's.
            while not (world.engine.consumers and other.engine.consumers):
                names.append(f"h{len(names)}")
                await world.consumer(names[-1], endpoint)
                await until(is_shared, "the new consumer is nobody's", within=30)
            for number in range(20):
                await world.publish(number, key="k")
            await endpoint.wait_for(10 * len(names))
        for number in range(20, 30):
            await world.publish(number, key="k")
        for name in names:
            await world.until_done(name, last=30)
        called: dict[str, list[int]] = defaultdict(list)
        for call in endpoint.calls:
            called[call.headers["x-broker-consumer-id"]].append(int(call.body))
        assert called == {name: list(range(30)) for name in names}
