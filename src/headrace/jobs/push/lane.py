"""One push consumer, in the one process that pushes to it: claims jobs, calls the endpoint, stores results.

A lane has its own limit on concurrent calls, its own rate and its own breaker, so that a slow or broken
endpoint delays no other consumer. Results are stored in batches: all that arrived while the last batch was
being written.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from .. import limits
from ..errors import DatabaseUnavailableError
from ..models import ClaimedJob, Consumer
from ..runtime.lookout import JobWaiter
from ..runtime.parts import reason_of
from ..runtime.runtime import Runtime
from ..service.leases import Claim
from ..service.push.lanes import TakenError
from ..service.push.results import Called, PushNotes, Written, note_all
from ..store import Tx
from .attempt import call_endpoint, not_made, unexpected
from .breaker import Breaker, Bucket, Ceiling
from .guard import OwnMachineError, own_fault
from .sender import Sender

__all__ = ["Lane"]

_LOG: Final = logging.getLogger("headrace.jobs.push")
_STORING_S: Final = 15.0  # a lease lasts as long as the call may, and this to store its result
_THROTTLING: Final = frozenset({429, 502, 503, 504})


class Lane:
    """Pushes the jobs of one consumer. ``run`` until cancelled or ``stop``.

    ``check`` raises :class:`~..service.push.lanes.TakenError` in the transaction of a claim, if this
    process may not push. ``ceiling`` is that of all lanes of the process. With ``succeeds``, another process
    has pushed to the consumer until now, so its rate begins with nothing saved.
    """

    def __init__(
        self,
        runtime: Runtime,
        consumer: Consumer,
        sender: Sender,
        ceiling: Ceiling,
        check: Callable[[Tx], None] = lambda _: None,
        *,
        succeeds: bool = False,
    ) -> None:
        self._runtime = runtime
        self._sender = sender
        self._ceiling = ceiling
        self._calls: set[asyncio.Task[None]] = set()
        self._results: list[Called] = []
        self._stir = asyncio.Event()
        self._stopping = False
        self._told: set[tuple[type[Exception], str, int]] = set()
        self._throttled_until_s = 0.0
        self.consumer = consumer
        self._breaker = Breaker(consumer.settings.breaker)
        self._check = check
        self._bucket = Bucket(consumer.settings.rate_per_s, self._now_s(), empty=succeeds)

    def refresh(self, consumer: Consumer) -> None:
        """The definition was read again."""
        if consumer.updated_us != self.consumer.updated_us:
            # A claim by the definition before took nothing, and more may be allowed now.
            self._stir.set()
        before, self.consumer = self.consumer.settings, consumer
        if consumer.settings.breaker != before.breaker:
            self._breaker.policy = consumer.settings.breaker
        if consumer.settings.rate_per_s != before.rate_per_s:
            self._bucket = Bucket(consumer.settings.rate_per_s, self._now_s())

    def stop(self) -> None:
        """Claim no more. ``run`` returns when the calls in progress have ended and their results are
        stored.
        """
        self._stopping = True
        self._stir.set()

    async def run(self) -> None:
        """Serve the consumer until stopped."""
        with self._runtime.waiters.waiter(self.consumer.seq) as waiter:
            hearing = asyncio.create_task(self._hear(waiter))
            try:
                while True:
                    self._stir.clear()
                    pause_s: float | None
                    try:
                        pause_s = await self._step()
                    except Exception as error:
                        pause_s = self._runtime.parts.failed(self.part, error)
                    if self._stopping and not self._calls and not self._results:
                        return
                    try:
                        async with asyncio.timeout(pause_s):
                            await self._stir.wait()
                    except TimeoutError:
                        continue
            finally:
                self._runtime.parts.forget(self.part)
                self._runtime.parts.forget(self.calls_part)
                self._ceiling.forget(*self._key)
                hearing.cancel()
                for call in self._calls:
                    call.cancel()
                await asyncio.gather(hearing, *self._calls, return_exceptions=True)

    @property
    def part(self) -> str:
        """Name of the lane where failing parts are shown."""
        return f"push {self._name}"

    @property
    def calls_part(self) -> str:
        """Name of its calls there: they fail if this machine cannot make them."""
        return f"calls of push {self._name}"

    @property
    def _key(self) -> tuple[str, str]:
        return self.consumer.channel_id, self.consumer.consumer_id

    @property
    def _name(self) -> str:
        return f"{self.consumer.channel_id}/{self.consumer.consumer_id}"

    def _now_s(self) -> float:
        return self._runtime.clock.monotonic_ns() / 1e9

    async def _hear(self, waiter: JobWaiter) -> None:
        while True:
            await waiter.wait()
            self._stir.set()

    async def _step(self) -> float | None:
        """Store results and claim jobs. Returns how long to sleep if nothing happens; None: until it does."""
        if self._results:
            await self._write_results()
        parts = self._runtime.parts
        if (again_s := max(parts.wait_s(self.part), parts.wait_s(self.calls_part))) > 0:
            return again_s
        free = self._ceiling.take(*self._key, self._free(), self._stir.set)
        if free <= 0:
            return self._wait_s()
        jobs: list[ClaimedJob] = []
        try:
            jobs = await self._claim(free)
        except TakenError:
            self.stop()
            return self._wait_s()
        finally:
            self._ceiling.give_back(*self._key, free - len(jobs))
        self._bucket.take(len(jobs))
        self._breaker.begin(len(jobs))
        for job in jobs:
            call = asyncio.create_task(self._call(self.consumer, job))
            self._calls.add(call)
            call.add_done_callback(self._call_ended)
        if jobs:
            # There may be more jobs or none: the lane checks again when the first of these calls ends.
            parts.worked(self.part)
            return self._wait_s() if self._free() <= 0 or len(jobs) < free else 0.0
        parts.worked(self.part)
        return None  # the waiter that is rung next has it

    async def _claim(self, n: int) -> list[ClaimedJob]:
        consumer = self.consumer

        def who(tx: Tx) -> Consumer:
            self._check(tx)
            return consumer

        lease_s = consumer.settings.timeout_s + _STORING_S
        return (await self._runtime.claim(Claim(who, n, lease_s)))[1]

    def _free(self) -> int:
        if self._stopping or self._now_s() < self._throttled_until_s:
            return 0
        free = min(self.consumer.settings.concurrency - len(self._calls), limits.CLAIM_MAX)
        for bound in (
            self._breaker.allowance(self._now_s()),
            self._bucket.allowance(self._now_s()),
        ):
            if bound is not None:
                free = min(free, bound)
        return free

    def _wait_s(self) -> float:
        waits = [
            limits.POLL_S,
            self._throttled_until_s - self._now_s(),
            self._breaker.wait_s(self._now_s()) or 0.0,
            self._bucket.wait_s() or 0.0,
        ]
        return max(0.001, min(wait for wait in waits if wait > 0))

    async def _call(self, consumer: Consumer, job: ClaimedJob) -> None:
        """Call the endpoint once; the result is stored later, together with others."""
        parts = self._runtime.parts
        try:
            called = await call_endpoint(self._runtime, self._sender, consumer, job)
        except OwnMachineError as error:
            if parts.wait_s(self.calls_part) <= 0:
                parts.failed(self.calls_part, error)
            self._breaker.forget()
            self._results.append(not_made(self._runtime, job))
            return
        except Exception as error:
            # A defect of ours is one attempt's failure: other jobs, and other consumers, go on.
            self._met(error, job)
            called = unexpected(self._runtime, job, error)
        if parts.wait_s(self.calls_part) <= 0:
            parts.worked(self.calls_part)
        self._note(called)
        self._throttle(called)
        self._results.append(called)

    def _call_ended(self, call: asyncio.Task[None]) -> None:
        """Note that there is room for another one, and a result."""
        self._calls.discard(call)
        self._ceiling.give_back(*self._key, 1)
        self._stir.set()

    def _met(self, error: Exception, job: ClaimedJob) -> None:
        """Count what nobody expected, and log it with its traceback once for each place it comes from."""
        self._runtime.metrics.add("push_unexpected_total", 1, **self._labels())
        frames = traceback.extract_tb(error.__traceback__)
        where = (type(error), frames[-1].filename if frames else "", frames[-1].lineno or 0)
        if where not in self._told:
            self._told.add(where)
            _LOG.error(
                "push to %s, job %d: the attempt failed unexpectedly; the same again is only counted",
                self._name,
                job.seq,
                exc_info=error,
            )

    def _labels(self) -> dict[str, str]:
        return {"channel": self.consumer.channel_id, "consumer": self.consumer.consumer_id}

    def _note(self, called: Called) -> None:
        labels, metrics = self._labels(), self._runtime.metrics
        code = f"{called.status // 100}xx" if called.status else "error"
        metrics.add("push_attempts_total", 1, **labels, code_class=code)
        metrics.observe("push_attempt_duration_seconds", called.duration_us / 1e6, **labels)
        if called.ok:
            age_us = self._runtime.now_us() - called.job.created_us
            metrics.observe("jobs_end_to_end_seconds", max(0, age_us) / 1e6, **labels)
        opened = self._breaker.record(called.ok, self._now_s())
        metrics.set("push_breaker_state", int(self._breaker.state), **labels)
        if opened:
            _LOG.warning(
                "push to %s: breaker open for %g s", self._name, self._breaker.policy.open_s
            )

    def _throttle(self, called: Called) -> None:
        """Pause the whole lane for as long as the endpoint asks."""
        if called.status in _THROTTLING and called.retry_after_s is not None:
            until_s = self._now_s() + called.retry_after_s
            self._throttled_until_s = max(self._throttled_until_s, until_s)

    async def _write_results(self) -> None:
        results, self._results = self._results, []
        notes = PushNotes(self.consumer, results, self._runtime.random)
        try:
            await self._write(notes)
        except DatabaseUnavailableError:
            # Nothing is lost: the result is stored when the database is back, or the job is called again
            # after the lease.
            self._results = results + self._results
            raise
        except Exception as error:
            if own_fault(error) is not None:
                self._results = results + self._results
                raise
            self._met(error, results[0].job)
            await self._write_one_by_one(results)

    async def _write_one_by_one(self, results: list[Called]) -> None:
        """Store what can be stored of a batch that was rejected: one result must not hold back the others.

        Of one that is rejected by itself only the outcome is stored. If that fails, too, the job's lease
        ends, which is an attempt like any other.
        """
        while results:
            called = results[0]
            try:
                try:
                    await self._write(self._notes(called))
                except DatabaseUnavailableError:
                    raise
                except Exception as error:
                    self._met(error, called.job)
                    text = (
                        None if called.ok or called.own_fault else f"not stored: {reason_of(error)}"
                    )
                    await self._write(self._notes(replace(called, error=text, excerpt=None)))
            except DatabaseUnavailableError:
                self._results = results + self._results
                raise
            except Exception as error:
                self._met(error, called.job)
            results = results[1:]

    def _notes(self, called: Called) -> PushNotes:
        return PushNotes(self.consumer, [called], self._runtime.random)

    async def _write(self, notes: PushNotes) -> None:
        consumer, runtime = self.consumer, self._runtime
        written: Written = await runtime.database.write_together(
            note_all, notes, weight=len(notes.calls)
        )
        runtime.count_results(consumer, "delivered", written.delivered)
        runtime.count_results(consumer, "failed", written.failed)
        if written.disabled is not None:
            self.stop()
            runtime.metrics.add("jobs_events_total", kind="consumer_disabled")
            _LOG.warning("push to %s is disabled: %s", self._name, written.disabled)
