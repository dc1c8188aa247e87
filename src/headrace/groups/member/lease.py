"""How long the pin is surely ours, and the time of ownership that it makes. Pure.

A server lets go of a pin once no pull with its id has come for ``priority_timeout``. Our clock knows when
we *sent* such a pull, which is before it came, and so a lease that runs from there ends in time. An answer
proves that the pull was honoured only while the lease still runs: a server that has let go meanwhile may
answer the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

RENEWALS_PER_LEASE: Final = 3
"""Renewed when only a third of it is over, a lease survives an answer that takes the rest."""


class Lease:
    """The time until which the pin is ours, by the loop's clock.

    Args:
        seconds: the consumer's ``priority_timeout``.
        since: a pull was sent at this time, and the pin was given to it or to a later one.
    """

    __slots__ = ("_seconds", "until")

    def __init__(self, seconds: float, since: float) -> None:
        self._seconds = seconds
        self.until = since + seconds

    def holds(self, now: float) -> bool:
        """Whether the pin is surely ours."""
        return now < self.until

    def answered(self, sent: float, now: float) -> bool:
        """A pull with our pin's id, sent at ``sent``, was answered and not refused. False: too late, as
        the pin may have been another's in between."""
        if now >= self.until:
            return False
        self.until = max(self.until, sent + self._seconds)
        return True

    def seen(self, sent: float) -> None:
        """The server said that the pin is ours after it had a pull that was sent at ``sent``."""
        self.until = max(self.until, sent + self._seconds)

    def end(self) -> None:
        """It was taken from us, or given back."""
        self.until = float("-inf")

    def due_s(self, now: float) -> float:
        """Seconds until it is to be renewed: 0 once a third of it is over.

        A lease runs from a pull, which may have waited for long before it was given the pin.
        """
        left_when_due = self._seconds * (1 - 1 / RENEWALS_PER_LEASE)
        return max(0.0, self.until - now - left_when_due)


@dataclass(eq=False, slots=True)
class Generation:
    """One time of ownership: a consumer's pin, as long as it is ours.

    Attributes:
        number: grows with every change of owner: the server's time at which it gave the pin, in
            nanoseconds.
        partitions: those of the consumer.
        lease: until when it is surely ours.
        time: the loop's clock.
    """

    number: int
    partitions: tuple[int, ...]
    lease: Lease
    time: Callable[[], float]

    @property
    def is_owned(self) -> bool:
        """Whether it is surely ours, now."""
        return self.lease.holds(self.time())
