"""Finds the one of many that makes something fail, by halves. Pure."""

from __future__ import annotations

from collections.abc import Callable


def first_failing(low: int, high: int, fails: Callable[[int, int], bool]) -> int | None:
    """The first number of ``low`` to ``high`` that fails by itself; None if all pass, or only several fail.

    Args:
        fails: whether a range, both ends included, fails. It is asked as often as a range can be halved.
    """
    if low > high or not fails(low, high):
        return None
    while low < high:
        middle = (low + high) // 2
        if fails(low, middle):
            high = middle
        else:
            low = middle + 1
    return low if fails(low, low) else None
