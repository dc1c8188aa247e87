"""Sizes, durations and times as people read them. Pure."""

from __future__ import annotations

import re
from datetime import datetime


def bytes_text(count: float) -> str:
    """``1.5 MiB``."""
    if count < 0:
        return "unlimited"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def counted(count: int, noun: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def duration_text(seconds: float) -> str:
    """``2d3h``, ``1m30s``, ``1.50s``, ``250ms``; two units at most."""
    if seconds < 0:
        return "never"
    if seconds == 0:
        return "0s"
    if seconds < 1:
        return f"{seconds * 1000:.3g}ms" if seconds >= 0.001 else f"{seconds * 1e6:.3g}µs"
    if seconds < 60:
        return f"{seconds:.2f}s" if seconds % 1 else f"{seconds:.0f}s"
    parts: list[tuple[int, str]] = []
    left = round(seconds)
    for unit, size in (("y", 31_536_000), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number or parts:
            parts.append((number, unit))
    return "".join(f"{number}{unit}" for number, unit in parts[:2] if number)


def moment_of(text: str) -> datetime:
    """A time of the server's, RFC 3339 with nanoseconds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
