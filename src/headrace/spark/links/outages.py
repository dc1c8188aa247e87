"""How long a query waits for a server that is away, and what it says meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from ...errors import (
    AuthorizationError,
    ConnectionClosedError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    TimeoutError_,
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
        return error.code == _UNAVAILABLE
    return isinstance(error, ConnectionClosedError | TimeoutError_ | NoRespondersError)


class Patience:
    """The pauses between the attempts of one call, from a tenth of a second to five.

    Args:
        timeout_s: how long to go on after the first failure.
        what: what is waited for, for the log.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        timeout_s: float,
        what: str,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout_s = timeout_s
        self._what = what
        self._clock = clock
        self._sleep = sleep
        self._failures = 0
        self._began = 0.0

    def fresh(self, timeout_s: float, what: str) -> Patience:
        """Another one, by the same clock."""
        return Patience(timeout_s, what, self._clock, self._sleep)

    def restart(self) -> None:
        """Something came: the next failure is the first one."""
        self._failures = 0

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
        now = self._clock()
        if self._failures == 0:
            self._began = now
        left = self._began + self._timeout_s - now
        if left <= 0:
            raise error
        if self._failures == 1:
            _LOG.warning("waiting up to %g s for %s: %s", left, self._what, error)
        self._failures += 1
        self._sleep(min(left, PAUSE_MAX_S, PAUSE_FIRST_S * 2 ** min(self._failures - 1, 10)))
