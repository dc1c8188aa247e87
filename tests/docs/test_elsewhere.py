"""The programs of the page about curl, Node and Go run against a service."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import guides
import peers
from headrace.jobs.client import AsyncJobsClient
from waiting import until

PAGE = guides.ROOT / "docs" / "how-to" / "jobs-from-elsewhere.md"
ADDRESS = "http://127.0.0.1:8080"
TOKENS = {"CHANNEL_TOKEN": "ct", "CONSUMER_TOKEN": "kt"}

pytestmark = pytest.mark.timeout(240)


def blocks(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", guides.text_of(PAGE))


def program(name: str) -> str:
    """The one whose first line names its file."""
    every = [*blocks("js"), *blocks("go")]
    return next(each for each in every if each.startswith(f"// {name}\n"))


@contextlib.asynccontextmanager
async def running(*command: str, **settings: str) -> AsyncIterator[Process]:
    """A process, which is over at the end, whatever happens."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, env={**os.environ, **settings}
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(120):
        return (await process.stdout.readline()).decode().strip()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[str]:
    command = (sys.executable, "-m", "headrace", "jobs", "serve", "--port", "0")
    options = ("--allow-network", "127.0.0.0/8", "--database", f"sqlite:///{tmp_path}/jobs.db")
    async with running(*command, *options) as process:
        yield (await line_of(process)).split()[-1]


async def define(client: AsyncJobsClient) -> None:
    await client.put_producer("p", token="pt")
    await client.put_channel("orders", token="ct")
    await client.put_consumer("orders", "mailer", kind="pull", token="kt")


async def publish(client: AsyncJobsClient, payload: bytes) -> None:
    tokens: dict[str, Any] = {"channel_token": "ct", "producer": "p", "producer_token": "pt"}
    await client.publish("orders", payload, **tokens)


async def test_curl_defines_publishes_takes_and_completes(service: str, tmp_path: Path) -> None:
    (script,) = blocks("sh")
    assert script.count(ADDRESS) == 1
    file = tmp_path / "jobs.sh"
    file.write_text(script.replace(ADDRESS, service))
    process = await asyncio.create_subprocess_exec("sh", str(file), stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(120):
            said, wrong = (text.decode() for text in await process.communicate())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, wrong + said
    published, taken, done = said.splitlines()
    assert '"jobs":1' in published
    assert r"{\"order\": 1}" in taken
    assert '"code":"ok"' in done
    async with AsyncJobsClient(service) as client:
        found = [job async for job in client.find_jobs("orders")]
    assert [job["state"] for job in found] == ["DELIVERED"]


async def work_with(service: str, *command: str) -> None:
    """A worker finishes a job, fails another, and ends by itself after SIGTERM."""
    async with AsyncJobsClient(service) as client:
        await define(client)
        async with running(*command, JOBS_URL=service, **TOKENS) as process:
            await publish(client, b'{"order": 7}')
            assert await line_of(process) == "order 7, attempt 1"
            await publish(client, b"no JSON")

            async def is_done() -> bool:
                found = {job["message"]: job async for job in client.find_jobs("orders")}
                states = sorted(job["state"] for job in found.values())
                errors = [job["last_error"] for job in found.values() if job["last_error"]]
                return states == ["DELIVERED", "QUEUED"] and len(errors) == 1

            await until(is_done, within=60)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                assert await process.wait() == 0


async def test_the_worker_in_node_works_fails_and_stops(service: str, tmp_path: Path) -> None:
    node = shutil.which("node") or peers.missing_peer("Node", "install Debian's package nodejs")
    file = tmp_path / "worker.mjs"
    file.write_text(program("worker.mjs"))
    await work_with(service, node, str(file))


@pytest.mark.timeout(900)
async def test_the_worker_in_go_works_fails_and_stops(service: str, tmp_path: Path) -> None:
    go = shutil.which("go") or pytest.skip("Go is not installed here")
    file, made = tmp_path / "worker.go", tmp_path / "worker"
    file.write_text(program("worker.go"))
    async with running(go, "build", "-o", str(made), str(file)) as building:
        async with asyncio.timeout(600):  # the first time, the standard library is compiled
            assert await building.wait() == 0
    await work_with(service, str(made))


async def test_the_endpoint_in_node_takes_what_the_service_signed_and_nothing_else(
    service: str, tmp_path: Path
) -> None:
    import httpx2

    node = shutil.which("node") or peers.missing_peer("Node", "install Debian's package nodejs")
    file, port = tmp_path / "hook.mjs", peers.free_port()
    file.write_text(program("hook.mjs"))
    url = f"http://127.0.0.1:{port}/"
    async with AsyncJobsClient(service) as client:
        await define(client)
        await client.put_consumer("orders", "hook", kind="push", callback_url=url)
        secret = await client.rotate_secret("orders", "hook")
        async with running(node, str(file), WEBHOOK_SECRET=secret, PORT=str(port)) as process:
            assert await line_of(process) == "listening"
            async with httpx2.AsyncClient() as stranger:
                forged = {"webhook-id": "msg_1", "webhook-signature": "v1,AAAA"}
                for stamp in ("", "1", "9999999999"):
                    headers = {**forged, "webhook-timestamp": stamp}
                    refused = await stranger.post(url, content=b"x", headers=headers)
                    assert refused.status_code == 401
            await publish(client, b'{"order": 8}')
            said = await line_of(process)
            assert re.fullmatch(r'msg_\d+ \{"order": 8\}', said)

            async def is_delivered() -> bool:
                found = client.find_jobs("orders", consumer="hook", states=["DELIVERED"])
                return len([job async for job in found]) == 1

            await until(is_delivered, within=60)
