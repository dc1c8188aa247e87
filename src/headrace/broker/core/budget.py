"""How much may be done for one client before others go on.

Work is counted in units of about a microsecond, which is cheap. After ``grain`` units the shell, which
knows the time, is asked whether the slice is over. Expensive work counts more: a message for a thousand
receivers, a call of the JetStream API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
        """``is_over`` tells whether the slice is over; without it, it never is. It may be set later."""
        self.is_over = is_over
        self.grain = grain
        self.left = grain
        self.spent = False

    def begin(self) -> None:
        self.left = self.grain
        self.spent = False

    def charge(self, units: int) -> None:
        """Count ``units``, and look whether the slice is over once none are left."""
        self.left = left = self.left - units
        if left < 0:
            self.look()

    def charge_together(self, units: int) -> None:
        """``charge`` for what was done at once: looked at as often as if it had come one by one."""
        while units > self.left and not self.spent:
            units -= self.left
            self.look()
        self.left -= units

    def look(self) -> bool:
        """Whether the slice is over. If it is not, there are new units."""
        self.left = self.grain
        if self.is_over is not None and self.is_over():
            self.spent = True
        return self.spent
