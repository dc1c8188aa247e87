"""What follows when Spark's Java is lost: the runner is begun anew, or its queries have failed. Pure.

The process that takes the runner's place knows what was lost before from a text in its environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...retries import pause_s
from ..model import RestartSettings
from .restarts import SAME_MAX, WAIT_MAX_S, Again, Stop

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
