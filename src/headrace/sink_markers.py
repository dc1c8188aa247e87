"""What tells the markers of Spark's sinks, which keep their place in a stream, from its messages. Pure.

A marker says so in a header. Sinks of earlier releases wrote none: theirs are known by their subject,
``_sink.<stream>.<sink>.<partition>``, where that was not set to another one.
"""

from __future__ import annotations

import re
from typing import Final

HEADER: Final = "Headrace-Marker"
"""What a marker carries. Its value says which kind it is: ``plan`` or ``rows``."""

SPACE: Final = "_sink."
"""Begins the subjects of markers, if their sink was not told otherwise."""

HEADER_LINE: Final = b"\nHeadrace-Marker: "
"""How the header stands in a block."""

_SPACE: Final = SPACE.encode()
_SUBJECT: Final = re.compile(rb"_sink\.[^.]+\.[A-Za-z0-9_=-]{1,64}\.(?:plan-\d+|\d+)")


def is_marker(subject: bytes, headers: bytes) -> bool:
    """Whether a stored message, of which ``headers`` are the block, is a marker."""
    if not headers:
        return False
    return HEADER_LINE in headers or is_former_marker(subject)


def is_former_marker(subject: bytes) -> bool:
    """Whether a message with headers on this subject is a marker, though none of them says so."""
    return subject.startswith(_SPACE) and _SUBJECT.fullmatch(subject) is not None


def may_hold_markers(raw: bytes) -> bool:
    """Whether a marker may be among messages with headers, of which these are the bytes on the wire."""
    return HEADER_LINE in raw or b" _sink." in raw
