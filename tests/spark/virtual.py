"""Time that passes only where somebody sleeps."""

from __future__ import annotations

from headrace.spark.links.outages import ServerPatience


def steady() -> float:
    """Chance that shortens nothing."""
    return 0.0


class Time:
    """A clock, and what was slept by it."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def clock(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def patience(self, timeout_s: float, what: str = "a stream") -> ServerPatience:
        return ServerPatience(timeout_s, what, self.clock, self.sleep, steady)
