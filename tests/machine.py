"""What something costs of a processor, in pieces of work done beside it: a slow or shared one slows both."""

from __future__ import annotations

import time

__all__ = ["pieces"]

_TRIALS = 3


def pieces(seconds: float) -> float:
    """How many pieces of work take as much of this processor's time, here and now; a usual one does 400 in
    a second."""
    return seconds / max(_piece_s() for _ in range(_TRIALS))


def _piece_s() -> float:
    began = time.thread_time()
    table: dict[str, int] = {}
    for number in range(5_000):
        table[f"k{number % 997}"] = table.get(f"k{number * 7 % 997}", 0) + 1
    return time.thread_time() - began
