"""Wakes who waits for jobs, once per ring, and finds jobs whose ring nobody heard, or that become due.

A ring wakes one client, which wakes the next if there was work: if every new job woke all of them, they
would all ask the database for the same row. It is heard at once in the process that made the job, and in
others by a notice of the database. Nothing tells of a job that becomes due, of one that another process
put into a SQLite file, or of one that came while the connection for notices was broken. So each process
asks for its waiters together, once in ``POLL_S``: no job that has a waiter waits longer than that.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

from .. import limits
from ..service.definitions.consumers import DEFINITIONS
from ..store import Database, Tx
from .parts import Parts

__all__ = ["JobWaiter", "JobWaiters", "Lookout"]


class JobWaiter:
    """One waiter. Enter it (``with``) before querying the database, so that no ring is missed."""

    def __init__(self, waiters: JobWaiters, consumer: int) -> None:
        self._waiters = waiters
        self._consumer = consumer
        self._rung = asyncio.Event()

    def __enter__(self) -> JobWaiter:
        self._waiters.add(self._consumer, self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._waiters.remove(self._consumer, self)
        if self._rung.is_set():
            self._waiters.ring([self._consumer])

    @property
    def rung(self) -> bool:
        return self._rung.is_set()

    def wake(self) -> None:
        self._rung.set()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return when woken, or after ``timeout_s`` if it is given. Safe to cancel."""
        try:
            async with asyncio.timeout(None if timeout_s is None else max(0.0, timeout_s)):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()
        self._waiters.to_the_end(self._consumer, self)


class JobWaiters:
    """All waiters, by consumer, in the order in which they are woken."""

    def __init__(self) -> None:
        self._by_consumer: dict[int, OrderedDict[JobWaiter, None]] = {}

    def waiter(self, consumer: int) -> JobWaiter:
        """A new waiter for jobs of ``consumer``."""
        return JobWaiter(self, consumer)

    def consumers(self) -> list[int]:
        """The consumers whose jobs somebody waits for."""
        return list(self._by_consumer)

    def ring(self, consumers: Sequence[int]) -> None:
        """Wake one waiter for each of ``consumers``; if none is named, wake all waiters."""
        if not consumers:
            for waiting in self._by_consumer.values():
                for waiter in waiting:
                    waiter.wake()
            return
        for consumer in consumers:
            for waiter in self._by_consumer.get(consumer, ()):
                if not waiter.rung:
                    waiter.wake()
                    break

    def add(self, consumer: int, waiter: JobWaiter) -> None:
        self._by_consumer.setdefault(consumer, OrderedDict())[waiter] = None

    def remove(self, consumer: int, waiter: JobWaiter) -> None:
        waiting = self._by_consumer[consumer]
        del waiting[waiter]
        if not waiting:
            del self._by_consumer[consumer]

    def to_the_end(self, consumer: int, waiter: JobWaiter) -> None:
        self._by_consumer[consumer].move_to_end(waiter)


_PART: Final = "lookout"
_PAUSE_S_MIN: Final = 0.01


class Lookout:
    """``run`` until cancelled; rings for those whose jobs are ready."""

    def __init__(self, database: Database, waiters: JobWaiters, parts: Parts) -> None:
        self._database = database
        self._waiters = waiters
        self._parts = parts
        self._soon = asyncio.Event()
        self._definitions: tuple[Any, ...] | None = None

    async def run(self) -> None:
        """Look, and look again, until cancelled."""
        while True:
            self._soon.clear()
            pause_s = await self._parts.attempt(_PART, self.look)
            try:
                async with asyncio.timeout(limits.POLL_S if pause_s is None else pause_s):
                    await self._soon.wait()
            except TimeoutError:
                continue

    def look_now(self) -> None:
        """Rings may have been missed."""
        self._soon.set()

    async def look(self) -> float:
        """Ring for what is ready. Returns how long until the next look."""
        waited = self._waiters.consumers()
        if not waited:
            return limits.POLL_S

        def read(tx: Tx) -> tuple[list[int], int | None, tuple[Any, ...] | None]:
            ready, next_us = _ready(tx, [seq for seq in waited if seq != DEFINITIONS])
            return ready, next_us, _definitions(tx) if DEFINITIONS in waited else None

        ready, left_us, definitions = await self._database.read(read)
        if definitions is not None and definitions != self._definitions:
            self._definitions = definitions
            ready.append(DEFINITIONS)
        if ready:  # none would be all
            self._waiters.ring(ready)
        if left_us is None:
            return limits.POLL_S
        return min(limits.POLL_S, max(_PAUSE_S_MIN, left_us / 1e6))


def _ready(tx: Tx, consumers: Sequence[int]) -> tuple[list[int], int | None]:
    """Find which of ``consumers`` have jobs to claim, and in how many microseconds the next is due."""
    if not consumers:
        return [], None
    now, ready, upcoming = tx.now_us(), [], []
    for row in tx.all("waiting_jobs", consumers=json.dumps(consumers)):
        due_us = row["due_us"]
        if row["ready"] or due_us <= now:
            ready.append(row["consumer_seq"])
        else:
            upcoming.append(due_us - now)
    return ready, min(upcoming, default=None)


def _definitions(tx: Tx) -> tuple[Any, ...]:
    """Something that is different after any change of a push consumer."""
    row = tx.one("definitions_stamp")
    if row is None:
        raise AssertionError("an aggregate has one row")
    columns = ("consumers", "newest_us", "versions", "disabled", "failing", "removed", "paused")
    return tuple(row[column] for column in columns)
