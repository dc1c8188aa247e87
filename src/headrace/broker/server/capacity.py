"""What memory and disk allow streams to hold, as monitoring shows it: three quarters, as in nats-server."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["disk_bytes", "memory_bytes"]


def memory_bytes() -> int:
    """Three quarters of the machine's memory; -1 where that cannot be told."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4 * 3
    except (OSError, ValueError):
        return -1


def disk_bytes(directory: str | Path) -> int:
    """Three quarters of what is free where ``directory`` lies, or will; -1 where that cannot be told."""
    place = Path(directory).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        found = os.statvfs(place)
    except OSError:
        return -1
    return found.f_bavail * found.f_frsize // 4 * 3
