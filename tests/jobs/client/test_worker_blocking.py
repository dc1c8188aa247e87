"""What a second of blocking costs a worker: a thread its own job, a coroutine everything on the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from headrace.jobs.client import LeasedJob, Worker
from headrace.jobs.client.aio import Queue
from jobs_world import World, jobs_client
from waiting import block, until

pytestmark = pytest.mark.one_database

BLOCKED_S = 0.3


@pytest.fixture
async def queue(world: World) -> AsyncIterator[Queue]:
    async with jobs_client(world.runtime) as client:
        yield client.queue("c", "k", channel_token="ct", consumer_token="kt")


async def test_a_function_that_blocks_costs_its_own_job_while_its_lease_is_renewed(
    world: World, queue: Queue
) -> None:
    release = threading.Event()
    ran: list[bytes] = []

    def work(job: LeasedJob) -> None:
        if job.payload == b"slow":
            assert release.wait(30)
        ran.append(job.payload)

    await world.broadcast("slow")
    slow = (await world.queued())[0]["ID"]
    made = Worker(queue, work, concurrency=2, lease_s=1, wait_s=1)
    task = asyncio.create_task(made.run())

    async def has_moved(before: Any) -> bool:
        return bool((await world.job(slow))["lease_expires_at"] != before)

    async def is_held() -> bool:
        return bool((await world.job(slow)).get("lease_expires_at"))

    try:
        await until(is_held, "the job is not claimed")
        for _ in range(3):  # for longer than its lease was
            before = (await world.job(slow))["lease_expires_at"]
            world.clock.advance(0.5)
            await until(partial(has_moved, before), "the lease is not renewed")
            assert (await world.sweep()).expired == 0
        await world.broadcast("quick")
        await until(lambda: made.completed == 1, "the other job waits for the thread")
        assert ran == [b"quick"]
    finally:
        release.set()
    await until(lambda: made.completed == 2)
    assert (ran, made.lost) == ([b"quick", b"slow"], 0)
    made.stop()
    async with asyncio.timeout(5):
        await task


async def test_a_coroutine_that_blocks_stops_everything_on_the_loop(
    world: World, queue: Queue
) -> None:
    loop = asyncio.get_running_loop()
    rang: list[float] = []
    due: list[float] = []

    async def work(job: LeasedJob) -> None:
        due.append(loop.time())
        loop.call_soon(lambda: rang.append(loop.time()))
        block(BLOCKED_S)

    await world.broadcast()
    made = Worker(queue, work, wait_s=1)
    task = asyncio.create_task(made.run())
    await until(lambda: made.completed == 1)
    assert rang[0] - due[0] >= BLOCKED_S
    made.stop()
    async with asyncio.timeout(5):
        await task
