"""How much may be done for one client before it is somebody else's turn.

Work is counted in units of about a microsecond, and after ``grain`` of them, which is cheap, somebody who
knows the time is asked whether that was enough. What costs more than it looks counts for more: a message
for a thousand receivers, a call of the JetStream API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["LOOK_AT_ONCE", "Budget"]

GRAIN: Final = 64
LOOK_AT_ONCE: Final = 1 << 20
"""The weight of what may take long: the budget is looked at right after it."""


class Budget:
    """One for all sessions of a hub: they are served one after the other.

    Whoever works takes its units from ``left``, and calls ``look`` once there are none; with ``spent`` it
    stops at the next frame and keeps the rest. The shell calls ``begin`` before it lets a session go on.
    """

    __slots__ = ("grain", "is_over", "left", "spent")

    def __init__(self, is_over: Callable[[], bool] | None = None, grain: int = GRAIN) -> None:
        """``is_over`` tells whether the turn is over; without it, it never is. It may be set later."""
        self.is_over = is_over
        self.grain = grain
        self.left = grain
        self.spent = False

    def begin(self) -> None:
        """Another turn."""
        self.left = self.grain
        self.spent = False

    def charge(self, units: int) -> None:
        """Take ``units``, and look whether the turn is over once there are none left."""
        self.left = left = self.left - units
        if left < 0:
            self.look()

    def look(self) -> bool:
        """Whether the turn is over; units are there again if it is not."""
        self.left = self.grain
        if self.is_over is not None and self.is_over():
            self.spent = True
        return self.spent
