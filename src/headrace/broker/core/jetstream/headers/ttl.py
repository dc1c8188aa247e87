"""How long a message lives by its own wish (``Nats-TTL``), and the marker that says a subject's last is gone.

Source: per-message TTL and subject delete markers as the public server has them: whole seconds, at least
one; ``never`` outlives ``max_age``.
"""

from __future__ import annotations

from typing import Final

from .....quantities import GO_UNITS, duration_ns, go_duration_text
from ..config.ranges import read_number
from .published import header_value

NEVER: Final = -1
"""The TTL of a message that no age limit removes."""
NEVER_NS: Final = (1 << 63) - 1
"""The time at which such a message expires."""
NOTED_NS: Final = NEVER_NS - 1
"""The time of one that does not expire by itself, and is only to be found again after a restart."""

_NS: Final = 1_000_000_000
_TTL: Final = b"Nats-TTL"
_KV_OPERATION: Final = b"KV-Operation"


def read_ttl(value: bytes) -> int | None:
    """Seconds, or NEVER; None for what is no TTL. A fraction of a second is cut off."""
    text = value.decode(errors="replace")
    if text.lower() == "never":
        return NEVER
    ttl_ns = duration_ns(text, GO_UNITS)
    if ttl_ns is not None:
        return ttl_ns // _NS if ttl_ns >= _NS else None
    return read_number(value)


def expires_at(headers: bytes, timestamp_ns: int) -> int:
    """When a message stored with these headers at this time expires; 0 if it does not."""
    value = header_value(headers, _TTL)
    ttl = read_ttl(value) if value else None
    if not ttl:
        return NOTED_NS if header_value(headers, b"Nats-Schedule") else 0
    return NEVER_NS if ttl == NEVER else min(timestamp_ns + ttl * _NS, NOTED_NS - 1)


def with_ttl(headers: bytes, seconds: int) -> bytes:
    """The block with another TTL, at its end."""
    return without_header(headers, _TTL)[:-2] + b"Nats-TTL: %d\r\n\r\n" % seconds


def without_header(headers: bytes, name: bytes) -> bytes:
    """The block without the lines of one header."""
    start = name + b":"
    lines = [line for line in headers.split(b"\r\n") if line and not line.startswith(start)]
    return b"\r\n".join([*lines, b"", b""])


def marker_headers(ttl_ns: int) -> bytes:
    """The headers of the message that says: the last one of this subject is gone, by its age."""
    lines = (
        b"NATS/1.0",
        b"Nats-Marker-Reason: MaxAge",
        b"Nats-TTL: " + go_duration_text(ttl_ns // _NS * _NS).encode(),
        b"Nats-Rollup: sub",
    )
    return b"\r\n".join([*lines, b"", b""])


def is_marker(headers: bytes) -> bool:
    """Whether a message only says that others are gone, so that its own end needs no marker."""
    if header_value(headers, b"Nats-Marker-Reason"):
        return True
    return header_value(headers, _KV_OPERATION) == b"PURGE"
