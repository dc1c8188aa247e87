"""Several processes on one database: races for claims, and everything being killed."""

from __future__ import annotations

import asyncio
import collections
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx2
import pytest

import postgres_server
from headrace.jobs.client import AsyncJobsClient
from headrace.jobs.store import open_database
from jobs_attacks import TOKENS, serving
from jobs_load import Load, Plan
from jobs_world import World
from portions import one_way
from waiting import until

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


@pytest.fixture(params=one_way(["sqlite", "postgres"], "a batch"))
def own_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that no other test has: what a killed process had begun may still be under way in it."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    server: postgres_server.PostgresServer = request.getfixturevalue("postgres")
    yield server.create("killed")
    server.drop("killed")


async def test_a_batch_whose_service_is_killed_becomes_all_of_its_jobs_once(
    tmp_path: Path, own_url: str
) -> None:
    """Killed as soon as there is one of its jobs, and started again: all of the batch, or nothing."""
    consumers, count = [f"k{number}" for number in range(12)], 250
    stored: set[str] = set()
    for batch in ("a", "b"):
        async with serving(tmp_path, own_url) as victim, victim.http() as http:
            for name in consumers if batch == "a" else ():
                answer = await http.put(
                    f"/channel/neighbour/consumer/{name}", data={"type": "pull", "token": "kt"}
                )
                assert answer.is_success, answer.text
            names = [f"{batch}-{number}" for number in range(count)]
            body = {"messages": [{"payload": name, "id": name} for name in names]}
            path = "/v2/channel/neighbour/messages/batch"
            publishing = asyncio.ensure_future(http.post(path, json=body, headers=TOKENS))
            await until(partial(is_there, http, f"/channel/neighbour/message/{names[0]}"))
            stored |= set(names)
        await asyncio.gather(publishing, return_exceptions=True)
    async with serving(tmp_path, own_url) as victim, victim.http() as http:

        async def none_waits() -> bool:
            path = "/channel/neighbour/messages?status=101"
            return not (await http.get(path, headers=TOKENS)).json()["Result"]

        await until(none_waits, within=60)
        async with AsyncJobsClient(victim.url, timeout_s=60, tls=victim.tls) as client:
            for name in consumers:
                queue = client.queue("neighbour", name, channel_token="ct", consumer_token="kt")
                found = []
                while jobs := await queue.claim(500):
                    found += [job.payload.decode() for job in jobs]
                    await queue.complete(jobs)
                assert sorted(found) == sorted(stored), name
                assert found == sorted(found, key=lambda each: (each[0], int(each[2:])))


async def is_there(http: httpx2.AsyncClient, path: str) -> bool:
    return (await http.get(path, headers=TOKENS)).is_success
