"""How fast the job service is: claims at two sizes of backlog, push on the loopback, procrastinate beside it.

    python bench/jobs.py                                # everything, SQLite and PostgreSQL
    python bench/jobs.py --backlog 100000 --only sqlite
    python bench/jobs.py --procrastinate /path/to/python  # a Python that has procrastinate installed

Every database is durable (SQLite synchronous=FULL, PostgreSQL with its own defaults). Claims are measured
in the process of the service and over HTTP from another process. One line of JSON per measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from headrace.jobs.client import AsyncJobsClient, JobsClient  # noqa: E402
from headrace.jobs.models import NewMessage, Options  # noqa: E402
from headrace.jobs.runtime.runtime import Runtime  # noqa: E402
from headrace.jobs.service.definitions import channels, consumers, definitions  # noqa: E402
from headrace.jobs.service.leases import (  # noqa: E402
    Claim,
    Endings,
    Held,
    completed,
)
from headrace.jobs.service.publishing.publishing import Publication  # noqa: E402
from headrace.jobs.store import Tx, open_database  # noqa: E402
from jobs_databases import NAMES, databases  # noqa: E402

BATCH = 100
FILL_MESSAGES = """
INSERT INTO message (channel_seq, message_id, payload, content_type, priority, headers, digest, status,
    received_us, dispatched_us)
SELECT {channel}, '{tag}-' || i, {payload}, 'application/json', 0, '{{}}', '', 102, {now}, {now}
FROM {numbers}
"""
FILL_JOBS = """
INSERT INTO job (message_seq, consumer_seq, state, hold, priority, due_us, changed_us, created_us)
SELECT seq, {consumer}, 1001, 0, 0, {now}, {now}, {now} FROM message WHERE message_id LIKE '{tag}-%'
"""
DIALECT = {
    "sqlite": {
        "payload": "x'7b7d'",
        "numbers": "(WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
        "SELECT i FROM n) AS numbers",
    },
    "postgresql": {"payload": "'{{}}'", "numbers": "generate_series(1, {count}) AS i"},
}


def report(**values: Any) -> dict[str, Any]:
    print(json.dumps(values), flush=True)
    return values


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def fill(url: str, count: int, channel: int, consumer: int, tag: str, now: int) -> None:
    """Put ``count`` messages with a job each straight into the tables."""
    kind = "sqlite" if url.startswith("sqlite") else "postgresql"
    numbers = DIALECT[kind]["numbers"].format(count=count)
    payload = DIALECT[kind]["payload"].format()
    statements = [
        text.format(
            channel=channel, consumer=consumer, tag=tag, now=now, numbers=numbers, payload=payload
        )
        for text in (FILL_MESSAGES, FILL_JOBS)
    ]
    if kind == "sqlite":
        import sqlite3

        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        with connection:
            for statement in statements:
                connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    else:
        import psycopg

        with psycopg.connect(url, autocommit=True) as opened:
            for statement in statements:
                opened.execute(statement.encode())
            opened.execute("VACUUM (ANALYZE) job")
            opened.execute("VACUUM (ANALYZE) message")
            opened.execute("CHECKPOINT")


@asynccontextmanager
async def running(url: str) -> AsyncIterator[Runtime]:
    runtime = Runtime(open_database(url, threads=4), Options(allow_networks=("127.0.0.0/8",)))
    await runtime.start()
    yield runtime
    await runtime.close()


async def define(runtime: Runtime) -> tuple[int, int]:
    """A producer, a channel, a pull consumer; the last two's numbers."""
    now, always = runtime.now_us(), definitions.Precondition()

    def write(tx: Tx) -> tuple[int, int]:
        channels.put_producer(tx, "p", definitions.Change(token="pt"), always, now)
        channel = channels.put_channel(tx, "c", definitions.Change(token="ct"), always, now)
        change = consumers.ConsumerChange(kind="pull", token="kt")
        consumer, _ = consumers.put_consumer(
            tx,
            "c",
            "k",
            change,
            None,
            now,
            defaults=runtime.options.default_settings(),
            max_retries=5,
            new_secret=lambda: "whsec_",
        )
        return channel.seq, consumer.seq

    return await runtime.database.write(write)


