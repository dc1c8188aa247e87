"""What the body of a negative acknowledgement asks for."""

from __future__ import annotations

import msgspec

from ......api.acks import NAK
from ...config.durations import parse_duration
from ...config.ranges import DURATION_NS_MAX

__all__ = ["nak_delay_ns"]


class _Delay(msgspec.Struct):
    delay: int = 0


def nak_delay_ns(body: bytes) -> int:
    """The delay of ``-NAK {"delay": ns}`` or ``-NAK 5s``; one that can not be read is none."""
    text = body[len(NAK) :].strip()
    if not text:
        return 0
    if text.startswith(b"{"):
        try:
            delay_ns = msgspec.json.decode(text, type=_Delay).delay
        except (msgspec.DecodeError, RecursionError):
            return 0
    else:
        delay_ns = parse_duration(text.decode(errors="replace")) or 0
    return min(max(delay_ns, 0), DURATION_NS_MAX)
