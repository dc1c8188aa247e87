"""Time zones by name, from the system's own tables."""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import lru_cache

__all__ = ["time_zone"]


@lru_cache(256)
def time_zone(name: str) -> tzinfo | None:
    """The zone of a name as ``Europe/Berlin``; None when the system has no such table."""
    if name == "UTC":
        return UTC
    from zoneinfo import (
        ZoneInfo,
        ZoneInfoNotFoundError,
    )  # few schedules have one: starts are quicker

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None  # OSError: the name of a directory among the tables
