"""How fast the job service is at one job a request, and what a thousand who wait cost it.

    python bench/jobs_single.py                                  # all of it, SQLite and PostgreSQL
    python bench/jobs_single.py --only postgresql --what publish
    python bench/jobs_single.py --procrastinate /path/to/python  # a Python that has procrastinate installed

The service is a process of its own on a durable database. Its clients are connections that send bytes made
beforehand, so that they take little of the machine. Besides rates the processor time of service and database
is told, which a busy machine blurs less. One line of JSON per measurement; rates are medians of three.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import cpu
from jobs import define, fill, percentile, report, running
from jobs_databases import NAMES, Database, databases
from waiting import elapse

ROUNDS = 3
PUBLISHERS = (1, 8, 32)
WORKERS = 8
BATCH, BATCH_WORKERS = 100, 4
PUBLISHED = 500
WAITERS = 1_000
IDLE_S = 10.0
WHAT = ("publish", "batches", "claims", "backlog", "pull", "push")
ARRIVALS = 200
TOKENS = "X-Broker-Channel-Token: ct\r\nX-Broker-Consumer-Token: kt\r\n"
PRODUCER = (
    "X-Broker-Channel-Token: ct\r\nX-Broker-Producer-ID: p\r\nX-Broker-Producer-Token: pt\r\n"
)


class Wire(asyncio.Protocol):
    """One kept connection: a request's bytes go out, the body of its answer comes back."""

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: Any = None
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def open(cls, address: str) -> Wire:
        host, port = address.removeprefix("http://").split(":")
        return (await asyncio.get_running_loop().create_connection(cls, host, int(port)))[1]

    async def ask(self, request: bytes) -> bytes:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(RuntimeError(f"the connection ended: {error}"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        head = self._buffer[:end].lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if len(self._buffer) < end + length or self._answer is None:
            return
        body, self._buffer = self._buffer[end : end + length], b""
        if head[9:10] == b"2":
            self._answer.set_result(body)
        else:
            self._answer.set_exception(RuntimeError((head + body).decode()))

    def close(self) -> None:
        self._transport.close()


def request(path: str, body: bytes, headers: str = TOKENS, method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


PUBLISH = request("/v2/channel/c/messages", b'{"n": 1}', PRODUCER)
JOBS = "/v2/channel/c/consumer/k/jobs"


@asynccontextmanager
async def service(url: str, *flags: str, settings: str = "") -> AsyncIterator[tuple[str, int]]:
    """A service in a process of its own, with these settings as TOML; its address and its number."""
    import sys

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(settings)
        config.flush()
        command = (sys.executable, "-m", "headrace", "jobs", "serve", "--port", "0")
        process = await asyncio.create_subprocess_exec(
            *(*command, "--config", config.name, "--database", url, *flags),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            yield (await process.stdout.readline()).decode().split()[-1], process.pid
        finally:
            process.terminate()
            await process.wait()


class Meter:
    """Processor seconds of the service and of PostgreSQL's processes, since it was made."""

    def __init__(self, pid: int, postmaster: int | None) -> None:
        self._pid, self._postmaster = pid, postmaster
        self._begun_s = time.perf_counter()
        self._before = self._now()

    def _now(self) -> tuple[float, float]:
        database = sum(cpu.of_process(each) for each in children(self._postmaster))
        return cpu.of_process(self._pid), database

    def seconds(self) -> tuple[float, float]:
        now = self._now()
        return now[0] - self._before[0], now[1] - self._before[1]

    def per_cent(self) -> tuple[float, float]:
        """Of one core."""
        wall_s = time.perf_counter() - self._begun_s
        service_s, database_s = self.seconds()
        return round(service_s / wall_s * 100, 1), round(database_s / wall_s * 100, 1)


def children(parent: int | None) -> list[int]:
    """The processes of a PostgreSQL server."""
    if parent is None:
        return []
    found = [parent]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
    return found


async def rate_of(
    address: str, connections: int, count: int, one: Callable[[Wire], Awaitable[int]]
) -> float:
    """How often a second ``one`` happens, on so many connections at once, ``count`` times in all."""
    wires = [await Wire.open(address) for _ in range(connections)]
    done = 0

    async def send(wire: Wire) -> None:
        nonlocal done
        while done < count:
            got = await one(wire)
            done += got  # not in one step: others count while this one waits

    begun = time.perf_counter()
    await asyncio.gather(*(send(wire) for wire in wires))
    rate = done / (time.perf_counter() - begun)
    for wire in wires:
        wire.close()
    return rate


async def publish_one(wire: Wire) -> int:
    await wire.ask(PUBLISH)
    return 1


async def bench_publish(url: str, name: str, postmaster: int | None) -> None:
    """One message a request, each answered when it is durable, a job for one consumer."""
    async with running(url) as runtime:
        await define(runtime)
    async with service(url) as (address, pid):
        for connections in PUBLISHERS:
            count = 300 * min(connections, 12)
            await rate_of(address, connections, count // 3, publish_one)
            meter = Meter(pid, postmaster)
            rates = [await rate_of(address, connections, count, publish_one) for _ in range(ROUNDS)]
            service_s, database_s = meter.seconds()
            each = ROUNDS * count
            report(
                bench="publish one by one, over HTTP",
                database=name,
                connections=connections,
                messages_per_s=round(statistics.median(rates)),
                rates=[round(rate) for rate in rates],
                service_us=round(service_s / each * 1e6),
                database_us=round(database_s / each * 1e6),
                load=os.getloadavg()[0],
            )


async def bench_batches(url: str, name: str, postmaster: int | None) -> None:
    """Five hundred messages a request, in one transaction."""
    async with running(url) as runtime:
        await define(runtime)
    body = json.dumps({"messages": [{"payload": '{"n": 1}'}] * PUBLISHED}).encode()
    batch = request("/v2/channel/c/messages/batch", body, PRODUCER)

    async def one(wire: Wire) -> int:
        await wire.ask(batch)
        return PUBLISHED

    async with service(url) as (address, pid):
        await rate_of(address, BATCH_WORKERS, 5_000, one)
        meter = Meter(pid, postmaster)
        rates = [await rate_of(address, BATCH_WORKERS, 20_000, one) for _ in range(ROUNDS)]
        service_s, database_s = meter.seconds()
    report(
        bench=f"publish batches of {PUBLISHED}, over HTTP",
        database=name,
        connections=BATCH_WORKERS,
        messages_per_s=round(statistics.median(rates)),
        rates=[round(rate) for rate in rates],
        service_us=round(service_s / ROUNDS / 20_000 * 1e6),
        database_us=round(database_s / ROUNDS / 20_000 * 1e6),
        load=os.getloadavg()[0],
    )


def take(count: int, claims: list[float] | None = None) -> Callable[[Wire], Awaitable[int]]:
    """Claim ``count`` jobs, and complete them. The seconds of each claim go into ``claims``."""
    claim = request(f"{JOBS}/claim", json.dumps({"max": count}).encode())

    async def one(wire: Wire) -> int:
        begun = time.perf_counter()
        jobs = json.loads(await wire.ask(claim))["jobs"]
        if claims is not None:
            claims.append(time.perf_counter() - begun)
        held = {"jobs": [{"id": job["id"], "lease": job["lease"]} for job in jobs]}
        if not jobs:
            raise RuntimeError("there are no jobs left")
        await wire.ask(request(f"{JOBS}/complete", json.dumps(held).encode()))
        return len(jobs)

    return one


async def bench_claims(url: str, name: str, postmaster: int | None, backlog: int) -> None:
    """Claim and complete over HTTP: one at a time, and in batches."""
    async with running(url) as runtime:
        channel, consumer = await define(runtime)
        fill(url, backlog, channel, consumer, "one", runtime.now_us())
    async with service(url) as (address, pid):
        for workers, batch, count in ((WORKERS, 1, 1_500), (BATCH_WORKERS, BATCH, 15_000)):
            await rate_of(address, workers, count // 5, take(batch))
            meter = Meter(pid, postmaster)
            rates = [await rate_of(address, workers, count, take(batch)) for _ in range(ROUNDS)]
            service_s, database_s = meter.seconds()
            report(
                bench="claim+complete, over HTTP",
                database=name,
                workers=workers,
                batch=batch,
                waiting=backlog,
                jobs_per_s=round(statistics.median(rates)),
                rates=[round(rate) for rate in rates],
                service_us=round(service_s / count / ROUNDS * 1e6),
                database_us=round(database_s / count / ROUNDS * 1e6),
                load=os.getloadavg()[0],
            )


async def bench_backlog(url: str, name: str, postmaster: int | None, backlog: int) -> None:
    """The same one at a time, with a few waiting and with many: rates, and how long a claim takes."""
    p99: list[float] = []
    async with running(url) as runtime:
        channel, consumer = await define(runtime)
        for waiting in (1_000, backlog):
            count = 1_500
            fill(url, waiting + 4 * count, channel, consumer, f"b{waiting}", runtime.now_us())
            claims: list[float] = []
            async with service(url) as (address, pid):
                await rate_of(address, WORKERS, count, take(1))
                meter = Meter(pid, postmaster)
                rates = [
                    await rate_of(address, WORKERS, count, take(1, claims)) for _ in range(ROUNDS)
                ]
                service_s, database_s = meter.seconds()
            p99.append(percentile(claims, 0.99))
            report(
                bench="claim+complete one at a time, over HTTP",
                database=name,
                workers=WORKERS,
                waiting=waiting,
                jobs_per_s=round(statistics.median(rates)),
                rates=[round(rate) for rate in rates],
                claim_p50_ms=round(percentile(claims, 0.5) * 1000, 2),
                claim_p99_ms=round(p99[-1] * 1000, 2),
                service_us=round(service_s / count / ROUNDS * 1e6),
                database_us=round(database_s / count / ROUNDS * 1e6),
                load=os.getloadavg()[0],
            )
    report(
        bench="claim p99, many waiting against few", database=name, ratio=round(p99[1] / p99[0], 2)
    )


async def bench_idle(url: str, name: str, postmaster: int | None) -> None:
    """A thousand pull workers that wait for a job of one consumer; then jobs that come one by one."""
    async with running(url) as runtime:
        await define(runtime)
    async with service(url) as (address, pid):
        ask = request(f"{JOBS}/claim", b'{"max": 1, "wait_seconds": 60}')
        arrived: asyncio.Queue[float] = asyncio.Queue()

        async def wait() -> None:
            wire = await Wire.open(address)
            while True:
                if json.loads(await wire.ask(ask))["jobs"]:
                    arrived.put_nowait(time.perf_counter())

        waiters = [asyncio.create_task(wait()) for _ in range(WAITERS)]
        await elapse(5, "all of them wait")
        meter = Meter(pid, postmaster)
        await elapse(IDLE_S, "what idling costs")
        service_part, database_part = meter.per_cent()
        wire, latencies = await Wire.open(address), []
        for _ in range(ARRIVALS):
            begun = time.perf_counter()
            await wire.ask(PUBLISH)
            latencies.append((await arrived.get() - begun) * 1000)
            await elapse(0.02, "the waiter asks again")
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
    report(
        bench=f"{WAITERS:,} idle pull workers",
        database=name,
        service_per_cent=service_part,
        database_per_cent=database_part,
        new_job_p50_ms=round(percentile(latencies, 0.5), 1),
        new_job_p99_ms=round(percentile(latencies, 0.99), 1),
        load=os.getloadavg()[0],
    )


async def bench_push(url: str, name: str, postmaster: int | None) -> None:
    """A thousand push consumers without jobs."""
    async with service(url, "--allow-network", "127.0.0.0/8") as (address, pid):
        wire = await Wire.open(address)
        form = "Content-Type: application/x-www-form-urlencoded\r\n"
        await wire.ask(request("/channel/c", b"token=ct", form, "PUT"))
        for number in range(WAITERS):
            path, body = f"/channel/c/consumer/k{number}", b"callbackUrl=http%3A%2F%2F127.0.0.1%3A9"
            await wire.ask(request(path, body, form + TOKENS, "PUT"))
        await elapse(5, "all of them wait")
        meter = Meter(pid, postmaster)
        await elapse(IDLE_S, "what idling costs")
        service_part, database_part = meter.per_cent()
        wire.close()
    report(
        bench=f"{WAITERS:,} idle push consumers",
        database=name,
        service_per_cent=service_part,
        database_per_cent=database_part,
        load=os.getloadavg()[0],
    )


PROCRASTINATE = """
import asyncio, json, os, statistics, sys, time, procrastinate
async def main():
    connector = procrastinate.PsycopgConnector(conninfo=sys.argv[1], max_size=40)
    app = procrastinate.App(connector=connector)
    done = 0
    @app.task(name="t")
    async def t(n):
        nonlocal done
        done += 1
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for publishers in (1, 8, 32):
            rates = []
            for _ in range(3):
                left = iter(range(300 * min(publishers, 12)))
                async def send():
                    for n in left:
                        await t.defer_async(n=n)
                begun = time.perf_counter()
                await asyncio.gather(*(send() for _ in range(publishers)))
                rates.append(300 * min(publishers, 12) / (time.perf_counter() - begun))
            print(json.dumps(["publish", publishers, round(statistics.median(rates))]))
        waiting = 3 * 300 * (1 + 8 + 12)
        begun = time.perf_counter()
        await app.run_worker_async(concurrency=8, wait=False, listen_notify=False)
        print(json.dumps(["fetch and finish", 8, round(waiting / (time.perf_counter() - begun))]))
        assert done == waiting, done
        if not (many := int(sys.argv[2])):
            return
        await connector.execute_query_async(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args)"
            " SELECT 'default', 't', jsonb_build_object('n', 1) FROM generate_series(1, %(n)s)", n=many)
        await connector.execute_query_async("ANALYZE procrastinate_jobs")
        work = app.run_worker_async(concurrency=8, wait=False, listen_notify=False)
        working = asyncio.create_task(work)
        rates = []
        for _ in range(3):
            begun, before = time.perf_counter(), done
            while done < before + 1000:
                await asyncio.sleep(0.002)
            rates.append((done - before) / (time.perf_counter() - begun))
        print(json.dumps([f"fetch and finish, {many} waiting", 8, round(statistics.median(rates))]))
        sys.stdout.flush()
        os._exit(0)
asyncio.run(main())
"""


def bench_procrastinate(url: str, python: str, many: int) -> None:
    """The same of procrastinate, whose clients are in one process and talk to the database themselves."""
    done = subprocess.run(
        [python, "-W", "ignore", "-c", PROCRASTINATE, url, str(many)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    for line in done.stdout.splitlines():
        what, at_once, rate = json.loads(line)
        report(
            bench=f"procrastinate: {what}",
            database="postgresql",
            at_once=at_once,
            per_s=rate,
            load=os.getloadavg()[0],
        )


def run(database: Database, args: argparse.Namespace) -> None:
    name, pid = database.name, database.pid
    works: dict[str, Callable[[str], Awaitable[None]]] = {
        "publish": lambda url: bench_publish(url, name, pid),
        "batches": lambda url: bench_batches(url, name, pid),
        "claims": lambda url: bench_claims(url, name, pid, args.backlog),
        "backlog": lambda url: bench_backlog(url, name, pid, args.many),
        "pull": lambda url: bench_idle(url, name, pid),
        "push": lambda url: bench_push(url, name, pid),
    }
    for what, work in works.items():
        if args.what in (None, what):
            _run(_wait(work(database.make(what))))


def _run(work: Coroutine[Any, Any, None]) -> None:
    """By uvloop, where it is installed: clients take little of the machine then."""
    try:
        from uvloop import run
    except ImportError:
        from asyncio import run
    run(work)


async def _wait(work: Awaitable[None]) -> None:
    await work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--what", choices=WHAT)
    parser.add_argument("--backlog", type=int, default=80_000)
    parser.add_argument("--many", type=int, default=1_000_000, help="waiting jobs of `backlog`")
    parser.add_argument("--procrastinate", metavar="PYTHON", help="a Python that has it installed")
    args = parser.parse_args()
    with closing(databases(args.only)) as each:
        for database in each:
            run(database, args)
            if args.procrastinate and database.name == "postgresql":
                many = args.many if args.what in (None, "backlog") else 0
                bench_procrastinate(database.make("procrastinate"), args.procrastinate, many)


if __name__ == "__main__":
    main()
