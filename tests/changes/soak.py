"""A soak of random changes under traffic, against a model of what must be handled and kept.

    python tests/changes/soak.py --minutes 60 --server headrace --jobs postgres --seed 7

Nothing may be lost, doubled or out of order, and nothing may wait longer than ten seconds without a line
that says why. A seed draws the same changes in the same order; when they meet the traffic is the machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parents[1]))

from changes.deeds import Deeds
from changes.places import Kind, Server, Service
from changes.ships import KEYS, Ships
from changes.traffic import Work, flowing, set_up
from headrace.client import connect
from headrace.errors import HeadraceError
from headrace.groups import elastic, lag
from jobs_endpoint import Endpoint

END_S = 90.0
"""So long everything that is stored has, once nothing is published any more."""


@dataclass
class Plan:
    """One run."""

    server: Kind = "headrace"
    jobs: Literal["sqlite", "postgres"] = "sqlite"
    seconds: float = 60.0
    seed: int = 1
    between_s: float = 0.6
    pace_s: float = 0.12
    ack_waits: tuple[float, ...] = (3.0, 5.0, 10.0, 20.0)
    only: tuple[str, ...] = ()
    most: int = 0
    """So many changes at most; 0: as many as there is time for."""
    least: int = 0
    """So many changes at least, however long they take."""


@dataclass
class Report:
    """What happened."""

    changes: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    lanes: dict[str, dict[str, float]] = field(default_factory=dict)
    refused_when_full: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def soak(plan: Plan, folder: Path, tell: Callable[[str], None] = lambda _: None) -> Report:
    """Run it. Everything it starts, it ends."""
    begun = time.monotonic()
    server = Server.start(plan.server, folder / "server")
    try:
        async with (
            await Service.start(plan.jobs, folder) as service,
            connect(server.process.url, reconnect_wait=0.1) as connection,
            Endpoint() as endpoint,
        ):
            draws = Random(plan.seed), Random(plan.seed + 1)
            work = Work(connection.jetstream(), server, service, *draws, plan.pace_s)
            work.ack_waits, work.tell = plan.ack_waits, tell
            watching = asyncio.create_task(_watch(work, connection, tell))
            try:
                endpoint.respond = work.pushed_job
                deeds = Deeds(work, endpoint.url, Ships(work), only=plan.only)
                await set_up(work.js)
                await deeds.ships.set_up()
                await _change(plan, work, deeds, tell)
            finally:
                work.over.set()
                await watching
    finally:
        server.process.stop()
    report = Report(kinds=deeds.done, repeated=deeds.repeated, seconds=time.monotonic() - begun)
    report.changes = sum(deeds.done.values())
    report.refused_when_full = work.kept.refused
    for lane in work.lanes.values():
        lane.end()
        report.lanes[lane.name] = lane.counts
    report.wrong += work.wrong
    return report


async def _watch(work: Work, connection: Any, tell: Callable[[str], None]) -> None:
    """Look at every lane each second, and hear what the connection tells."""
    told = 0
    late: deque[float] = deque(maxlen=15)

    async def listen() -> None:
        async for event in connection.events():
            work.on_event(event)

    listening = asyncio.create_task(listen())
    try:
        while not work.over.is_set():
            now = time.monotonic()
            for lane in work.lanes.values():
                lane.look(now)
            for number in range(told, len(work.wrong)):
                work.wrong[number] += f" ({_machine(late)})"
                tell(f"WRONG {work.wrong[number]}")
            fresh, told = work.wrong[told:], len(work.wrong)
            if any(each.startswith("group: stuck") for each in fresh):
                tell(await _look(work))
            await work.rest(1.0)
            late.append(time.monotonic() - now - 1.0)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def _look(work: Work) -> str:
    """How the group stands: what waits, who reads, how the copy goes."""
    try:
        async with asyncio.timeout(5):
            group = await elastic.get(work.js, "ORDERS", "billing")
            queue = await (await work.js.stream("ORDERS-billing")).info()
            found = await lag.measure(work.js, group)
    except (HeadraceError, TimeoutError) as error:
        return f"    group billing: {error!r}"
    return f"    group billing: {found}; queue {queue.state.messages}, {queue.sources}"


def _machine(late: deque[float]) -> str:
    """How busy the machine is, and by how much a pause of a second was too long: a wait may be its fault."""
    most = max(late, default=0.0)
    return f"load {os.getloadavg()[0]:.1f}, this loop up to {most:.1f} s late in {len(late)} s"


async def _change(plan: Plan, work: Work, deeds: Deeds, tell: Callable[[str], None]) -> None:
    begun = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(_leave, work, deeds.ships)
        for name in ("ann", "bob"):
            await work.join(name)
        shipping = [deeds.ships.publish(f"ships.{key}") for key in range(KEYS)]
        async with flowing(work, *shipping) as tasks:
            count = 0
            while (count < plan.least or time.monotonic() - begun < plan.seconds) and not (
                plan.most and count >= plan.most
            ):
                name = await deeds.one()
                count += 1
                tell(f"{time.monotonic() - begun:7.1f} s  {name}")
                for task in tasks:
                    if task.done() and (error := task.exception()) is not None:
                        raise error
                await work.rest(work.random.uniform(0.2, 1.8) * plan.between_s)
            await _settle(work, deeds)


async def _settle(work: Work, deeds: Deeds) -> None:
    """Publish no more; let room be, and wait until everything stored is handled."""
    work.quiet.set()
    stream = await work.js.stream(deeds.queue)
    await stream.update(max_msgs=-1, max_bytes=-1)
    if (await elastic.get(work.js, "ORDERS", "billing")).change is not None:
        await elastic.change(work.js, "ORDERS", "billing")
    await elastic.update(
        work.js, "ORDERS", "billing", max_buffered_messages=0, max_buffered_bytes=0
    )
    ends = time.monotonic() + END_S
    while any(lane.waiting for lane in work.lanes.values()) and time.monotonic() < ends:
        await work.rest(0.1)
    async with work.log:
        await work.check_kept()


async def _leave(work: Work, ships: Ships) -> None:
    work.over.set()
    await ships.leave_all()
    for member in [*work.members]:
        await work.leave(member)
    await asyncio.gather(*work.tasks, *ships.tasks)


def _show_tasks(*_: object) -> None:
    """Where every task stands, for one who wonders why nothing goes on."""
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--server", choices=("headrace", "nats-server"), default="headrace")
    parser.add_argument("--jobs", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    parser.add_argument("--only", nargs="*", default=(), metavar="KIND", help="only these changes")
    parser.add_argument("--quiet", action="store_true", help="only what is wrong, and the report")
    args = parser.parse_args()
    plan = Plan(args.server, args.jobs, args.minutes * 60, args.seed, only=tuple(args.only))
    print(plan, flush=True)
    signal.signal(signal.SIGUSR1, _show_tasks)

    def tell(line: str) -> None:
        if not args.quiet or line.startswith("WRONG"):
            print(line, flush=True)

    # Whoever ends it, what it has started is ended.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with tempfile.TemporaryDirectory(prefix="headrace-changes-") as folder:
        report = asyncio.run(soak(plan, Path(folder), tell))
    print(report)
    if report.wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
