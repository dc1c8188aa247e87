"""What the machine offers: file descriptors, memory, disk and time zones.

A process has a limited number of descriptors. If all of them were sockets, nobody could read a message any
more. So the store has a share, of which it reserves what it cannot do without from the start
(``store.LocalFiles``), and connections get the rest.
Streams may hold three quarters of the memory and of the free disk, as in nats-server.
"""

from __future__ import annotations

import os
import resource
import time
from datetime import UTC, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

_STORE_MAX: Final = 4_352  # files open at most: the two of each of 1,000 streams, read and written
_STORE_PART: Final = 4  # … but no more than this part of all
_SLACK_MAX: Final = 128  # listeners, the loop, sockets that are being refused, name look-ups
_SLACK_PART: Final = 8
_MONITOR_PART: Final = 8
_CONNECTIONS_MIN: Final = 1


def process_numbers(running_ns: int) -> dict[str, Any]:
    """Cores, processor time in percent of ``running_ns``, memory in bytes: as ``/varz`` names them."""
    cores = os.cpu_count() or 1
    numbers: dict[str, Any] = {
        "cores": cores,
        "gomaxprocs": cores,
        "cpu": round(100 * time.process_time_ns() / max(running_ns, 1), 1),
    }
    statm = Path("/proc/self/statm")
    if statm.exists():
        numbers["mem"] = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return numbers


class Descriptors(NamedTuple):
    """How many the process may have, and who gets how many."""

    limit: int
    store: int
    monitor: int
    connections: int


def raise_limit() -> None:
    """Take as many as the system allows this process: the soft limit becomes the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return  # as on systems whose real limit is lower: the soft limit stays, and is shared out


def share_out(*, store: bool, monitor_max: int) -> Descriptors:
    """Divide what is left now: for a store on disk, up to ``monitor_max`` requests, and connections."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 1 << 30
    left = max(0, limit - _in_use() - min(_SLACK_MAX, limit // _SLACK_PART))
    files = min(_STORE_MAX, limit // _STORE_PART) if store else 0
    left -= files
    monitor = min(monitor_max, max(left, 0) // _MONITOR_PART)
    return Descriptors(limit, files, monitor, max(left - monitor, _CONNECTIONS_MIN))


def _in_use() -> int:
    """How many this process has open."""
    for listing in ("/proc/self/fd", "/dev/fd"):
        if Path(listing).is_dir():
            return len(os.listdir(listing))  # noqa: PTH208 - names are all that is wanted
    return 16


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


@lru_cache(256)
def time_zone(name: str) -> tzinfo | None:
    """The zone of a name as ``Europe/Berlin``; None when the system has no such table."""
    if name == "UTC":
        return UTC
    # Few schedules have one, and starts are quicker without.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None  # OSError: the name of a directory among the tables
