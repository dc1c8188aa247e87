"""The pattern of the guide, in processes of which workers, the broker, or both are killed all the time.

Each payment is booked once: none is lost, none twice. A few payments in the suite; ``make bookings`` books
HEADRACE_BOOKINGS (10,000) on our broker and on nats-server. HEADRACE_SEED names the kills.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import peers
from headrace.client import connect
from headrace.groups import PartitioningFilter, elastic
from waiting import until

pytestmark = [pytest.mark.timeout(3600)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "exactly_once.py"
PAYMENTS = int(os.environ.get("HEADRACE_BOOKINGS", "0"))
PAYMENTS_IN_SHORT = 250
KILLS_IN_SHORT = 3
STEP = 200  # so many more are booked, at most, until the next one dies
SEED = int(os.environ.get("HEADRACE_SEED", "20150107"))
ACCOUNTS = 12
MEMBERS = ["a", "b"]
WORKER = Path(__file__).with_name("booking_worker.py")
PATIENCE_S = 60.0


@dataclass
class Workers:
    """Two instances of each member."""

    url: str
    database: Path
    log: Path
    running: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)
    killed: int = 0

    def start(self, member: str) -> None:
        command = [sys.executable, str(WORKER), str(EXAMPLE), self.url, str(self.database), member]
        with self.log.open("ab") as sink:
            process = subprocess.Popen(command, stdout=sink, stderr=sink)
        self.running.append((member, process))

    def kill_some(self, chance: random.Random) -> None:
        """Kill one, perhaps in the midst of something, and start another in its place."""
        member, process = self.running.pop(chance.randrange(len(self.running)))
        process.kill()
        process.wait()
        self.killed += 1
        self.start(member)

    def end(self) -> None:
        for _, process in self.running:
            process.kill()
            process.wait()


@contextmanager
def workers_of(url: str, directory: Path) -> Iterator[Workers]:
    workers = Workers(url, directory / "bank.db", directory / "workers.log")
    try:
        for member in MEMBERS * 2:
            workers.start(member)
        yield workers
    finally:
        workers.end()


@dataclass
class Booked:
    """What the destination has: how often each payment was booked, and what the accounts add up to."""

    times: Counter[int]
    total: int

    @classmethod
    def of(cls, database: Path) -> Booked:
        with sqlite3.connect(database) as bank:
            try:
                rows = bank.execute("SELECT amount FROM booked").fetchall()
                total = bank.execute("SELECT coalesce(sum(total), 0) FROM accounts").fetchone()[0]
            except sqlite3.OperationalError:  # no worker has been there yet
                return cls(Counter(), 0)
        return cls(Counter(amount for (amount,) in rows), total)


async def publish(url: str, payments: int) -> None:
    """All payments are there before anything dies; the amount of each is its number."""
    async with connect(url) as connection:
        js = connection.jetstream()
        await js.create_stream(name="BANK", subjects=["bank.*"])
        filters = [PartitioningFilter("bank.*", (1,))]
        await elastic.create(js, "BANK", "books", 4, partitioning_filters=filters, members=MEMBERS)
        async with js.publisher() as publisher:
            for number in range(payments):
                await publisher.send(f"bank.account-{number % ACCOUNTS}", b"%d" % number)


Kill = Callable[[peers.ServerProcess, Workers, random.Random], None]


def kill_broker(server: peers.ServerProcess, workers: Workers, chance: random.Random) -> None:
    server.kill()
    away_s = chance.choice([0.0, 0.0, 0.1, 0.7])
    time.sleep(away_s)
    server.start_again()


def kill_worker(server: peers.ServerProcess, workers: Workers, chance: random.Random) -> None:
    workers.kill_some(chance)


def kill_either(server: peers.ServerProcess, workers: Workers, chance: random.Random) -> None:
    chance.choice([kill_broker, kill_worker])(server, workers, chance)


KILLS: dict[str, Kill] = {"broker": kill_broker, "workers": kill_worker, "both": kill_either}
START: dict[str, Callable[[Path], peers.ServerProcess]] = {
    "headrace": peers.start_headrace,
    "nats-server": peers.start_nats_server,
}


@pytest.mark.parametrize("dies", KILLS)
@pytest.mark.parametrize("kind", ["headrace", pytest.param("nats-server", marks=pytest.mark.peer)])
async def test_each_payment_is_booked_once_whatever_dies(
    kind: str, dies: str, tmp_path: Path
) -> None:
    if not PAYMENTS and dies != "both":
        pytest.skip("in short, the server and workers are killed in one run")
    payments = PAYMENTS or PAYMENTS_IN_SHORT
    chance = random.Random(f"{SEED} {kind} {dies}")
    at, step = 0, min(2 * payments // KILLS_IN_SHORT, STEP)
    server = START[kind](tmp_path / "server")
    try:
        await publish(server.url, payments)
        with workers_of(server.url, tmp_path) as workers:
            kills = 0
            while True:
                booked = await until_booked(workers, min(payments, chance.randint(1, step) + at))
                at = len(booked.times)
                if at >= payments:
                    break
                if PAYMENTS or kills < KILLS_IN_SHORT:
                    await asyncio.to_thread(KILLS[dies], server, workers, chance)
                    kills += 1
            stay = await until_nothing_waits(server.url)
            booked = Booked.of(workers.database)
    finally:
        server.stop()
    twice = {number: count for number, count in booked.times.items() if count > 1}
    lost = payments - len(booked.times)
    print(
        f"{kind}, {dies} killed {kills} times: {payments} payments, {lost} lost, {len(twice)} twice, "
        f"{stay} stay in the queue"
    )
    assert not lost
    assert not stay or kind == "nats-server"  # of which we do not know what it forgets
    assert not twice
    assert booked.total == sum(range(payments))


async def until_booked(workers: Workers, count: int) -> Booked:
    """Until so many payments are booked."""

    def enough() -> Booked | None:
        booked = Booked.of(workers.database)
        return booked if len(booked.times) >= count else None

    try:
        found = await until(enough, f"{count} payments are not booked", within=PATIENCE_S)
    except AssertionError:
        print(workers.log.read_text())
        raise
    assert found is not None
    return found


async def until_nothing_waits(url: str) -> int:
    """Until its consumers have nothing that could come again; returns how many messages stay all the same."""
    async with connect(url) as connection:
        work = await connection.jetstream().stream("BANK-books")
        left: list[str] = []

        async def is_over() -> bool:
            left[:] = [
                f"{info.name}: {info.num_pending} pending, {info.num_ack_pending} unacknowledged, "
                f"floor {info.ack_floor.stream_seq}"
                async for info in work.consumers()
                if info.num_pending or info.num_ack_pending
            ]
            return not left

        try:
            await until(is_over, "not all is acknowledged", within=PATIENCE_S)
        except AssertionError as error:
            error.add_note("; ".join(left))
            raise
        return (await work.info()).state.messages
