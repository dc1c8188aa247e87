"""Several processes on one database: races for claims, and everything being killed."""

from __future__ import annotations

import asyncio
import collections
import sys
from pathlib import Path

import pytest

import postgres_server
from headrace.jobs.store import open_database
from jobs_load import Load, Plan
from jobs_world import World

RACER = """
import asyncio, sys
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service.definitions import consumers
from headrace.jobs.service.leases import Claim
from headrace.jobs.service.leases import Endings, Held, completed
from headrace.jobs.store import open_database
async def main(url):
    runtime = Runtime(open_database(url, threads=2))
    await runtime.start()
    consumer = await runtime.database.read(lambda tx: consumers.find_consumer(tx, "c", "k"))
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        jobs = (await runtime.claim(Claim(lambda _: consumer, 7, 30)))[1]
        if not jobs:
            break
        done = [completed(Held(job.seq, job.lease)) for job in jobs]
        _, results = await runtime.end(Endings(lambda _: consumer, done, runtime.random))
        for job, result in zip(jobs, results):
            print(job.seq, job.attempt, result.code)
    await runtime.close()
asyncio.run(main(sys.argv[1]))
"""


async def test_two_processes_racing_for_claims_get_each_job_once(
    world: World, database_url: str
) -> None:
    count = 400
    for start in range(0, count, 50):
        await asyncio.gather(*(world.broadcast(str(start + number)) for number in range(50)))
    racers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", RACER, database_url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert await racer.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(racer.communicate(b"go\n") for racer in racers))
    lines = [line.split() for output, _ in outputs for line in output.decode().splitlines()]
    assert {racer.returncode for racer in racers} == {0}
    assert {(attempt, code) for _, attempt, code in lines} == {("1", "ok")}
    seen = collections.Counter(seq for seq, _, _ in lines)
    assert len(seen) == count
    assert set(seen.values()) == {1}
    assert (await world.http.get("/v2/channel/c/consumer/k")).json()["jobs"]["DELIVERED"] == count


ON_SQLITE = pytest.mark.slow("tests/jobs/test_processes.py")
"""There the service alone can be killed, which ``streams/test_kills.py`` does in the suite, too."""


@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=ON_SQLITE), "postgres"])
async def test_every_job_ends_once_whatever_is_killed(kind: str, tmp_path: Path) -> None:
    plan = Plan(
        jobs=240,
        workers=2,
        kill_worker_s=0.9,
        kill_service_s=2,
        kill_database_s=2.5,
        lease_s=1,
        timeout_s=240,
        pace_s=0.2,
    )
    if kind == "sqlite":
        report = await Load(plan, f"sqlite:///{tmp_path}/jobs.db", None).run()
    else:
        server = postgres_server.PostgresServer()
        try:
            server.start()
            database = open_database(server.url())
            await database.start()
            await database.close()
            report = await Load(plan, server.url(), server).run()
        finally:
            server.remove()
    assert report.unexplained == []
    assert report.states == {"DELIVERED": 240}
    assert report.executions >= 240
    assert report.kills["worker"]