async def claim_and_complete(runtime: Runtime, jobs: int) -> tuple[float, list[float]]:
    """Claim and complete in batches, one after the other; jobs/s and the seconds of each claim."""
    consumer = await runtime.database.read(lambda tx: consumers.find_consumer(tx, "c", "k"))
    durations, done, begun = [], 0, time.perf_counter()
    while done < jobs:
        start = time.perf_counter()
        _, claimed = await runtime.claim(Claim(lambda _: consumer, BATCH, 30))
        durations.append(time.perf_counter() - start)
        ended = [completed(Held(job.seq, job.lease)) for job in claimed]
        _, results = await runtime.end(Endings(lambda _: consumer, ended, runtime.random))
        assert all(result.code == "ok" for result in results)
        done += len(claimed)
    return done / (time.perf_counter() - begun), durations


async def bench_claims(url: str, name: str, backlogs: list[int]) -> None:
    """Claims in process, at each backlog."""
    p99 = {}
    async with running(url) as runtime:
        channel, consumer = await define(runtime)
        for backlog in backlogs:
            fill(url, backlog, channel, consumer, f"b{backlog}", runtime.now_us())
            await claim_and_complete(runtime, min(backlog // 10, 500))
            # A small backlog is measured in short runs, filled up again in between.
            durations: list[float] = []
            rates: list[float] = []
            for round_ in range(20 if backlog < 10_000 else 4):
                if backlog < 10_000:
                    fill(url, 500, channel, consumer, f"r{backlog}-{round_}", runtime.now_us())
                rate, some = await claim_and_complete(runtime, 500 if backlog < 10_000 else 2500)
                rates.append(rate)
                durations += some
            p99[backlog] = percentile(durations, 0.99)
            report(
                bench="claim+complete, in process",
                database=name,
                backlog=backlog,
                jobs_per_s=round(statistics.median(rates)),
                claim_p50_ms=round(percentile(durations, 0.5) * 1000, 2),
                claim_p99_ms=round(p99[backlog] * 1000, 2),
            )
    if len(backlogs) > 1:
        report(
            bench="claim p99, largest backlog against the smallest",
            database=name,
            ratio=round(p99[backlogs[-1]] / p99[backlogs[0]], 2),
        )


@asynccontextmanager
async def service(url: str, *flags: str) -> AsyncIterator[str]:
    """A service in a process of its own; its address."""
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "headrace",
            "jobs",
            "serve",
            "--port",
            "0",
            "--database",
            url,
            *flags,
        ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().split()[-1]
    finally:
        process.terminate()
        await process.wait()


async def bench_http(url: str, name: str, jobs: int) -> None:
    """Claims over HTTP: four workers in this process, the service in another."""
    async with running(url) as runtime:
        channel, consumer = await define(runtime)
        fill(url, jobs, channel, consumer, "http", runtime.now_us())
    done = 0
    async with service(url) as address, AsyncJobsClient(address) as client:
        queue = client.queue("c", "k", channel_token="ct", consumer_token="kt")

        async def work() -> None:
            nonlocal done
            while claimed := await queue.claim(BATCH):
                results = await queue.complete(claimed)
                done += sum(result.code == "ok" for result in results)

        begun = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(4)))
        seconds = time.perf_counter() - begun
    assert done == jobs
    report(
        bench="claim+complete, over HTTP",
        database=name,
        jobs=jobs,
        jobs_per_s=round(jobs / seconds),
    )


