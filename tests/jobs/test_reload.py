"""A running service takes a changed configuration: what changes, what waits for a restart, what has left."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
import pytest

from headrace.jobs.config import load_config
from headrace.jobs.server import serve
from waiting import until

pytestmark = pytest.mark.one_database

DEFINITIONS = """
[producers.p]
token = "pt"
[channels.c]
token = "ct"
[channels.c.consumers.k]
token = "kt"
type = "pull"
"""
GOING = """
[channels.c.consumers.old]
token = "ot"
type = "pull"
"""
PUBLISHER = {
    "X-Broker-Channel-Token": "ct",
    "X-Broker-Producer-ID": "p",
    "X-Broker-Producer-Token": "pt",
}


@dataclass
class Served:
    """A service in this process, and its file."""

    http: httpx2.AsyncClient
    path: Path
    log: pytest.LogCaptureFixture

    async def reload(self, text: str, said: str) -> None:
        """Write the file, send the signal, wait for what is logged."""
        self.path.write_text(text)
        self.log.clear()
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: said in self.log.text, f"never said: {said}")


@pytest.fixture
async def served(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Served]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    path = tmp_path / "jobs.toml"
    flags = {"database": database_url, "port": 0, "push": False}
    caplog.set_level(logging.INFO, "headrace.jobs")
    path.write_text(DEFINITIONS + GOING)
    read = partial(load_config, path, flags)
    task = asyncio.create_task(serve(read(), address.set_result, read))
    async with asyncio.timeout(20):
        async with httpx2.AsyncClient(base_url=await address) as http:
            yield Served(http, path, caplog)
        signal.raise_signal(signal.SIGTERM)
        await task


async def test_a_signal_reloads_what_it_can_and_names_what_needs_a_restart(served: Served) -> None:
    http = served.http

    async def publish(payload: bytes, expect: int) -> None:
        answer = await http.post("/channel/c/broadcast", content=payload, headers=PUBLISHER)
        assert answer.status_code == expect, answer.text

    async def settings() -> tuple[str, int]:
        return (
            (await http.get("/v2/channel/c/consumer/k")).json()["name"],
            (await http.get("/v2/channel/c/consumer/k")).json()["max_retries"],
        )

    await publish(b"12345", 201)
    named = DEFINITIONS + GOING + '[channels.c.consumers.new]\ntoken = "n"\ntype = "pull"\n'
    await served.reload(
        "payload_bytes_max = 4\nmax_retries = 3\ndatabase_threads = 5\n" + named,
        "in force only after a restart: database_threads",
    )
    await publish(b"12345", 413)
    await publish(b"1234", 201)
    made = (await http.get("/v2/channel/c/consumer/new")).json()
    assert made["max_retries"] == 3
    before = await settings()
    for mistake, said in (
        ("payload_bytes_max = 'x'", "nothing has changed"),
        ("port =", "nothing has changed"),
        ("payload_bytes_max = 9\n[channels.c]\ntoken = ''", "nothing has changed"),
    ):
        await served.reload(mistake, said)
        await publish(b"12345", 413)
    assert await settings() == before
    served.log.clear()
    await served.reload("payload_bytes_max = 5\n" + named, "was read again")
    await publish(b"12345", 201)


async def test_a_consumer_that_left_the_file_is_reported_with_what_waits_and_stays(
    served: Served,
) -> None:
    http = served.http
    for _ in range(3):
        assert (await http.post("/channel/c/broadcast", content=b"x", headers=PUBLISHER)).is_success
    await served.reload(
        DEFINITIONS, "c/old is not in the configuration any more, and stays: 3 jobs wait"
    )

    async def left() -> dict[str, bool]:
        consumers = (await http.get("/_status")).json()["consumers"]
        return {one["consumer"]: one["left_configuration"] for one in consumers}

    assert await left() == {"k": False, "old": True}
    events = (await http.get("/v2/events")).json()["events"]
    assert [(one["kind"], one["consumer"]) for one in events] == [("left_configuration", "old")]
    await served.reload(DEFINITIONS, "c/old is not in the configuration any more")
    assert len((await http.get("/v2/events")).json()["events"]) == 1, "told once, logged each time"
    await served.reload(DEFINITIONS + GOING, "was read again")
    assert await left() == {"k": False, "old": False}
    await served.reload("", "c/k is not in the configuration any more")
    assert await left() == {"k": True, "old": True}
