"""What the runner does about failures and outages. Pure: causes and times are handed in.

Restarts go by count, servers that are away by patience, and a lost Java by a new process.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ...retries import pause_s
from ..model import NO_RESTARTS, RestartSettings
from .causes import Cause

SAME_MAX: Final = 3
"""So often may a query fail in the same way at the same place before that is a mistake."""
WAIT_MAX_S: Final = 60.0


@dataclass(frozen=True)
class Again:
    """Begin it again after ``wait_s`` seconds. ``times``: how often it failed in this way at this place."""

    attempt: int
    wait_s: float
    times: int


@dataclass(frozen=True)
class Stop:
    """It stays failed. ``why``: a clause to put behind the cause; "" where there is nothing to add."""

    why: str = ""


class Restarts:
    """The failures of one query."""

    def __init__(self, settings: RestartSettings) -> None:
        self._settings = settings
        self._at: deque[float] = deque()
        self._same = 0
        self._last: tuple[str, int] | None = None
        self._in_a_row = 0
        self._position: int | None = None

    def failed(self, cause: Cause, position: int, now: float) -> Again | Stop:
        """What follows from a failure.

        Args:
            position: the last batch that was finished; a batch after it covers the same offsets every time.
            now: seconds, of any clock.
        """
        settings = self._settings
        if not settings.attempts or cause.kind == "mistake":
            return Stop()
        self._count(cause, position)
        if self._same >= SAME_MAX and cause.kind != "away" and not cause.is_of_the_machine:
            return Stop(
                f"it failed in the same way at the same place {self._same} times, which is no accident"
            )
        while self._at and self._at[0] <= now - settings.within_s:
            self._at.popleft()
        if len(self._at) >= settings.attempts:
            often = f"{settings.attempts} time{'s' if settings.attempts > 1 else ''}"
            return Stop(f"it was begun again {often} within {settings.within_s:g} s (restart)")
        self._at.append(now)
        wait_s = pause_s(self._in_a_row, settings.backoff_s, WAIT_MAX_S)
        return Again(len(self._at), wait_s, self._same)

    def _count(self, cause: Cause, position: int) -> None:
        same = (cause.signature, position)
        self._same = self._same + 1 if same == self._last else 1
        self._in_a_row = self._in_a_row + 1 if position == self._position else 1
        self._last, self._position = same, position


VARIABLE: Final = "HEADRACE_PIPELINE_JAVA_LOST"
KEPT_MAX: Final = 1_000


@dataclass(frozen=True)
class JavaLost:
    """How often Java was lost in a run.

    Attributes:
        at: when, in seconds since the epoch; those that count for the settings.
        idle: how often in a row without a finished batch in between.
    """

    at: tuple[float, ...] = ()
    idle: int = 0

    def __str__(self) -> str:
        return " ".join(
            (f"{self.idle}", *map(repr, self.at))
        )  # whole: a rounded time could be to come

    @classmethod
    def read(cls, text: str) -> JavaLost:
        """What ``str`` has written; nothing lost where it is something else."""
        try:
            idle, *at = text.split()
            return cls(tuple(map(float, at[-KEPT_MAX:])), max(0, int(idle)))
        except ValueError:
            return cls()

    def again(
        self, settings: RestartSettings, now: float, *, has_worked: bool
    ) -> tuple[JavaLost, Again | Stop]:
        """It was lost once more: what is known then, and what follows.

        Args:
            has_worked: a batch was finished since it was started.
        """
        idle = 1 if has_worked else self.idle + 1
        at = tuple(each for each in self.at if now - settings.within_s < each <= now)
        if not settings.attempts:
            return self, Stop()
        if idle >= SAME_MAX:
            return self, Stop(
                f"it was lost {idle} times without a finished batch in between, which is no accident"
            )
        if len(at) >= settings.attempts:
            often = f"{settings.attempts} time{'s' if settings.attempts > 1 else ''}"
            return self, Stop(
                f"it was begun again {often} within {settings.within_s:g} s (restart)"
            )
        wait_s = pause_s(idle, settings.backoff_s, WAIT_MAX_S)
        return JavaLost((*at, now), idle), Again(len(at) + 1, wait_s, idle)


TOLD_AFTER_S: Final = 5.0
"""How long a server is away before that is told."""
ONCE_WAITS_S: Final = 120.0


class ServersThere(Protocol):
    """What is known of the servers of each query."""

    def away(self, query: str) -> tuple[str, float] | None:
        """A server that is away, and since when; None if all are there."""

    def is_away_now(self, query: str) -> bool:
        """Whether they are away by a look at this moment, which may take some seconds."""


@dataclass(frozen=True)
class Outage:
    """A server is away. ``left_s``: how much longer it is waited for, ``math.inf`` for without end."""

    server: str
    gone_s: float
    left_s: float

    def __str__(self) -> str:
        """As what a query waits for."""
        left = "without end" if math.isinf(self.left_s) else f"{max(0.0, self.left_s):.0f} s more"
        return f"for {self.server}, which has been away for {self.gone_s:.0f} s; it is waited for {left}"

    @property
    def is_over_long(self) -> bool:
        return self.left_s <= 0


class Supervisor:
    """Decides for all queries of a run.

    Args:
        settings: restarts after failures that are no outage.
        servers: None where nobody looks at them.
        wait_s: how long a server that is away is waited for; ``math.inf``: without end; 0: not at all.
        clock: the clock of ``servers``.
        java_lost: how often Java was lost before in this run.
        is_leased: this runner has a lease, so whoever overtakes a batch of it is a runner that lost the lease
            and ends: the batch is run again.

    Attributes:
        java_lost: how often it was by now.
    """

    def __init__(
        self,
        settings: RestartSettings = NO_RESTARTS,
        servers: ServersThere | None = None,
        wait_s: float = 0.0,
        clock: Callable[[], float] = lambda: 0.0,
        java_lost: JavaLost = JavaLost(),
        *,
        is_leased: bool = False,
    ) -> None:
        self._settings = settings
        self._servers = servers
        self._wait_s = wait_s
        self._clock = clock
        self._queries: dict[str, Restarts] = {}
        self.java_lost = java_lost
        self._is_leased = is_leased

    def after_java(self, *, has_worked: bool) -> Again | Stop:
        """What follows when Java is lost, and all queries with it. ``has_worked``: a batch was finished."""
        self.java_lost, follows = self.java_lost.again(
            self._settings, self._clock(), has_worked=has_worked
        )
        return follows

    def after(self, query: str, cause: Cause, position: int) -> Again | Stop:
        """What follows from a failure. A server that is known to be away is nobody's attempt.

        Args:
            position: the last batch that was finished.
        """
        if cause.kind == "away" and self._is_away(query):
            return Again(0, 0.0, 0)
        if self._is_leased and cause.is_overtaken:
            cause = cause._replace(kind="other")
        restarts = self._queries.setdefault(query, Restarts(self._settings))
        return restarts.failed(cause, position, self._clock())

    def _is_away(self, query: str) -> bool:
        if self._servers is None or not self._wait_s:
            return False
        return self._servers.away(query) is not None or self._servers.is_away_now(query)

    def outage(self, query: str) -> Outage | None:
        """The server of a query that is away, if one is and it is waited for."""
        if self._servers is None or not self._wait_s:
            return None
        found = self._servers.away(query)
        if found is None:
            return None
        gone_s = max(0.0, self._clock() - found[1])
        return Outage(found[0], gone_s, self._wait_s - gone_s)
