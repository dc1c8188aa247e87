"""Whether the disk is so quick that its owner may wait for it, instead of a thread. Pure.

Two threads that take turns at a small commit cost more than the commit. But whoever waits for the disk
serves nobody meanwhile, so a disk that is slow, or has become so, is left to the commit thread.
"""

from __future__ import annotations

from typing import Final

QUICK_NS: Final = 1_000_000
"""How long a commit may take that others wait for."""
IN_A_ROW: Final = 8
"""So many commits have to be quick before the next one is waited for."""
REST: Final = 20
"""After a slow one nobody waits for so many times as long as it took, which bounds the share of slow ones."""


class Quickness:
    """Told of each commit, wherever it was made."""

    __slots__ = ("_not_before_ns", "_quick")

    def __init__(self) -> None:
        self._quick = 0
        self._not_before_ns = 0

    def took(self, began_ns: int, ended_ns: int, *, waited: bool) -> None:
        """A commit is done; ``waited`` is whether the owner waited for it."""
        if ended_ns - began_ns <= QUICK_NS:
            self._quick += 1
            return
        self._quick = 0
        if waited:
            self._not_before_ns = ended_ns + REST * (ended_ns - began_ns)

    def allows(self, now_ns: int) -> bool:
        """Whether the owner may wait for the next one."""
        return self._quick >= IN_A_ROW and now_ns >= self._not_before_ns
