"""The shared state of a running service: the database, the clock, the waiters, the metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from ...clock import Clock, SystemClock
from .. import limits
from ..errors import DatabaseUnavailableError, JobsError
from ..metrics import Metrics
from ..models import ClaimedJob, Consumer, Options, Published, Waiting
from ..service import fanning, leases
from ..service.auditing import Guesses, PerMinute, note_event
from ..service.definitions import sealing
from ..service.leases import Claim, Endings, lease_all
from ..service.page_reads import Cursors
from ..service.processes import make_once
from ..service.publishing.publishing import Publication, publish_all
from ..store import Database, Tx
from . import counting
from .keyring import Keyring
from .lookout import JobWaiters, Lookout
from .parts import Parts, WriteProbe

__all__ = ["Runtime"]

T = TypeVar("T")
Claimed = tuple[Consumer, list[ClaimedJob]]

_LOG: Final = logging.getLogger("headrace.jobs")


@dataclass
class Runtime:
    """One process of the service. ``start`` opens the database; ``close`` closes it."""

    database: Database
    options: Options = field(default_factory=Options)
    clock: Clock = field(default_factory=SystemClock)
    random: Callable[[], float] = random.random
    waiters: JobWaiters = field(default_factory=JobWaiters)
    metrics: Metrics = field(default_factory=Metrics)
    node: str = field(default_factory=lambda: secrets.token_hex(4))
    admin_token: str | None = field(default=None, repr=False)
    draining: asyncio.Event = field(default_factory=asyncio.Event)

    cursors: Cursors = field(init=False, repr=False)
    parts: Parts = field(init=False, repr=False)
    probe: WriteProbe = field(init=False, repr=False)
    keys: Keyring = field(init=False, repr=False)
    refusals: PerMinute = field(init=False, repr=False)
    guesses: Guesses = field(init=False, repr=False)
    depths: counting.Depths = field(init=False, repr=False)
    _lookout: Lookout = field(init=False, repr=False)
    _looking: asyncio.Task[None] | None = field(default=None, init=False, repr=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)
    _returning: set[asyncio.Task[Any]] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        self.parts = Parts(self.metrics, self.clock)
        self.probe = WriteProbe(self.database, self.clock)
        self.keys = Keyring(self.database, self.clock)
        self.refusals = PerMinute(limits.AUDIT_REFUSALS_PER_MINUTE, self.clock)
        self.guesses = Guesses(self.clock)
        self.depths = counting.Depths(self.database, self.metrics)
        self._lookout = Lookout(self.database, self.waiters, self.parts)

    async def start(self) -> None:
        """Open the database. The key of the cursors is created once and shared by all processes."""
        self.database.on_ring(self._rung)
        await self.database.start()
        made = secrets.token_hex(32)
        try:
            await self._check_secrets()
            key = await self.database.write(lambda tx: make_once(tx, "cursor_key", made))
        except BaseException:
            await self.database.close()
            raise
        self.cursors = Cursors(bytes.fromhex(key))
        self._looking = asyncio.create_task(self._lookout.run(), name="jobs-lookout")

    async def _check_secrets(self) -> None:
        """Raise ConfigurationError if a key is missing; seal what is not sealed with the first one."""
        await self.database.read(sealing.check_keys)
        after: int | None = 0
        while after is not None:
            _, after = await self.database.write(lambda tx, a=after: sealing.seal_some(tx, a))  # type: ignore[misc]

    async def close(self) -> None:
        """Close the database, after work in progress is finished."""
        self.draining.set()
        self.waiters.ring(())
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        while self._returning:
            await asyncio.gather(*self._returning, return_exceptions=True)
        await self.probe.close()
        await self.depths.close()
        await self.database.close()

    def _rung(self, consumers: Sequence[int]) -> None:
        """The database tells of jobs; of none in particular if it may have missed some."""
        if consumers:
            self.waiters.ring(consumers)
        else:
            self._lookout.look_now()

    async def tell(self, kind: str, channel: str, consumer: str | None, detail: str) -> None:
        """Store an event of a channel, and count it."""
        await self.database.write(
            lambda tx: note_event(tx, kind, tx.now_us(), detail, channel, consumer)
        )
        self.metrics.add("jobs_events_total", kind=kind)

    def now_us(self) -> int:
        """Microseconds since 1970 by this process's clock: for signatures and logs.

        Times that other processes act upon come from the database's clock, :meth:`Tx.now_us`.
        """
        return self.clock.now_ns() // 1000

    async def claim(self, wanted: Claim) -> Claimed:
        """Claim ready jobs, without waiting; what others ask at the same time goes with it."""
        begun = self.clock.monotonic_ns()
        claimed: Claimed = await self.database.write_together(lease_all, wanted, weight=wanted.n)
        self._count_claimed(begun, *claimed)
        return claimed

    async def in_turn(self, work: Callable[[Tx], T]) -> T:
        """Run a large piece of work in a transaction, when no other one of this process runs.

        So what is small, and comes meanwhile, waits for one of them, however many there are.
        """
        async with self._turn:
            return await self.database.write(work)

    async def publish(self, wanted: Publication) -> list[Published]:
        """Store messages, together with those that others publish at the same time; see ``publish_all``.

        Returns when all of their jobs are made. If this ends before, the messages that are stored get them
        by upkeep.
        """
        is_large = wanted.weight > limits.TURN_ROWS
        async with self._turn if is_large else contextlib.nullcontext():
            published: list[Published] = await self.database.write_together(
                publish_all, wanted, weight=wanted.weight
            )
        if not all(one.replayed for one in published):
            jobs = sum(one.jobs for one in published)
            self.metrics.add("jobs_enqueued_total", jobs, channel=wanted.channel_id)
        waiting = [one.waiting for one in published if one.waiting is not None]
        if not waiting:
            return published
        await self.make_jobs(max(waiting))
        seqs = [each.message_seq for each in waiting]
        made = await self.database.read(lambda tx: fanning.jobs_made(tx, seqs))
        return [
            one if one.waiting is None else replace(one, jobs=made[one.waiting.message_seq])
            for one in published
        ]

    async def make_jobs(self, until: Waiting) -> None:
        """Make the jobs of this message, and of those before it in its channel, some at a time."""
        while await self.make_some_jobs(until):
            pass

    async def make_some_jobs(self, until: Waiting) -> bool:
        """Make some of these jobs, in a transaction. Returns whether there were any to be made."""
        async with self._turn:
            found = await self.database.read(lambda tx: fanning.next_slice(tx, until))
            if found is None:
                return False
            made = await self.database.write(
                lambda tx: fanning.make_some(tx, found.messages, tx.now_us())
            )
        self.metrics.add("jobs_enqueued_total", made.total(), channel=found.channel_id)
        return True

    async def end(self, wanted: Endings) -> tuple[Consumer, list[leases.Result]]:
        """End leased jobs, together with what others ask at the same time."""
        ended: tuple[Consumer, list[leases.Result]]
        ended = await self.database.write_together(lease_all, wanted, weight=len(wanted.jobs))
        return ended

    def _count_claimed(self, begun_ns: int, consumer: Consumer, jobs: list[ClaimedJob]) -> None:
        if jobs:
            seconds = (self.clock.monotonic_ns() - begun_ns) / 1e9
            self.metrics.observe("jobs_claim_duration_seconds", seconds)
            counting.count_claimed(self.metrics, consumer, len(jobs))

    async def claim_or_wait(
        self,
        again: Callable[[], Coroutine[Any, Any, Claimed]],
        consumer_seq: int,
        wait_s: float,
        left: Callable[[], Coroutine[Any, Any, None]],
    ) -> list[ClaimedJob]:
        """Repeat ``again`` until it returns jobs, ``wait_s`` are over, or the service drains.

        Nothing is claimed for a client that ``left``: its jobs would have to wait for their leases to
        expire. What was claimed meanwhile, for it or for a caller that was cancelled, is given back at once.
        """
        end = self.clock.monotonic_ns() + round(wait_s * 1e9)
        gone = asyncio.create_task(left())
        try:
            with self.waiters.waiter(consumer_seq) as waiter:
                gone.add_done_callback(lambda _: waiter.wake())
                while True:
                    consumer, jobs = await self._claim_again(again, consumer_seq)
                    if jobs and gone.done():
                        await self.give_back(consumer, jobs)
                        return []
                    left_s = (end - self.clock.monotonic_ns()) / 1e9
                    if jobs:
                        # There may be more jobs than one client could take: wake the next one.
                        self.waiters.ring([consumer_seq])
                        return jobs
                    if left_s <= 0 or self.draining.is_set():
                        return []
                    await waiter.wait(left_s)
                    if gone.done():
                        # The jobs that woke this client, if there are any, are for another one.
                        self.waiters.ring([consumer_seq])
                        return []
        finally:
            gone.cancel()

    async def give_back(self, consumer: Consumer, jobs: Sequence[ClaimedJob]) -> None:
        """Let others have these jobs, which nobody knows of; if the database is away, after their leases."""
        endings = [leases.released(leases.Held(job.seq, job.lease), 0.0) for job in jobs]
        try:
            _, results = await self.end(Endings(lambda _: consumer, endings, self.random))
        except JobsError as error:
            _LOG.warning(
                "%d jobs of a client that left wait for their leases: %s", len(jobs), error
            )
        else:
            self.count_results(consumer, "released", results)

    def _unwanted(self, asking: asyncio.Task[Claimed]) -> None:
        """Give jobs back whose asker was cancelled meanwhile."""
        if asking.cancelled() or asking.exception() is not None or not asking.result()[1]:
            return
        returning = asyncio.create_task(self.give_back(*asking.result()), name="jobs-give-back")
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)

    async def _claim_again(
        self, again: Callable[[], Coroutine[Any, Any, Claimed]], consumer_seq: int
    ) -> Claimed:
        asking = asyncio.create_task(again())
        self._returning.add(asking)  # until it is over, there may be something to give back
        asking.add_done_callback(self._returning.discard)
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(self._unwanted)
            raise
        except DatabaseUnavailableError:
            raise
        except JobsError:
            # The consumer has changed: the others who wait for its jobs are refused, too.
            self.waiters.ring([consumer_seq])
            raise

    def count_results(
        self, consumer: Consumer, outcome: str, results: Sequence[leases.Result]
    ) -> None:
        """Count claims that ended; rejected items are counted as such."""
        counting.count_results(self.metrics, consumer, outcome, results)
