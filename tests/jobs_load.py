"""Jobs under fire: publishers and workers on a service whose processes, workers and database are killed.

    python tests/jobs_load.py --jobs 100000 --workers 8 --database postgres

Every job must end in exactly one terminal state, and be executed again only after a lease expired. The
suite runs it small; `make jobs-soak` runs it as it stands here.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peers
import postgres_server
from headrace.jobs.client import AsyncJobsClient, JobsClient, JobsError
from waiting import elapse

TOKENS = {"channel_token": "ct", "consumer_token": "kt"}
WORKER = """
import asyncio, sys, os
from headrace.jobs.client import AsyncJobsClient, JobsError
async def main(url, log, lease):
    file = open(log, "a", buffering=1)
    print("ready", flush=True)
    async with AsyncJobsClient(url) as client:
        queue = client.queue("c", "k", channel_token="ct", consumer_token="kt")
        while True:
            try:
                jobs = await queue.claim(20, lease_s=lease, wait_s=2)
                for job in jobs:
                    file.write(f"{job.id} {job.attempt} {job.message_id}\\n")
                if jobs:
                    await queue.complete(jobs)
            except JobsError as error:
                if error.status not in (0, 503):
                    raise
                await asyncio.sleep(0.1)
asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
"""


@dataclass
class Plan:
    """How much, and how often what is killed (seconds; 0: never)."""

    jobs: int
    workers: int
    kill_worker_s: float
    kill_service_s: float
    kill_database_s: float
    lease_s: float = 3.0
    timeout_s: float = 120.0
    seed: int = 1
    pace_s: float = 0.0  # between the messages of each of the 16 publishers


@dataclass
class Report:
    """What happened."""

    jobs: int = 0
    states: dict[str, int] = field(default_factory=dict)
    executions: int = 0
    repeated: int = 0
    unexplained: list[str] = field(default_factory=list)
    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    seconds: float = 0.0


class Load:
    """One run. Everything it starts, it ends."""

    def __init__(
        self, plan: Plan, database_url: str, server: postgres_server.PostgresServer | None
    ) -> None:
        self.plan = plan
        self.database_url = database_url
        self.server = server
        self.random = random.Random(plan.seed)
        self.port = peers.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.report = Report()
        self.over = asyncio.Event()
        self.service: asyncio.subprocess.Process | None = None
        self.workers: list[asyncio.subprocess.Process] = []

    async def run(self) -> Report:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            self.logs = Path(directory)
            await self.start_service()
            await asyncio.to_thread(self.define)
            chaos: list[asyncio.Task[None]] = []
            try:
                for number in range(self.plan.workers):
                    self.workers.append(await self.start_worker(number))
                chaos = [
                    asyncio.create_task(self.every(self.plan.kill_worker_s, self.kill_worker)),
                    asyncio.create_task(self.every(self.plan.kill_service_s, self.kill_service)),
                    asyncio.create_task(self.every(self.plan.kill_database_s, self.kill_database)),
                ]
                async with asyncio.timeout(self.plan.timeout_s):
                    await self.publish()
                    await self.until_finished()
            finally:
                # Not cancelled: what was killed last must be up again for the judgement.
                self.over.set()
                await asyncio.gather(*chaos)
                await self.end()
            self.judge()
        self.report.seconds = time.monotonic() - begun
        return self.report

    async def start_service(self) -> None:
        """Start, again while the database is away."""
        config = self.logs / "jobs.toml"
        config.write_text("max_retries = 1000\n")
        while True:
            self.service = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headrace", "jobs", "serve", "--port", str(self.port)),
                *("--database", self.database_url, "--config", str(config)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            assert self.service.stdout is not None
            if b"listening" in await self.service.stdout.readline():
                return
            await self.service.wait()

    def define(self) -> None:
        with JobsClient(self.url) as client:
            client.put_producer("p", token="pt")
            client.put_channel("c", token="ct")
            client.put_consumer("c", "k", kind="pull", token="kt")

    async def start_worker(self, number: int) -> asyncio.subprocess.Process:
        """Returns when it works: one that is killed before, each time, would never do anything."""
        log = self.logs / f"{number}.log"
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WORKER, self.url, str(log), str(self.plan.lease_s)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert worker.stdout is not None
        await worker.stdout.readline()
        return worker

    async def every(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        while seconds and not self.over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.over.wait(), seconds * self.random.uniform(0.8, 1.2))
            if not self.over.is_set():
                await act()

    async def kill_worker(self) -> None:
        number = self.random.randrange(len(self.workers))
        self.workers[number].kill()
        await self.workers[number].wait()
        self.workers[number] = await self.start_worker(number)
        self.report.kills["worker"] += 1

    async def kill_service(self) -> None:
        assert self.service is not None
        self.service.kill()
        await self.service.wait()
        await self.start_service()
        self.report.kills["service"] += 1

    async def kill_database(self) -> None:
        if self.server is not None:
            await asyncio.to_thread(self.server.kill)
            await asyncio.to_thread(self.server.start)
            self.report.kills["database"] += 1

    async def publish(self) -> None:
        """Every message until it is acknowledged; its id makes repeats harmless."""
        left = iter(range(self.plan.jobs))
        async with AsyncJobsClient(self.url) as client:
            await asyncio.gather(*(self.publish_some(client, left) for _ in range(16)))

    async def publish_some(self, client: AsyncJobsClient, left: Iterator[int]) -> None:
        tokens: dict[str, Any] = {"channel_token": "ct", "producer": "p", "producer_token": "pt"}
        for number in left:
            await asyncio.sleep(self.plan.pace_s)
            while True:
                try:
                    await client.publish(
                        "c", b"%d" % number, message_id=f"m{number}", idempotent=True, **tokens
                    )
                    break
                except JobsError as error:
                    if error.status not in {0, 503}:
                        raise
                    await elapse(0.1, "the service is not there")

    async def until_finished(self) -> None:
        while True:
            with contextlib.suppress(JobsError):
                counts = await asyncio.to_thread(self.counts)
                if counts["QUEUED"] == counts["INFLIGHT"] == 0:
                    return
            await elapse(0.2, "the service is asked again")

    def counts(self) -> dict[str, int]:
        with JobsClient(self.url) as client:
            counts: dict[str, int] = client.status()["consumers"][0]["jobs"]
            return counts

    async def end(self) -> None:
        for process in [*self.workers, *([self.service] if self.service else [])]:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            await process.wait()

    def judge(self) -> None:
        """Compare what the workers wrote down with what the database says."""
        executed: collections.Counter[str] = collections.Counter()
        for log in self.logs.glob("*.log"):
            for line in log.read_text().splitlines():
                executed[line.split()[0]] += 1
        rows = self.rows()
        names = {1001: "QUEUED", 1002: "INFLIGHT", 1003: "DELIVERED", 1004: "DEAD"}
        self.report.jobs = len(rows)
        self.report.states = dict(collections.Counter(names[state] for _, _, state, _ in rows))
        self.report.executions = sum(executed.values())
        messages = {message for _, message, _, _ in rows}
        if (
            messages != {f"m{number}" for number in range(self.plan.jobs)}
            or len(rows) != self.plan.jobs
        ):
            self.report.unexplained.append(f"{len(rows)} jobs of {len(messages)} messages")
        for seq, _, _, expired in rows:
            count = executed[str(seq)]
            self.report.repeated += count > 1
            if count > expired + 1 or count < 1:
                self.report.unexplained.append(
                    f"job {seq}: {count} executions, {expired} expired leases"
                )

    def rows(self) -> list[tuple[int, str, int, int]]:
        query = (
            "SELECT job.seq, message.message_id, job.state, "
            "(SELECT count(*) FROM attempt WHERE attempt.job_seq = job.seq AND attempt.kind = 'expired') "
            "FROM job JOIN message ON message.seq = job.message_seq"
        )
        found: list[Any]
        if self.server is None:
            connection = sqlite3.connect(self.database_url.removeprefix("sqlite:///"))
            found = connection.execute(query).fetchall()
            connection.close()
        else:
            import psycopg

            with psycopg.connect(self.database_url) as opened:
                found = opened.execute(query.encode()).fetchall()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    args = parser.parse_args()
    plan = Plan(args.jobs, args.workers, 2, 10, 15, timeout_s=3600, seed=args.seed)
    print(plan)
    if args.database == "sqlite":
        with tempfile.TemporaryDirectory() as directory:
            report = asyncio.run(Load(plan, f"sqlite:///{directory}/jobs.db", None).run())
    else:
        server = postgres_server.PostgresServer(durable=True)
        try:
            server.start()
            report = asyncio.run(Load(plan, server.url(), server).run())
        finally:
            server.remove()
    print(report)
    if report.unexplained or set(report.states) - {"DELIVERED", "DEAD"}:
        sys.exit(1)


if __name__ == "__main__":
    main()
