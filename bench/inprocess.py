"""Publish, fetch and acknowledge: without a socket, through loopback, and to a broker in another process."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import time
from pathlib import Path

import contenders
import headrace
import report
from contenders import HEADRACE, ROOT, running

MESSAGES = 200_000
PAYLOAD = b"x" * 128
BATCH = 1_000
WINDOW = 10_000

DIRECT = "in process"
LOOPBACK = "loopback, one process"
APART = "loopback, two processes"
TARGET = 2.0


async def round_trip(connection: headrace.Connection, storage: str) -> float:
    """Seconds to publish all messages, fetch them and have them acknowledged."""
    js = connection.jetstream()
    stream = await js.create_stream(
        name=contenders.STREAM, subjects=["bench.>"], storage=storage, num_replicas=1
    )
    consumer = await stream.create_consumer(durable_name="reader", max_ack_pending=-1)
    started = time.perf_counter()
    async with js.publisher(window=WINDOW) as publisher:
        await publisher.send_many(itertools.repeat(("bench.a", PAYLOAD), MESSAGES))
    taken = 0
    while taken < MESSAGES:
        batch = await consumer.fetch(BATCH, max_wait=10.0)
        taken += len(batch.payloads)
        batch.ack()
    await connection.flush()
    seconds = time.perf_counter() - started
    info = await consumer.info()
    assert (info.num_ack_pending, info.num_pending) == (0, 0), info
    await stream.delete()
    return seconds


async def embedded(directory: Path, storage: str) -> tuple[float, float]:
    async with headrace.Broker(port=-1, store_dir=directory) as broker:
        async with broker.connect() as connection:
            direct = await round_trip(connection, storage)
        async with headrace.connect(broker.client_url) as connection:
            loopback = await round_trip(connection, storage)
    return direct, loopback


async def apart(url: str, storage: str) -> float:
    async with headrace.connect(url) as connection:
        return await round_trip(connection, storage)


def run(rounds: int) -> None:
    area = ROOT / "bench" / "results" / "stores"
    area.mkdir(parents=True, exist_ok=True)
    rows = []
    for storage in ("memory", "file"):
        seconds: dict[str, list[float]] = {DIRECT: [], LOOPBACK: [], APART: []}
        for _ in range(rounds):
            directory = Path(tempfile.mkdtemp(dir=area))
            try:
                direct, loopback = asyncio.run(embedded(directory, storage))
            finally:
                shutil.rmtree(directory)
            with running(HEADRACE) as server:
                other = asyncio.run(apart(server.url, storage))
            for name, value in ((DIRECT, direct), (LOOPBACK, loopback), (APART, other)):
                seconds[name].append(value)
        best = report.median(seconds[DIRECT])
        for name, values in seconds.items():
            rates = [MESSAGES / value for value in values]
            ratio = f"{report.median(values) / best:.2f} ×"
            rows.append(
                [storage, name, f"{report.median(rates):,.0f}", report.spread(rates), ratio]
            )
        report.claim(
            f"publish, fetch and ack, {storage}: {DIRECT} against {LOOPBACK}",
            f"{MESSAGES / best:,.0f} msg/s",
            report.median(seconds[LOOPBACK]) / best,
            at_least=TARGET,
        )
    head = ["storage", "connection", "messages/s", "range", "time, in process = 1"]
    report.table(f"{MESSAGES:,} messages published, fetched and acknowledged", head, rows)
