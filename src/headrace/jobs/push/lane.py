"""One push consumer in one process: claims jobs, calls the endpoint, stores the results.

A lane has its own limit on concurrent calls, its own rate and its own breaker, so that a slow or broken
endpoint delays no other consumer. Results are stored in batches: all that arrived while the last batch was
being written.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from ...errors import HeadraceError
from .. import limits
from ..bell import Ear
from ..errors import DatabaseUnavailableError
from ..models import ClaimedJob, Consumer
from ..policy import push_lease_s
from ..runtime import Runtime
from ..service import push_results
from ..service.push_results import Called
from .breaker import Breaker, Bucket
from .headers import call_headers
from .sender import Answer, Sender

__all__ = ["Lane", "retry_after_s"]

_LOG: Final = logging.getLogger("headrace.jobs.push")
_THROTTLING: Final = frozenset({429, 502, 503, 504})
_GONE: Final = 410


class Lane:
    """See the module. ``run`` until cancelled or ``stop``."""

    def __init__(self, runtime: Runtime, consumer: Consumer, sender: Sender) -> None:
        self._runtime = runtime
        self._sender = sender
        self._calls: set[asyncio.Task[None]] = set()
        self._results: list[Called] = []
        self._stir = asyncio.Event()
        self._stopping = False
        self._defect: BaseException | None = None
        self._throttled_until_s = 0.0
        self.consumer = consumer
        self._breaker = Breaker(consumer.settings.breaker)
        self._bucket = Bucket(consumer.settings.rate_per_s, self._now_s())

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
        with self._runtime.bell.ear(self.consumer.seq) as ear:
            hearing = asyncio.create_task(self._hear(ear))
            try:
                while True:
                    self._stir.clear()
                    if self._defect is not None:
                        raise self._defect
                    try:
                        pause_s = await self._step()
                    except DatabaseUnavailableError as error:
                        _LOG.warning("push to %s waits: %s", self._name, error)
                        pause_s = limits.POLL_S
                    if self._stopping and not self._calls and not self._results:
                        return
                    try:
                        async with asyncio.timeout(pause_s):
                            await self._stir.wait()
                    except TimeoutError:
                        continue
            finally:
                hearing.cancel()
                for call in self._calls:
                    call.cancel()
                await asyncio.gather(hearing, *self._calls, return_exceptions=True)

    @property
    def _name(self) -> str:
        return f"{self.consumer.channel_id}/{self.consumer.consumer_id}"

    def _now_s(self) -> float:
        return self._runtime.clock.monotonic_ns() / 1e9

    async def _hear(self, ear: Ear) -> None:
        while True:
            await ear.wait(limits.POLL_S)
            self._stir.set()

    async def _step(self) -> float:
        """Store results and claim jobs. Returns how long to sleep if nothing happens."""
        if self._results:
            await self._write_results()
        free = self._free()
        if free <= 0:
            return self._wait_s()
        lease_s = push_lease_s(self.consumer.settings.timeout_s)
        jobs = await self._runtime.claim(self.consumer, free, lease_s)
        self._bucket.take(len(jobs))
        self._breaker.begin(len(jobs))
        for job in jobs:
            call = asyncio.create_task(self._call(self.consumer, job))
            self._calls.add(call)
            call.add_done_callback(self._ended)
        if jobs:
            # There may be more jobs or none: the lane checks again when the first of these calls ends.
            return self._wait_s() if self._free() <= 0 or len(jobs) < free else 0.0
        return await self._runtime.pause_s(self.consumer.seq)

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        if not call.cancelled() and (error := call.exception()) is not None:
            # Anything an endpoint does ends in a result; this is a bug of ours, and must be visible.
            self._defect = error
            self._stir.set()

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
        begun_us, begun_ns = self._runtime.now_us(), self._runtime.clock.monotonic_ns()
        headers = call_headers(consumer, job, self._runtime.options, begun_us // 1_000_000)
        answer: Answer | None = None
        error: str | None = None
        try:
            answer = await self._sender.post(
                consumer.callback_url, headers, job.payload, consumer.settings.timeout_s
            )
        except TimeoutError:
            error = f"no answer within {consumer.settings.timeout_s:g} s"
        except (HeadraceError, OSError) as problem:
            error = str(problem)
        ok = answer is not None and 200 <= answer.status < 300
        if answer is not None and not ok:
            error = f"the endpoint answered {answer.status}"
        duration_us = (self._runtime.clock.monotonic_ns() - begun_ns) // 1000
        self._note(ok, answer, duration_us, job)
        self._results.append(
            Called(
                job=job,
                ok=ok,
                status=0 if answer is None else answer.status,
                error=error,
                excerpt=None if answer is None else _excerpt(answer.body),
                retry_after_s=self._throttle(answer),
                begun_us=begun_us,
                duration_us=duration_us,
            )
        )
        self._stir.set()

    def _note(self, ok: bool, answer: Answer | None, duration_us: int, job: ClaimedJob) -> None:
        labels = {"channel": self.consumer.channel_id, "consumer": self.consumer.consumer_id}
        metrics = self._runtime.metrics
        code = "error" if answer is None else f"{answer.status // 100}xx"
        metrics.add("push_attempts_total", 1, **labels, code_class=code)
        metrics.observe("push_attempt_duration_seconds", duration_us / 1e6, **labels)
        if ok:
            age_us = self._runtime.now_us() - job.created_us
            metrics.observe("jobs_end_to_end_seconds", max(0, age_us) / 1e6, **labels)
        opened = self._breaker.record(ok, self._now_s())
        metrics.set("push_breaker_state", int(self._breaker.state), **labels)
        if opened:
            _LOG.warning(
                "push to %s: breaker open for %g s", self._name, self._breaker.policy.open_s
            )

    def _throttle(self, answer: Answer | None) -> float | None:
        """The pause that the endpoint requests, for the whole lane."""
        if answer is None or answer.status not in _THROTTLING:
            return None
        asked_s = retry_after_s(answer.retry_after, self._runtime.now_us() / 1e6)
        if asked_s is not None:
            asked_s = min(asked_s, limits.RETRY_AFTER_S_MAX)
            self._throttled_until_s = max(self._throttled_until_s, self._now_s() + asked_s)
        return asked_s

    async def _write_results(self) -> None:
        results, self._results = self._results, []
        consumer, runtime = self.consumer, self._runtime
        gone = any(result.status == _GONE for result in results)
        try:
            written = await runtime.database.write(
                lambda tx: push_results.write(
                    tx, consumer, results, tx.now_us(), runtime.random, gone=gone
                )
            )
        except DatabaseUnavailableError:
            # Nothing is lost: the result is stored when the database is back, or the job is called again
            # after the lease.
            self._results = results + self._results
            raise
        runtime.count_results(consumer, "delivered", written.delivered)
        runtime.count_results(consumer, "failed", written.failed)
        if written.disabled is not None:
            self.stop()
            runtime.metrics.add("jobs_events_total", kind="consumer_disabled")
            _LOG.warning("push to %s is disabled: %s", self._name, written.disabled)


def retry_after_s(text: str | None, now_s: float) -> float | None:
    """Seconds of a ``Retry-After``, given in seconds or as a date; ``None`` if it is neither."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, at.timestamp() - now_s) if isinstance(at, datetime) else None


def _excerpt(body: bytes) -> str | None:
    text = body[: limits.EXCERPT_CHARS_MAX * 4].decode("utf-8", "replace")
    # PostgreSQL cannot store a NUL as text.
    return text[: limits.EXCERPT_CHARS_MAX].replace("\0", "\ufffd") or None
