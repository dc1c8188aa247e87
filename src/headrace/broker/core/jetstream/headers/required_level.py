"""The level of the API that a request demands of the server, in ``Nats-Required-Api-Level``."""

from __future__ import annotations

from typing import Final

from ..config.ranges import read_number
from .published import read_headers

__all__ = ["required_level_too_high"]

_LEVEL: Final = b"Nats-Required-Api-Level"


def required_level_too_high(headers: bytes, level: int) -> bool:
    """Whether a request demands a higher level than ours."""
    if _LEVEL not in headers:
        return False
    wanted = read_number(read_headers(headers).get(_LEVEL, b""))
    return wanted is None or wanted > level
