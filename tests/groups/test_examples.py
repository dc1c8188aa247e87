"""The worker of the guide, started twice as its reader does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import guides
import peers
from headrace.client import JetStream
from headrace.groups import GroupNotFoundError, elastic
from waiting import until

WORKER = guides.ROOT / "examples" / "group_worker.py"

pytestmark = pytest.mark.peer


@asynccontextmanager
async def worker(name: str, url: str, said: list[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(WORKER), name, url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None

    async def listen(output: asyncio.StreamReader) -> None:
        async for line in output:
            said.append(line.decode().strip())  # noqa: PERF401 as they come

    listening = asyncio.create_task(listen(process.stdout))
    try:
        yield process
        await asyncio.wait_for(process.wait(), 10)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await listening


async def test_two_workers_share_a_stream_until_the_group_is_deleted(
    js: JetStream, reference_server: peers.ServerProcess
) -> None:
    said: list[str] = []
    async with (
        worker("a", reference_server.url, said) as first,
        worker("b", reference_server.url, said) as second,
    ):

        async def are_members() -> bool:
            try:
                return (await elastic.get(js, "ORDERS", "billing")).members == ("a", "b")
            except GroupNotFoundError:
                return False

        await until(are_members, within=20)
        for number in range(8):
            await js.publish(f"orders.customer-{number}", b"%d" % number)
        await until(lambda: sum("bills" in line for line in said) >= 8, within=20)
        await elastic.delete(js, "ORDERS", "billing")
    assert (first.returncode, second.returncode) == (0, 0)
    assert {"a is active", "b is active"} <= set(said)
    assert {line.partition(" bills ")[2] for line in said if "bills" in line} == {
        f"orders.customer-{number}: {number}" for number in range(8)
    }
