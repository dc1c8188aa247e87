"""How ready a runner is that stands by."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Problem


@dataclass(frozen=True)
class Ready:
    """How ready a runner is that stands by.

    Attributes:
        is_ready: it could take over at once.
        since: when it came to be as it is, in seconds since the epoch.
        problems: why it could not; none while it has not found out.
    """

    is_ready: bool = False
    since: float = 0.0
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        if self.is_ready:
            return "ready"
        if self.problems:
            return "not ready: " + "; ".join(map(str, self.problems))
        return "getting ready"
