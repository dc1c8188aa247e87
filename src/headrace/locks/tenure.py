"""Until when a lock is surely ours, by our own clock. Pure.

The server lets go of a key ``ttl`` seconds after it has stored it, which is after we have sent it. So a
tenure runs from when we *sent* what the server then stored, and ends a little before: who is told that the
lock is lost can stop before somebody else begins.
"""

from __future__ import annotations

from typing import Final

from ..errors import HeadraceError

MARGIN: Final = 0.1  # of ttl: for clocks that run differently, and for stopping
RENEWALS: Final = 3  # in ttl


class LockLostError(HeadraceError):
    """The lock is not ours any more, or not surely: somebody else may have it. ``why``: a clause."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"lock {name!r} is lost: {why}")
        self.why = why


class Tenure:
    """One time of holding a lock.

    Args:
        ttl: seconds after which the server lets go of a key that is not renewed.
        sent: when the request was sent by which it is ours.
        revision: of the key, that request's.

    Attributes:
        token: grows from one holder to the next, and does not change while this one holds it.
        revision: of the key, as far as is known.
        until: the time until which the lock is surely ours.
    """

    __slots__ = ("_ttl", "revision", "token", "until")

    def __init__(self, ttl: float, sent: float, revision: int) -> None:
        self._ttl = ttl
        self.token = self.revision = revision
        self.until = sent + ttl * (1 - MARGIN)

    def holds(self, now: float) -> bool:
        """Whether the lock is surely ours."""
        return now < self.until

    def renewed(self, sent: float, revision: int) -> None:
        """What was sent then has the key's newest revision."""
        self.revision = revision
        self.until = max(self.until, sent + self._ttl * (1 - MARGIN))

    def end(self) -> None:
        """It was taken from us, or given back."""
        self.until = float("-inf")

    @property
    def is_over(self) -> bool:
        """Whether it was taken from us, or given back."""
        return self.until == float("-inf")

    def next_renewal(self, now: float) -> float:
        """Seconds until it is to be renewed: a third of ``ttl``, or less where little is left."""
        return max(0.0, min(self._ttl / RENEWALS, (self.until - now) / 2))
