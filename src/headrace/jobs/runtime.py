"""The shared state of a running service: the database, the clock, the bell, the metrics."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..clock import Clock, SystemClock
from . import counting, limits
from .bell import Bell
from .metrics import Metrics
from .models import ClaimedJob, Consumer, Options
from .parts import Parts
from .readiness import WriteProbe
from .service import leases
from .service.reads import Cursors
from .service.upkeep import make_once
from .store import Database, Tx

__all__ = ["Runtime"]

T = TypeVar("T")


@dataclass
class Runtime:
    """One process of the service. ``start`` opens the database; ``close`` closes it."""

    database: Database
    options: Options = field(default_factory=Options)
    clock: Clock = field(default_factory=SystemClock)
    random: Callable[[], float] = random.random
    bell: Bell = field(default_factory=Bell)
    metrics: Metrics = field(default_factory=Metrics)
    node: str = field(default_factory=lambda: secrets.token_hex(4))
    admin_token: str | None = field(default=None, repr=False)
    draining: asyncio.Event = field(default_factory=asyncio.Event)

    cursors: Cursors = field(init=False, repr=False)
    parts: Parts = field(init=False, repr=False)
    probe: WriteProbe = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.parts = Parts(self.metrics, self.clock)
        self.probe = WriteProbe(self.database, self.clock)

    async def start(self) -> None:
        """Open the database. The key of the cursors is created once and shared by all processes."""
        self.database.on_ring(self.bell.ring)
        await self.database.start()

        made = secrets.token_hex(32)
        key = await self.database.write(lambda tx: make_once(tx, "cursor_key", made))
        self.cursors = Cursors(bytes.fromhex(key))

    async def close(self) -> None:
        """Close the database, after work in progress is finished."""
        self.draining.set()
        self.bell.ring(())
        await self.probe.close()
        await self.database.close()

    def now_us(self) -> int:
        """Microseconds since 1970 by this process's clock: for signatures and logs.

        Times that other processes act upon come from the database's clock, :meth:`Tx.now_us`.
        """
        return self.clock.now_ns() // 1000

    async def claim(self, consumer: Consumer, n: int, lease_s: float) -> list[ClaimedJob]:
        """Claim ready jobs, without waiting."""
        begun = self.clock.monotonic_ns()
        jobs = await self.database.write(
            lambda tx: leases.claim(tx, consumer, n, lease_s, tx.now_us())
        )
        if jobs:
            self.metrics.observe(
                "jobs_claim_duration_seconds", (self.clock.monotonic_ns() - begun) / 1e9
            )
            counting.count_claimed(self.metrics, consumer, len(jobs))
        return jobs

    async def claim_or_wait(
        self,
        again: Callable[[], Awaitable[tuple[Consumer, list[ClaimedJob]]]],
        consumer_seq: int,
        wait_s: float,
        is_gone: Callable[[], Awaitable[bool]],
    ) -> list[ClaimedJob]:
        """Repeat ``again`` until it returns jobs, ``wait_s`` are over, or the service drains.

        Nothing is claimed for a client that ``is_gone``: its jobs would have to wait for their leases to
        expire.
        """
        end = self.clock.monotonic_ns() + round(wait_s * 1e9)
        with self.bell.ear(consumer_seq) as ear:
            while True:
                consumer, jobs = await again()
                left_s = (end - self.clock.monotonic_ns()) / 1e9
                if jobs:
                    # There may be more jobs than one client could take: wake the next one.
                    self.bell.ring([consumer_seq])
                    return jobs
                if left_s <= 0 or self.draining.is_set():
                    return []
                await ear.wait(min(left_s, await self.pause_s(consumer.seq)))
                if await is_gone():
                    # The jobs that woke this client are for another one.
                    self.bell.ring([consumer_seq])
                    return []

    async def pause_s(self, consumer_seq: int) -> float:
        """The maximum wait before the next check: until the next job is due, or the polling interval."""

        def left_us(tx: Tx) -> int | None:
            due = leases.next_due_us(tx, consumer_seq)
            return None if due is None else due - tx.now_us()

        left = await self.database.read(left_us)
        return limits.POLL_S if left is None else min(limits.POLL_S, max(0.0, left / 1e6))

    def count_results(
        self, consumer: Consumer, outcome: str, results: Sequence[leases.Result]
    ) -> None:
        """Count claims that ended; rejected items are counted as such."""
        counting.count_results(self.metrics, consumer, outcome, results)
