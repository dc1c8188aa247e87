"""A worker that is deployed anew, over and over, under load: by SIGTERM, by SIGKILL, while the broker is
restarted, while it is away.

Nothing may be lost, and what workers handled that were let end may not be handled again. ``make deploys``
deploys 200 times on either server (HEADRACE_DEPLOYS); the suite does a few. HEADRACE_SEED names the deploys.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

import peers
from client.deploy_worker import IN_TURN
from headrace.client import Connection, Consumer, connect
from headrace.errors import HeadraceError
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.timeout(7200)]

DEPLOYS = int(os.environ.get("HEADRACE_DEPLOYS", "0"))
DEPLOYS_IN_SHORT = 6
SEED = int(os.environ.get("HEADRACE_SEED", "20261126"))
PROGRAM = Path(__file__).with_name("deploy_worker.py")
START: dict[str, Callable[[Path], peers.ServerProcess]] = {
    "headrace": peers.start_headrace,
    "nats-server": peers.start_nats_server,
}
HOW = (
    "term",
    "term",
    "term",
    "kill",
    "restart",
    "away",
)  # half of all are told to end, and no more
ROUND = 5  # deploys of one kind, then all is handled and judged
BACKLOG = 150
ACK_WAIT_S = 4.0
ENDS_WITHIN_S = 8.0  # close_timeout, and a process that ends on a busy machine
PATIENCE_S = 90.0


class Turn(NamedTuple):
    """A message in the hands of one worker. ``ended`` is 0 where it was not let end."""

    pid: int
    begun: float
    ended: float


@dataclass
class Worker:
    way: str
    process: asyncio.subprocess.Process


@dataclass
class Outcome:
    """What became of everything."""

    deploys: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    lost: list[int] = field(default_factory=list)
    twice: Counter[str] = field(default_factory=Counter)
    """Messages handled more than once, by what the round's deploys were."""
    slowest_end: float = 0.0

    def line(self, kind: str) -> str:
        return (
            f"{kind}: {sum(self.deploys.values())} deploys ({dict(self.deploys)}), {self.messages} messages, "
            f"{len(self.lost)} lost, handled twice after graceful stops: {self.twice['term']}, "
            f"others {dict(self.twice)}, slowest end {self.slowest_end:.1f} s"
        )


