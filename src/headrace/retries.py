"""Pauses between attempts at one thing: how long each one is, and when the time for all is up. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_SPREAD: Final = 0.5
_DOUBLINGS_MAX: Final = 63  # 2**63 does not overflow a float; any limit was reached long before


def pause_s(failures: int, first_s: float, most_s: float) -> float:
    """Seconds to wait after so many failures in a row: ``first_s``, then twice as long each time, up to
    ``most_s``."""
    return min(most_s, first_s * 2.0 ** min(max(failures, 1) - 1, _DOUBLINGS_MAX))


def backoff_s(failures: int, first_s: float, most_s: float, chance: Callable[[], float]) -> float:
    """``pause_s``, of which ``chance``, 0 to 1, takes away up to half: who lost a server together return
    apart."""
    return pause_s(failures, first_s, most_s) * (1.0 - _SPREAD * chance())


class Patience:
    """The pauses between the attempts of one call, until its time is up.

    Args:
        timeout_s: how long to go on after the first failure.
        clock: seconds that never go back.
        first_s: the first pause; each further one is twice as long.
        most_s: no pause is longer.
        chance: 0 to 1, which shortens pauses as in ``backoff_s``.

    Attributes:
        failures: how many there were in a row.
    """

    def __init__(
        self,
        timeout_s: float,
        clock: Callable[[], float],
        first_s: float,
        most_s: float,
        chance: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._first_s = first_s
        self._most_s = most_s
        self._chance = chance
        self._began = 0.0
        self.failures = 0

    def restart(self) -> None:
        """It went on: the next failure is the first one."""
        self.failures = 0

    @property
    def left_s(self) -> float:
        """Seconds that are left since the first failure."""
        return self._began + self._timeout_s - self._clock()

    def pause_s(self, error: Exception) -> float:
        """Count a failure; seconds until the next attempt. Raises ``error`` when time is up."""
        if self.failures == 0:
            self._began = self._clock()
        left_s = self.left_s
        if left_s <= 0:
            raise error
        self.failures += 1
        return min(left_s, backoff_s(self.failures, self._first_s, self._most_s, self._chance))
