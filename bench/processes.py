"""The processes that one has started, and what memory they take (Linux)."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["is_java", "java_heap_mib", "share_mib", "with_those_below"]

_FOUR_GIB = 1 << 32


def with_those_below(processes: tuple[int, ...]) -> list[int]:
    """These, and all that they and theirs have started, while their parents live."""
    children: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parent = each.read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(each.parent.name))
    found = list(processes)
    for each_found in found:
        found += children.get(each_found, [])
    return found


def is_java(pid: int) -> bool:
    """Whether it is a Java; not, if it has just ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


def share_mib(pid: int) -> float:
    """Mebibytes a process takes, with its part of what it shares (Pss); 0 if it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0) / 1024


def java_heap_mib(pid: int, most_mib: int) -> float:
    """Of these mebibytes, what is Java's heap, which may have ``most_mib``; 0 if it has just ended.

    A heap of up to 4 GiB ends at that address, so that references take half as much room.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
    except OSError:
        return 0.0
    taken, inside = 0, False
    for line in lines:
        first = line.split(" ", 1)[0]
        if "-" in first and not first.endswith(":"):
            start, end = (int(each, 16) for each in first.split("-"))
            inside = start >= _FOUR_GIB - (most_mib << 20) and end <= _FOUR_GIB
        elif inside and line.startswith("Pss:"):
            taken += int(line.split()[1])
    return taken / 1024
