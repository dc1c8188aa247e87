"""Workers as processes: what SIGTERM and Ctrl-C do to the jobs that they have."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import pytest

from jobs_world import World
from waiting import until

pytestmark = pytest.mark.one_database

PROGRAM = """
import asyncio, sys, threading
from headrace.jobs.client import AsyncJobsClient, JobsClient, worker
kind, address, drain_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
tokens = {"channel_token": "ct", "consumer_token": "kt"}
options = {"wait_s": 1.0, "lease_s": 30.0, "drain_s": drain_s, "concurrency": 2}

def work(job):
    print("begins", flush=True)
    if job.payload == b"stuck":
        threading.Event().wait()
    while not job.is_stopping:  # what it does takes until it is asked to end, and is done then
        threading.Event().wait(0.02)

async def works(job):
    print("begins", flush=True)
    if job.payload == b"stuck":
        await asyncio.Event().wait()
    while not job.is_stopping:
        await asyncio.sleep(0.02)

async def main():
    async with AsyncJobsClient(address) as client:
        queue = client.queue("c", "k", **tokens)
        both = [worker(queue, **options)(works) for _ in range(2)]
        await asyncio.gather(*(each.run() for each in both))
        print("completed", sum(each.completed for each in both), flush=True)

if kind == "blocking":
    with JobsClient(address) as client:
        made = worker(client.queue("c", "k", **tokens), **options)(work)
        made.run()
        print("completed", made.completed, flush=True)
else:
    asyncio.run(main())
"""


class Program:
    """The program in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def started(cls, kind: str, address: str, drain_s: float) -> Program:
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, kind, address, str(drain_s)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        )

    async def has_begun(self) -> None:
        """A job is worked on."""
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            assert await self.process.stdout.readline() == b"begins\n"

    async def ended(self) -> tuple[str, str]:
        """What it said until its end, which was in order."""
        async with asyncio.timeout(60):
            out, err = await self.process.communicate()
        assert self.process.returncode == 0, err.decode()
        return out.decode(), err.decode()

    async def remove(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


async def only_job(world: World) -> dict[str, Any]:
    (job,) = (await world.http.get("/v2/channel/c/jobs")).json()["jobs"]
    found: dict[str, Any] = job
    return found


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("asyncio", signal.SIGTERM),
        ("blocking", signal.SIGTERM),
        ("blocking", signal.SIGINT),
    ],
    ids=["asyncio SIGTERM", "blocking SIGTERM", "blocking Ctrl-C"],
)
async def test_a_worker_that_is_told_to_end_finishes_what_it_has(
    world: World, address: str, kind: str, number: signal.Signals
) -> None:
    await world.broadcast("work")
    program = await Program.started(kind, address, 60)
    try:
        await program.has_begun()
        program.process.send_signal(number)
        out, err = await program.ended()
        assert out == "completed 1\n"
        assert "1 jobs have 60 s to end" in err
        assert "Traceback" not in err
    finally:
        await program.remove()
    assert (await only_job(world))["state"] == "DELIVERED"


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
async def test_a_second_signal_gives_back_what_does_not_end(
    world: World, address: str, kind: str
) -> None:
    await world.broadcast("stuck")
    program = await Program.started(kind, address, 3600)
    try:
        await program.has_begun()
        program.process.send_signal(signal.SIGTERM)
        assert program.process.stderr is not None
        async with asyncio.timeout(60):
            assert b"a second signal" in await program.process.stderr.readline()
        program.process.send_signal(signal.SIGTERM)
        out, _ = await program.ended()
        assert out == "completed 0\n"
    finally:
        await program.remove()
    job = await only_job(world)
    assert (job["state"], job["retries"]) == ("QUEUED", 0)


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
async def test_what_does_not_end_in_time_keeps_no_process_alive(
    world: World, address: str, kind: str
) -> None:
    await world.broadcast("stuck")
    program = await Program.started(kind, address, 0.2)
    try:
        await program.has_begun()
        program.process.send_signal(signal.SIGTERM)
        out, _ = await program.ended()
        assert out == "completed 0\n"
    finally:
        await program.remove()

    async def is_back() -> bool:
        return bool((await only_job(world))["state"] == "QUEUED")

    await until(is_back, "it is not given back", within=60)
