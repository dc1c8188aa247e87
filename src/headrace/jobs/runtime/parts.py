"""The parts of the service that work by themselves: one that fails is tried again later, counted and shown.

Only what makes the service useless ends it. A full disk under the archive, or one row that nobody can
read, stops the part that met it, and that part alone: it waits longer after each failure, is named by
``/health/ready`` and ``/_status``, and counted in the metrics. Whether a process is ready a write tells,
which is tried: a full disk still lets everybody read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from ... import retries
from ...clock import Clock
from ...documents import DocumentError
from ...errors import ConfigurationError, HeadraceError, ProtocolError
from ..errors import DatabaseUnavailableError, JobsError
from ..metrics import Metrics
from ..store import Database, Tx

__all__ = ["Failing", "Parts", "WriteProbe", "reason_of"]


T = TypeVar("T")

_LOG: Final = logging.getLogger("headrace.jobs")
_PAUSE_S: Final = 1.0  # after the first failure, and always while the database is away
_PAUSE_S_MAX: Final = 60.0
_PAUSE_PASSING_S_MAX: Final = 5.0  # for what passes without anybody's doing
_PASSING: Final = (HeadraceError, ConnectionError, TimeoutError)
_REASON_CHARS_MAX: Final = 500


@dataclass(slots=True)
class Failing:
    """Why a part does not work now.

    Attributes:
        reason: what it met last.
        since_us: since when it has failed, microseconds since 1970.
        tries: how often it was tried since then.
        again_s: when it is tried next, monotonic seconds.
    """

    reason: str
    since_us: int
    tries: int
    again_s: float


class Parts:
    """Parts of this process that fail, and when each may be tried again. Used from the event loop only."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self.failing: dict[str, Failing] = {}

    async def attempt(self, part: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """The result of ``work``; None if it failed, or may not be tried again yet."""
        if self.wait_s(part) > 0:
            return None
        try:
            result = await work()
        except Exception as error:
            self.failed(part, error)
            return None
        self.worked(part)
        return result

    async def for_ever(self, part: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Begin again after whatever ended ``attempt``, until it returns.

        Raises ConfigurationError: a setting can never work.
        """
        while True:
            try:
                await attempt()
                return
            except ConfigurationError:
                raise
            except Exception as error:
                pause_s = self.failed(part, error)
            await asyncio.sleep(pause_s)

    def wait_s(self, part: str) -> float:
        """Seconds until ``part`` may be tried again; 0 if it works."""
        failing = self.failing.get(part)
        return 0.0 if failing is None else max(0.0, failing.again_s - self._now_s())

    def failed(self, part: str, error: Exception) -> float:
        """``part`` met ``error``. Returns how long to wait before it is tried again."""
        reason = reason_of(error)
        before = self.failing.get(part)
        if before is None or before.reason != reason:
            known = isinstance(error, (HeadraceError, OSError))
            if known and not isinstance(error, ProtocolError):
                _LOG.warning("%s waits: %s", part, reason)
            else:
                _LOG.error("%s failed and is tried again: %s", part, reason, exc_info=error)
        tries = 1 if before is None else before.tries + 1
        pause_s = retries.pause_s(tries, _PAUSE_S, _pause_s_max(error))
        since_us = self._clock.now_ns() // 1000 if before is None else before.since_us
        self.failing[part] = Failing(reason, since_us, tries, self._now_s() + pause_s)
        self._metrics.add("jobs_part_failures_total", part=part)
        self._metrics.set("jobs_part_failing", 1, part=part)
        return pause_s

    def worked(self, part: str) -> None:
        """``part`` did its work."""
        failing = self.failing.pop(part, None)
        if failing is not None:
            self._metrics.set("jobs_part_failing", 0, part=part)
            _LOG.info("%s works again, after %d failures", part, failing.tries)

    def forget(self, part: str) -> None:
        """Forget ``part``, which is there no more."""
        if self.failing.pop(part, None) is not None:
            self._metrics.set("jobs_part_failing", 0, part=part)

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9


def _pause_s_max(error: Exception) -> float:
    if isinstance(error, DatabaseUnavailableError):
        return _PAUSE_S
    return _PAUSE_PASSING_S_MAX if isinstance(error, _PASSING) else _PAUSE_S_MAX


def reason_of(error: BaseException) -> str:
    """An error in one line: a known one by its sentence, another with its type.

    An answer of a server that is not understood may be anything, and is not quoted.
    """
    if isinstance(error, ProtocolError | DocumentError):
        return f"{type(error).__name__}: an answer is not understood; the log has it"
    text = " ".join(str(error).split())[:_REASON_CHARS_MAX]
    return text if isinstance(error, HeadraceError) else f"{type(error).__name__}: {text}"


_KEY: Final = "write_tried_us"
PROBE_FRESH_S: Final = 1.0  # a result is given to whoever asks within this time
PROBE_WAIT_S: Final = 2.0  # a write that takes longer counts as failed


class WriteProbe:
    """Tries a write, at most once a second however many ask, and says why it failed."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._tried: asyncio.Task[str | None] | None = None
        self._tried_s = 0.0

    async def problem(self) -> str | None:
        """Why writes fail, with the place of the database and its disk; None if they work."""
        now_s = self._clock.monotonic_ns() / 1e9
        if self._tried is None or (self._tried.done() and now_s - self._tried_s >= PROBE_FRESH_S):
            self._tried = asyncio.create_task(self._try())
            self._tried_s = now_s
        try:
            async with asyncio.timeout(PROBE_WAIT_S):
                # The write itself is not cancelled: it is the next one's answer, whenever it comes.
                return await asyncio.shield(self._tried)
        except TimeoutError:
            place = await asyncio.to_thread(self._database.place)
            return f"{place}: a write did not end within {PROBE_WAIT_S:g} s"

    async def _try(self) -> str | None:
        def write(tx: Tx) -> None:
            tx.run("put_meta", key=_KEY, value=str(tx.now_us()))

        try:
            await self._database.write(write)
            await self._database.find_room()
        except Exception as error:
            reason = error.message if isinstance(error, JobsError) else reason_of(error)
            return f"{await asyncio.to_thread(self._database.place)}: {reason}"
        return None

    async def close(self) -> None:
        """Wait for a write that is under way."""
        if self._tried is not None:
            await asyncio.gather(self._tried, return_exceptions=True)
