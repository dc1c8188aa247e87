"""Texts like a pattern in which ``*`` is any text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

__all__ = ["effort_of", "fits_one", "fits_parts"]

_ANY: Final = "*"


def fits_one(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Tells of a value whether it is like one of these patterns.

    Most are a whole value, a beginning or an end: of those, any number costs about as much as one.
    """
    whole: set[str] = set()
    beginnings: list[str] = []
    ends: list[str] = []
    others: list[list[str]] = []
    for pattern in patterns:
        parts = pattern.split(_ANY)
        if len(parts) == 1:
            whole.add(pattern)
        elif len(parts) == 2 and not parts[1]:
            beginnings.append(parts[0])
        elif len(parts) == 2 and not parts[0]:
            ends.append(parts[1])
        else:
            others.append(parts)
    begins, finishes = tuple(beginnings), tuple(ends)

    def fits(value: str) -> bool:
        if value in whole or value.startswith(begins) or value.endswith(finishes):
            return True
        return any(fits_parts(parts, value) for parts in others)

    return fits


def effort_of(patterns: Iterable[str]) -> int:
    """The characters that are looked for in a value, not only at its ends."""
    return sum(len(each) for each in patterns if each.count(_ANY) > 1 or _ANY in each[1:-1])


def fits_parts(parts: Sequence[str], value: str) -> bool:
    """Whether ``value`` is like the pattern that was split at ``*`` into these parts.

    Each part is taken where it is found first: no pattern takes longer than its length times the value's.
    """
    if len(parts) == 1:
        return value == parts[0]
    first, *between, last = parts
    at, end = len(first), len(value) - len(last)
    if at > end or not value.startswith(first) or not value.endswith(last):
        return False
    for part in between:
        found = value.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
