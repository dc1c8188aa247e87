"""Numbers a server can count with: 64 bits, durations of at most 292 years, digits worth reading."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from .....api.base import Document, DocumentError

_INT_MAX: Final = 2**63 - 1
_SECONDS_MAX: Final = _INT_MAX / 1e9
_DIGITS_MAX: Final = 18
DURATION_NS_MAX: Final = 10 * 365 * 86_400 * 1_000_000_000
"""Ten years: a longer delay is cut to this."""

_NEVER_COUNT: Final = frozenset({str, bool, bytes, type(None), Ellipsis})

D = TypeVar("D", bound=Document)


def check_ranges(document: D) -> D:
    """The document, if its numbers are within range. Raises DocumentError naming the field."""
    for name, wire_name in _names(type(document)):
        value = getattr(document, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Document):
                check_ranges(item)
            elif isinstance(item, float):
                if abs(item) > _SECONDS_MAX:
                    raise DocumentError(f"json: duration out of range in {wire_name}")
            elif isinstance(item, int) and abs(item) > _INT_MAX:
                raise DocumentError(f"json: number out of range in {wire_name}")
    return document


@cache  # msgspec evaluates every annotation anew each time it is asked for the fields
def _names(kind: type[Document]) -> tuple[tuple[str, str], ...]:
    """Of each field that may hold a number: its name, and its name on the wire."""
    fields = msgspec.structs.fields(kind)
    return tuple((field.name, field.encode_name) for field in fields if _may_count(field.type))


def _may_count(kind: Any) -> bool:
    """Whether a value of this type is, or holds, a number that is not a truth."""
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return False
    return any(map(_may_count, parts)) if parts else kind not in _NEVER_COUNT


def read_number(text: bytes) -> int | None:
    """A decimal number of reasonable length without sign, or None."""
    return int(text) if text.isdigit() and len(text) <= _DIGITS_MAX else None
