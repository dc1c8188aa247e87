"""Texts like a pattern in which ``*`` is any text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["fits_parts"]


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
