"""Texts like a pattern in which ``*`` is any text, and paths into JSON documents. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from .. import limits
from ..errors import bad_request

__all__ = ["MISSING", "Path", "effort_of", "fits_one", "fits_parts", "parse_path", "value_at"]


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


Path = tuple[str | int, ...]
MISSING: Final = object()
"""Sign that there is nothing at the path."""

_HOLDER: Final = {str: dict, int: list}
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")


def parse_path(text: str, field: str) -> Path:
    """The steps of a path; 400 for anything else."""
    if len(text) > limits.PATH_CHARS_MAX:
        raise bad_request(
            "invalid_path", f"at most {limits.PATH_CHARS_MAX} characters are accepted", field
        )
    steps: list[str | int] = []
    at = 1
    while text.startswith("$") and at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            break
        steps.append(found[1] if found[1] is not None else int(found[2]))
        at = found.end()
    if not steps or at < len(text):
        raise bad_request(
            "invalid_path",
            f"{text[:80]!r} is no path; accepted are names and indexes, such as $.user.id or $.lines[0]",
            field,
        )
    if len(steps) > limits.PATH_STEPS_MAX:
        raise bad_request(
            "invalid_path", f"at most {limits.PATH_STEPS_MAX} names and indexes are accepted", field
        )
    return tuple(steps)


def value_at(document: Any, path: Path) -> Any:
    """Value that is there, or ``MISSING``."""
    for step in path:
        try:
            document = document[step] if type(document) is _HOLDER[type(step)] else MISSING
        except LookupError:
            document = MISSING
        if document is MISSING:
            return MISSING
    return document
