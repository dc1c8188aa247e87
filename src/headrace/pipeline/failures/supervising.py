"""What the runner does about failures and outages: restarts by count, servers that are away by patience.

No thread and no clock here: what is known of servers, and the time, are handed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ..model import NO_RESTARTS, RestartSettings
from .causes import Cause
from .java import JavaLost
from .restarts import Again, Restarts, Stop

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
        java_lost: JavaLost = JavaLost(),  # noqa: B008 - it does not change
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
