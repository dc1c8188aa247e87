"""What work costs in processor time: steadier than a rate while the machine has other work, too."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def of_process(pid: int) -> float:
    """Seconds of processor time that a process has used, its threads included (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def of_ourselves() -> float:
    """The same of this process, finer."""
    return time.process_time()


def resident_bytes(pid: int | str = "self") -> int:
    """Memory a process holds now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
