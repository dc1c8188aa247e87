"""The processes that one has started, and what memory they take (Linux)."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["is_java", "share_mib", "with_those_below"]


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
