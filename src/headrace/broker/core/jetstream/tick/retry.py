"""Work that stopped because the store cannot read something now: said, tried again, done when it can.

Nothing is passed over meanwhile. Pauses grow, so that a disk in trouble is not asked all the time, and
the log says so at once, then once a minute, and when it is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from .....clock import Clock
from .....errors import StoreError, StoreReadError
from ...timers import Timer, TimerQueue
from ..config.options import JetStreamOptions

_FIRST_NS: Final = 100_000_000
_MOST_NS: Final = 10_000_000_000
_SAID_NS: Final = 60_000_000_000

Job = Callable[[], object]


class _Context(Protocol):
    clock: Clock
    timers: TimerQueue
    options: JetStreamOptions


class Unread:
    """What one stream or consumer could not do, and when it tries again.

    A job stands here once, however often it fails; it has to leave everything as it was when it raises.
    """

    def __init__(self, context: _Context, who: str) -> None:
        self._context = context
        self._who = who
        self._jobs: dict[Job, bool] = {}
        self._timer: Timer | None = None
        self._pause_ns = 0
        self._said_ns: int | None = None

    @property
    def holds(self) -> bool:
        """Whether something is waiting to be tried again."""
        return self._timer is not None

    def attempt(self, job: Job) -> None:
        """Do something now; later, and again, if the store cannot read what it takes."""
        try:
            job()
        except StoreReadError as error:
            self._later(error, job, attempted=True)
            return
        if self._pause_ns and not self._jobs:
            self.worked()

    def failed(self, error: Exception, job: Job) -> None:
        """Something failed; ``job`` is called when it is time to try again, and may not fail."""
        self._later(error, job, attempted=False)

    def worked(self) -> None:
        """What had failed works again."""
        if self._pause_ns and not self._jobs:
            self._pause_ns, self._said_ns = 0, None
            self._context.options.warn(f"{self._who}: what could not be read can be read again")

    def cancel(self) -> None:
        """Try nothing any more."""
        self._jobs.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _later(self, error: Exception, job: Job, *, attempted: bool) -> None:
        self._jobs[job] = attempted
        now_ns = self._context.clock.monotonic_ns()
        if self._said_ns is None or now_ns - self._said_ns >= _SAID_NS:
            self._said_ns = now_ns
            self._context.options.warn(f"{self._who} waits and tries again: {_described(error)}")
        if self._timer is None:
            self._pause_ns = min(2 * self._pause_ns or _FIRST_NS, _MOST_NS)
            self._timer = self._context.timers.call_at(now_ns + self._pause_ns, self._again)

    def _again(self) -> None:
        self._timer = None
        jobs, self._jobs = self._jobs, {}
        for job, attempted in jobs.items():
            if attempted:
                self.attempt(job)
            else:
                job()


def _described(error: Exception) -> str:
    if isinstance(error, StoreReadError):
        return f"{error} (errno {error.errno})"
    return str(error) if isinstance(error, StoreError) else repr(error)
