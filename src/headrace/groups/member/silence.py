"""Whether the silence of a consumer is new and has to be told. Pure."""

from __future__ import annotations


class Silence:
    """Misses of heartbeats at all the consumers of a membership: a silent server is told of once.

    Args:
        within_s: misses that follow one another by no more than this many seconds are one silence.
    """

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._last = float("-inf")

    def is_news(self, now: float) -> bool:
        """A heartbeat was missed at this time: whether that is the first one of a silence."""
        since, self._last = now - self._last, now
        return since > self._within_s