class Sink(asyncio.Protocol):
    """The quickest endpoint there can be: counts requests, answers 200."""

    count = 0
    reached: asyncio.Event
    wanted = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (head := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = int(self._buffer[:head].split(b"Content-Length: ")[1].split(b"\r\n")[0])
            if len(self._buffer) < head + 4 + length:
                return
            self._buffer = self._buffer[head + 4 + length :]
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            Sink.count += 1
            if Sink.count >= Sink.wanted:
                Sink.reached.set()


async def bench_push(url: str, name: str, messages: int) -> None:
    """Broadcast over HTTP to five push consumers; until every delivery has arrived."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Sink, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with service(url, "--allow-network", "127.0.0.0/8") as address:
        await asyncio.to_thread(_define_push, address, port)
        Sink.count, Sink.wanted, Sink.reached = 0, messages * 5, asyncio.Event()
        begun = time.perf_counter()
        sent = await _publish(address, messages)
        async with asyncio.timeout(120):
            await Sink.reached.wait()
        seconds = time.perf_counter() - begun
    server.close()
    report(
        bench="broadcast to 5 push consumers",
        database=name,
        messages=messages,
        broadcasts_per_s=round(messages / sent),
        deliveries_per_s=round(Sink.count / seconds),
    )


def _define_push(address: str, port: int) -> None:
    with JobsClient(address) as client:
        client.put_producer("p", token="pt")
        client.put_channel("c", token="ct")
        for number in range(5):
            client.put_consumer("c", f"h{number}", callback_url=f"http://127.0.0.1:{port}/{number}")


async def _publish(address: str, messages: int) -> float:
    """Broadcast over HTTP, 16 at once; the seconds it took."""
    tokens: dict[str, Any] = {"channel_token": "ct", "producer": "p", "producer_token": "pt"}
    async with AsyncJobsClient(address) as client:
        left = iter(range(messages))

        async def send() -> None:
            for number in left:
                await client.publish("c", b'{"n": %d}' % number, **tokens)

        begun = time.perf_counter()
        await asyncio.gather(*(send() for _ in range(16)))
        return time.perf_counter() - begun


async def bench_broadcast(url: str, name: str, messages: int) -> None:
    """Messages taken in process, each with its fan-out, 64 at once."""
    async with running(url) as runtime:
        await define(runtime)
        left = iter(range(messages))
        message = NewMessage(payload=b"{}")
        wanted = Publication("c", "ct", "p", "pt", [message], [False], runtime.options)

        async def send() -> None:
            for _ in left:
                await runtime.publish(wanted)

        begun = time.perf_counter()
        await asyncio.gather(*(send() for _ in range(64)))
        rate = messages / (time.perf_counter() - begun)
    report(
        bench="broadcast, in process", database=name, messages=messages, messages_per_s=round(rate)
    )


PROCRASTINATE = """
import asyncio, sys, time, procrastinate
async def main():
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=sys.argv[1], max_size=20))
    done = 0
    @app.task(name="t")
    async def t(n):
        nonlocal done
        done += 1
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        jobs = int(sys.argv[2])
        for start in range(0, jobs, 1000):
            await t.batch_defer_async(*({"n": n} for n in range(min(1000, jobs - start))))
        begun = time.perf_counter()
        await app.run_worker_async(concurrency=int(sys.argv[3]), wait=False, listen_notify=False)
        seconds = time.perf_counter() - begun
    assert done == jobs, done
    print(round(jobs / seconds))
asyncio.run(main())
"""


def bench_procrastinate(make: Callable[[str], str], python: str, jobs: int) -> None:
    """A procrastinate worker in one process, on the same server: fetch, run, finish."""
    for concurrency in (1, 20):
        url = make(f"procrastinate_{concurrency}")
        done = subprocess.run(
            [python, "-c", PROCRASTINATE, url, str(jobs), str(concurrency)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        report(
            bench="procrastinate: fetch and finish",
            database="postgresql",
            concurrency=concurrency,
            jobs=jobs,
            jobs_per_s=int(done.stdout.split()[-1]),
        )


async def bench_database(make: Callable[[str], str], name: str, args: argparse.Namespace) -> None:
    backlogs = [1000, args.backlog] if args.backlog > 1000 else [args.backlog]
    await bench_claims(make("claims"), name, backlogs)
    await bench_http(make("http"), name, args.jobs)
    await bench_broadcast(make("broadcast"), name, args.messages)
    await bench_push(make("push"), name, args.messages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--procrastinate", metavar="PYTHON", help="a Python that has it installed")
    args = parser.parse_args()
    with closing(databases(args.only)) as each:
        for database in each:
            asyncio.run(bench_database(database.make, database.name, args))
            if args.procrastinate and database.name == "postgresql":
                bench_procrastinate(database.make, args.procrastinate, args.jobs // 4)


if __name__ == "__main__":
    main()
