"""How long a query waits for a server that is away, and what it says meanwhile."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from ... import retries
from ...api.errors import is_leaderless
from ...errors import (
    AuthorizationError,
    ConnectionClosedError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    RequestTimeoutError,
)

_LOG: Final = logging.getLogger("headrace.spark")

T = TypeVar("T")

FIRST_CONNECT_S: Final = 0.7  # a query that never reached its server has a wrong URL, more likely
PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0
_UNAVAILABLE: Final = 503


def may_pass(error: HeadraceError) -> bool:
    """Whether an error may be over soon: a server restarts, a cluster elects a leader."""
    if isinstance(error, AuthorizationError):
        return False
    if isinstance(error, JetStreamApiError):
        return is_leaderless(error) or error.code == _UNAVAILABLE
    return isinstance(error, ConnectionClosedError | RequestTimeoutError | NoRespondersError)


class ServerPatience(retries.Patience):
    """Waits for a server between the attempts of one call, from a tenth of a second to five, by chance up to
    half as long: the tasks that lost it together return apart.

    Args:
        timeout_s: how long to go on after the first failure.
        what: what is waited for, for the log.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
        chance: 0 to 1, by which a pause is shorter.
    """

    def __init__(
        self,
        timeout_s: float,
        what: str,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(timeout_s, clock, PAUSE_FIRST_S, PAUSE_MAX_S, chance)
        self._what = what
        self._sleep = sleep

    def fresh(self, timeout_s: float, what: str) -> ServerPatience:
        """Another one, by the same clock."""
        return ServerPatience(timeout_s, what, self._clock, self._sleep, self._chance)

    def persist(
        self,
        call: Callable[[], T],
        let_go: Callable[[], object],
        passes: Callable[[HeadraceError], bool] = may_pass,
    ) -> T:
        """Call, and again while the server may come back. ``let_go`` drops the link that failed."""
        while True:
            try:
                return call()
            except HeadraceError as error:
                if not passes(error):
                    raise
                let_go()
                self.pause(error)

    def pause(self, error: HeadraceError) -> None:
        """Wait before the next attempt.

        Says once per outage what is waited for: at the second failure, as a connection that was only stale is
        replaced at once. Raises ``error`` when the time is up.
        """
        pause_s = self.pause_s(error)
        if self.failures == 2:
            _LOG.warning("waiting up to %g s for %s: %s", self.left_s, self._what, error)
        self._sleep(pause_s)
