"""What work costs in processor time: steadier than a rate while the machine has other work, too."""

from __future__ import annotations

import os
import time
from pathlib import Path


def of_process(pid: int) -> float:
    """Seconds of processor time that a process's threads have used, those that ended left out (Linux).

    By the scheduler's nanoseconds: the hundredths of a second of ``stat`` are much when work is short. Of a
    process that has ended, 0.
    """
    try:
        return sum(map(_of_thread, Path(f"/proc/{pid}/task").iterdir())) / 1e9
    except FileNotFoundError:
        return 0.0


def _of_thread(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has ended meanwhile


def of_ourselves() -> float:
    """The same of this process, finer."""
    return time.process_time()


def resident_bytes(pid: int | str = "self") -> int:
    """Memory a process holds now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def waited_for_a_core(pid: int) -> float:
    """Seconds in which the first thread of a process could have run, and something else did (Linux)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