class Deploys:
    def __init__(self, server: peers.ServerProcess, directory: Path, seed: str) -> None:
        self.server = server
        self.log = directory / "handled.log"
        self.errors = directory / "workers.log"
        self.chance = random.Random(seed)
        self.workers: list[Worker] = []
        self.outcome = Outcome()
        self.stored = 0
        self._begun = 0
        self._judged = 0  # bytes of the log
        self._killed: set[int] = set()
        self._known: set[int] = set()

    async def start_worker(self) -> None:
        """One more, which takes messages when this returns."""
        way = IN_TURN[self._begun % len(IN_TURN)]
        self._begun += 1
        arguments = (self.server.url, "WORK", "work", str(self.log), way)
        with self.errors.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-X", "dev", "-W", "error", str(PROGRAM), *arguments),
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
            )
        self.workers.append(Worker(way, process))
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            said = await process.stdout.readline()
        assert said == b"ready\n", self.errors.read_text()

    async def end_worker(self) -> None:
        """The oldest is told to end, and does so in time."""
        worker, began = self.workers.pop(0), time.monotonic()
        worker.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                status = await worker.process.wait()
        except TimeoutError:
            worker.process.kill()
            pytest.fail(f"a worker ({worker.way}) did not end within {ENDS_WITHIN_S} s")
        assert status == 0, f"{worker.way}: {status}\n{self.errors.read_text()}"
        self.outcome.slowest_end = max(self.outcome.slowest_end, time.monotonic() - began)

    async def deploy(self, how: str) -> None:
        """Start the new one, end the old one."""
        self.outcome.deploys[how] += 1
        await self.start_worker()
        if how == "kill":
            worker = self.workers.pop(0)
            worker.process.kill()
            self._killed.add(worker.process.pid)
            await worker.process.wait()
        elif how == "restart":
            await asyncio.to_thread(self.chance.choice([self.server.kill, self.server.stop]))
            await asyncio.to_thread(self.server.start_again)
            await self.end_worker()
        elif how == "away":
            await asyncio.to_thread(self.server.stop)
            await self.end_worker()
            await asyncio.to_thread(self.server.start_again)
        else:
            await self.end_worker()

    async def round(self, how: str, deploys: int) -> None:
        """Some deploys of one kind under load; then all that was published is handled, and looked at."""
        over = asyncio.Event()
        async with connect(self.server.url, reconnect_wait=0.02, reconnect_wait_max=0.1) as link:
            publishing = asyncio.create_task(self.publish(link, over))
            try:
                for _ in range(deploys):
                    await self.until_handled(self.outcome.messages - BACKLOG // 2)
                    await self.deploy(how)
            finally:
                over.set()
                await publishing
            consumer = await link.jetstream().consumer("WORK", "work")
            await until(lambda: _is_done(consumer), "not all is handled", within=PATIENCE_S)
            self.stored = (await (await link.jetstream().stream("WORK")).info()).state.last_seq
        self.judge(how)

    async def publish(self, link: Connection, over: asyncio.Event) -> None:
        """Keep a backlog, so that every worker has messages ahead of it when it goes."""
        js = link.jetstream(timeout=1)
        while not over.is_set():
            with suppress(HeadraceError):  # the server is away
                info = await (await js.consumer("WORK", "work")).info()
                for _ in range(max(0, BACKLOG - info.num_pending)):
                    await self.publish_one(js.publish, over)
            await asyncio.sleep(0.005)

    async def publish_one(self, publish: Callable[..., object], over: asyncio.Event) -> None:
        number = self.outcome.messages + 1
        await publish("work.do", b"%d" % number, msg_id=f"work-{number}")  # type: ignore[misc]
        self.outcome.messages = number

    async def until_handled(self, messages: int) -> None:
        """Until about so many were begun."""

        def enough() -> bool:
            return self.log.exists() and self.log.read_bytes().count(b"begun") >= messages

        await until(enough, "the workers handle nothing", within=PATIENCE_S)

    def judge(self, how: str) -> None:
        """Look at what was handled since the last look."""
        turns = turns_of(self.log.read_bytes()[self._judged :])
        self._judged = self.log.stat().st_size
        self._known |= turns.keys()
        for sequence, these in turns.items():
            if len(these) == 1:
                continue
            self.outcome.twice[how] += 1
            if how == "kill":
                before = [turn for turn in these[:-1] if turn.pid not in self._killed]
                assert not before, (
                    f"{sequence} came again, of workers that were not killed: {these}"
                )
            assert how != "term", f"{sequence} came again: {these}"

    async def end(self) -> None:
        """Kill those that are left and wait until they are gone: a later test would find their pipes."""
        for worker in self.workers:
            if worker.process.returncode is None:
                worker.process.kill()
            await worker.process.communicate()


def turns_of(log: bytes) -> dict[int, list[Turn]]:
    """By sequence, in the order in which they began."""
    turns: dict[int, list[Turn]] = defaultdict(list)
    for line in log.decode().splitlines():
        what, pid, sequence, at = line.split()
        those = turns[int(sequence)]
        if what == "begun":
            those.append(Turn(int(pid), float(at), 0.0))
        else:
            place = max(i for i, turn in enumerate(those) if turn.pid == int(pid))
            those[place] = those[place]._replace(ended=float(at))
    return turns


async def _is_done(consumer: Consumer) -> bool:
    info = await consumer.info()
    return not info.num_pending and not info.num_ack_pending


@asynccontextmanager
async def deploys_on(kind: str, directory: Path) -> AsyncIterator[Deploys]:
    server = START[kind](directory / "server")
    deploys = Deploys(server, directory, f"{SEED} {kind}")
    try:
        async with connect(server.url) as connection:
            js = connection.jetstream()
            stream = await js.create_stream(name="WORK", subjects=["work.>"])
            await stream.create_consumer(durable_name="work", ack_wait=ACK_WAIT_S)
        await deploys.start_worker()
        yield deploys
    finally:
        await deploys.end()
        server.stop()


@pytest.mark.parametrize(
    "kind",
    [
        "headrace",
        pytest.param(
            "nats-server", marks=pytest.mark.slow("tests/client/test_programs_that_end.py")
        ),
    ],
)
async def test_nothing_is_lost_and_nothing_comes_again_of_a_worker_that_was_let_end(
    kind: str, tmp_path: Path
) -> None:
    left = DEPLOYS or DEPLOYS_IN_SHORT
    async with deploys_on(kind, tmp_path) as deploys:
        number = 0
        while left > 0:
            how = HOW[number % len(HOW)] if DEPLOYS else ("term", "away", "kill", "restart")[number]
            many = min(left, ROUND if DEPLOYS else 3 if how == "term" else 1)
            await deploys.round(how, many)
            left -= many
            number += 1
        outcome = deploys.outcome
        assert deploys.stored >= outcome.messages
        outcome.lost = sorted(set(range(1, deploys.stored + 1)) - deploys._known)
    print(outcome.line(kind))
    assert not outcome.lost
    assert not outcome.twice["term"]
