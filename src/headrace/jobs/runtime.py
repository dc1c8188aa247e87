"""The shared state of a running service: the database, the clock, the bell, the metrics."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..clock import Clock, SystemClock
from . import counting
from .bell import Bell
from .errors import DatabaseUnavailableError, JobsError
from .lookout import Lookout
from .metrics import Metrics
from .models import ClaimedJob, Consumer, Options
from .parts import Parts
from .readiness import WriteProbe
from .service import leases
from .service.joined_leases import Caller, ClaimOne, claim_all
from .service.reads import Cursors
from .service.upkeep import make_once
from .store import Database

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
    _lookout: Lookout = field(init=False, repr=False)
    _looking: asyncio.Task[None] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.parts = Parts(self.metrics, self.clock)
        self.probe = WriteProbe(self.database, self.clock)
        self._lookout = Lookout(self.database, self.bell, self.parts)

    async def start(self) -> None:
        """Open the database. The key of the cursors is created once and shared by all processes."""
        self.database.on_ring(self._rung)
        await self.database.start()

        made = secrets.token_hex(32)
        key = await self.database.write(lambda tx: make_once(tx, "cursor_key", made))
        self.cursors = Cursors(bytes.fromhex(key))
        self._looking = asyncio.create_task(self._lookout.run(), name="jobs-lookout")

    async def close(self) -> None:
        """Close the database, after work in progress is finished."""
        self.draining.set()
        self.bell.ring(())
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self.probe.close()
        await self.database.close()

    def _rung(self, consumers: Sequence[int]) -> None:
        """The database tells of jobs; of none in particular if it may have missed some."""
        if consumers:
            self.bell.ring(consumers)
        else:
            self._lookout.look_now()

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
        self._count_claimed(begun, consumer, jobs)
        return jobs

    async def claim_for(
        self, caller: Caller, n: int, lease_s: float
    ) -> tuple[Consumer, list[ClaimedJob]]:
        """The same for a worker, and its consumer; what other workers ask at the same time goes with it."""
        if (
            n > 1
        ):  # enough for a transaction of its own; who asks is looked up beside the one that writes
            asking = await self.database.read(caller.consumer)
            return asking, await self.claim(asking, n, lease_s)
        begun = self.clock.monotonic_ns()
        consumer, jobs = await self.database.write_together(claim_all, ClaimOne(caller, lease_s))
        self._count_claimed(begun, consumer, jobs)
        return consumer, jobs

    def _count_claimed(self, begun_ns: int, consumer: Consumer, jobs: list[ClaimedJob]) -> None:
        if jobs:
            seconds = (self.clock.monotonic_ns() - begun_ns) / 1e9
            self.metrics.observe("jobs_claim_duration_seconds", seconds)
            counting.count_claimed(self.metrics, consumer, len(jobs))

    async def claim_or_wait(
        self,
        again: Callable[[], Awaitable[list[ClaimedJob]]],
        consumer_seq: int,
        wait_s: float,
        left: Callable[[], Coroutine[Any, Any, None]],
    ) -> list[ClaimedJob]:
        """Repeat ``again`` until it returns jobs, ``wait_s`` are over, or the service drains.

        Nothing is claimed for a client that ``left``: its jobs would have to wait for their leases to
        expire.
        """
        end = self.clock.monotonic_ns() + round(wait_s * 1e9)
        gone = asyncio.create_task(left())
        try:
            with self.bell.ear(consumer_seq) as ear:
                gone.add_done_callback(lambda _: ear.wake())
                while True:
                    jobs = await self._claim_again(again, consumer_seq)
                    left_s = (end - self.clock.monotonic_ns()) / 1e9
                    if jobs:
                        # There may be more jobs than one client could take: wake the next one.
                        self.bell.ring([consumer_seq])
                        return jobs
                    if left_s <= 0 or self.draining.is_set():
                        return []
                    await ear.wait(left_s)
                    if gone.done():
                        # The jobs that woke this client, if there are any, are for another one.
                        self.bell.ring([consumer_seq])
                        return []
        finally:
            gone.cancel()

    async def _claim_again(
        self, again: Callable[[], Awaitable[list[ClaimedJob]]], consumer_seq: int
    ) -> list[ClaimedJob]:
        try:
            return await again()
        except DatabaseUnavailableError:
            raise
        except JobsError:
            # The consumer has changed: the others who wait for its jobs are refused, too.
            self.bell.ring([consumer_seq])
            raise

    def count_results(
        self, consumer: Consumer, outcome: str, results: Sequence[leases.Result]
    ) -> None:
        """Count claims that ended; rejected items are counted as such."""
        counting.count_results(self.metrics, consumer, outcome, results)
