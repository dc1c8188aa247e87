"""Millions of jobs through PostgreSQL while retention removes them: nothing may grow, nothing may be lost.

    python bench/jobs_soak.py --jobs 10000000
    python bench/jobs_soak.py --jobs 200000 --keep-s 10
    python bench/jobs_soak.py --jobs 20000 --ahead 1000 --keep-s 0.1 --prune-s 0.2 --vacuum-s 1 --every-s 0.1

Publishers send batches over HTTP, workers claim and complete batches over HTTP, the service is a process of
its own on a durable PostgreSQL with its own defaults (autovacuum is what keeps tables flat). A line of JSON
every few seconds tells how many are published and done, the size of the tables and indexes, the memory of
the service and its processor time. It ends with 1 if a job was lost or claimed twice, if retention leaves
something, or if tables or memory were larger in the last third than in the middle third.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from typing import Any

import psycopg

import cpu
from headrace.jobs.client import AsyncJobsClient, OutgoingMessage
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.service.retention import Keep
from jobs import define, report, running
from jobs_databases import databases
from jobs_single import Meter, service
from waiting import elapse

BATCH = 500
CLAIM = 200
DAY_S = 86_400.0
EMPTY_MAX = 60
"""Claims of a worker in a row that find nothing, longer than any lease: what is missing then is lost."""
GROWTH_MAX = 1.25
"""How much larger the median of the last third may be than that of the middle third: where autovacuum stands
differs from sample to sample."""
TOKENS = {"channel_token": "ct", "producer": "p", "producer_token": "pt"}
SIZES = """
SELECT relname, pg_table_size(oid) AS bytes FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i') ORDER BY bytes DESC
"""
LEFT = "SELECT (SELECT count(*) FROM message) AS messages, (SELECT count(*) FROM job) AS jobs"


class Soak:
    """One run: what was published and done, and the samples."""

    def __init__(self, jobs: int, ahead: int) -> None:
        self.jobs = jobs
        self.ahead = ahead
        self.published = self.done = self.again = 0
        self.samples: list[dict[str, Any]] = []
        self._seen = bytearray(jobs)
        self._numbers = iter(range(0, jobs, BATCH))
        self._moved = asyncio.Event()

    async def publish(self, client: AsyncJobsClient) -> None:
        """Batches until there are no more, a limited number of jobs ahead of the workers."""
        for first in self._numbers:
            while self.published - self.done > self.ahead:
                self._moved.clear()
                await self._moved.wait()
            numbers = range(first, min(first + BATCH, self.jobs))
            batch = [OutgoingMessage(payload=b"%d" % number) for number in numbers]
            answers = await client.publish_batch("c", batch, **TOKENS)
            assert sum(each["jobs"] for each in answers) == len(batch), answers
            self.published += len(batch)

    async def work(self, client: AsyncJobsClient) -> None:
        """Claim and complete until all is done."""
        queue = client.queue("c", "k", channel_token="ct", consumer_token="kt")
        empty = 0
        while self.done < self.jobs:
            claimed = await queue.claim(CLAIM, lease_s=60, wait_s=2)
            if not claimed:
                empty += 1
                if empty > EMPTY_MAX and self.published == self.jobs:
                    raise RuntimeError(f"nothing comes any more: {self.missing()} jobs are lost")
                continue
            empty = 0
            for job in claimed:
                number = int(job.payload)
                self.again += self._seen[number]
                self._seen[number] = 1
            results = await queue.complete(claimed)
            assert all(result.code == "ok" for result in results), results
            self.done += len(claimed)
            self._moved.set()

    def missing(self) -> int:
        return self.jobs - sum(self._seen)


async def sample(soak: Soak, url: str, pid: int, postmaster: int | None, every_s: float) -> None:
    """Tell how it goes, until cancelled."""
    begun, meter = time.perf_counter(), Meter(pid, postmaster)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while True:
            await elapse(every_s, "samples are taken so often")
            rows = await (await connection.execute(SIZES)).fetchall()
            sizes = {str(name): int(size) for name, size in rows}
            soak.samples.append(
                report(
                    seconds=round(time.perf_counter() - begun, 1),
                    published=soak.published,
                    done=soak.done,
                    database_mib=round(sum(sizes.values()) / 2**20, 1),
                    largest_mib={
                        name: round(size / 2**20, 1) for name, size in list(sizes.items())[:6]
                    },
                    service_mib=round(cpu.resident_bytes(pid) / 2**20, 1),
                    service_cpu_s=round(meter.seconds()[0], 1),
                    database_cpu_s=round(meter.seconds()[1], 1),
                )
            )


def growth(samples: list[dict[str, Any]], what: str) -> float:
    """How much larger it is in the last third of a run than in the middle third, by medians."""
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    before = statistics.median(float(each[what]) for each in middle)
    return statistics.median(float(each[what]) for each in last) / before


def rates(samples: list[dict[str, Any]]) -> list[int]:
    """Jobs a second in each third of a run."""
    third = len(samples) // 3
    ends = [samples[0], samples[third], samples[2 * third], samples[-1]]
    return [
        round((after["done"] - before["done"]) / (after["seconds"] - before["seconds"]))
        for before, after in pairwise(ends)
    ]


async def until_removed(url: str, within_s: float) -> dict[str, int]:
    """Wait until retention has removed all; what is left, which is nothing if it has."""
    end = time.perf_counter() + within_s
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while True:
            row = await (await connection.execute(LEFT)).fetchone()
            assert row is not None
            if not any(row) or time.perf_counter() > end:
                return {"messages": row[0], "jobs": row[1]}
            await elapse(1.0, "retention works meanwhile")


@asynccontextmanager
async def pruning(url: str, keep_s: float, every_s: float | None) -> AsyncIterator[None]:
    """Remove what is old so often meanwhile; the service does it once a minute."""
    if every_s is None:
        yield
        return
    async with running(url) as runtime:
        maintenance = Maintenance(runtime, Keep(messages_s=keep_s))

        async def prune() -> None:
            while True:
                await maintenance.retain()
                await elapse(every_s, "retention works so often")

        task = asyncio.create_task(prune())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def run(url: str, postmaster: int | None, args: argparse.Namespace) -> bool:
    """Whether all went well."""
    async with running(url) as runtime:
        await define(runtime)
    soak, begun = Soak(args.jobs, args.ahead), time.perf_counter()
    keep = f"keep_messages_days = {args.keep_s / DAY_S}"
    async with (
        service(url, settings=keep) as (address, pid),
        pruning(url, args.keep_s, args.prune_s),
        AsyncJobsClient(address) as client,
    ):
        sampling = asyncio.create_task(sample(soak, url, pid, postmaster, args.every_s))
        async with asyncio.TaskGroup() as group:
            for _ in range(args.publishers):
                group.create_task(soak.publish(client))
            for _ in range(args.workers):
                group.create_task(soak.work(client))
        seconds = time.perf_counter() - begun
        sampling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sampling
        left = await until_removed(url, args.keep_s + 180)
    grown = {what: round(growth(soak.samples, what), 2) for what in ("database_mib", "service_mib")}
    report(
        bench="soak",
        jobs=args.jobs,
        jobs_per_s=round(args.jobs / seconds),
        by_third=rates(soak.samples),
        lost=soak.missing(),
        twice=soak.again,
        left=left,
        grown=grown,
    )
    return not (soak.missing() or soak.again or any(left.values())) and all(
        each <= GROWTH_MAX for each in grown.values()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--jobs", type=int, default=10_000_000)
    parser.add_argument("--publishers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--ahead", type=int, default=100_000, help="jobs that may wait")
    parser.add_argument("--keep-s", type=float, default=30.0, help="how long messages are kept")
    parser.add_argument("--every-s", type=float, default=10.0, help="between two samples")
    parser.add_argument("--prune-s", type=float, help="between two removals of what is old")
    parser.add_argument("--vacuum-s", type=int, help="autovacuum_naptime, which is a minute")
    args = parser.parse_args()
    settings = {} if args.vacuum_s is None else {"autovacuum_naptime": f"{args.vacuum_s}s"}
    with closing(databases("postgresql", settings)) as found:
        database = next(found)
        return 0 if asyncio.run(run(database.make("soak"), database.pid, args)) else 1


if __name__ == "__main__":
    sys.exit(main())
