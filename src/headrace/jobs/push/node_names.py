"""Where a process is, in its name: whoever is beside it can tell that it has ended, and need not wait.

A name says the boot of the machine, its namespaces of processes and of time, the number of the process, and
when it began. Whoever shares all but the last two asks the system for that number: if there is no such
process, or another one has it by now, the named one has ended, with all that it had open. Who is elsewhere,
or on a system without ``/proc``, knows nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["has_ended", "whereabouts"]

_PROC: Final = Path("/proc")
_STATE, _BEGAN = 0, 19  # in /proc/PID/stat, after the name of the program
_OVER: Final = ("Z", "X")  # nobody has asked for its end yet, but nothing of it runs


def whereabouts() -> str:
    """Of this process: ``PLACE:PID:BEGAN``; empty if the system does not say."""
    pid = os.getpid()
    place, found = _place(), _stat(pid)
    return f"{place}:{pid}:{found[_BEGAN]}" if place and found is not None else ""


def has_ended(where: str) -> bool:
    """Whether the process of these whereabouts has ended for certain."""
    place, _, rest = where.partition(":")
    pid, _, began = rest.partition(":")
    if not place or place != _place() or not pid.isdecimal() or not began:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # of another user: it is there
        pass
    found = _stat(int(pid))
    return found is not None and (found[_STATE] in _OVER or found[_BEGAN] != began)


def _place() -> str:
    if not sys.platform.startswith("linux"):
        return ""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        spaces = [(_PROC / "self/ns" / name).stat().st_ino for name in ("pid", "time")]
    except OSError:
        return ""
    return "-".join([boot.replace("-", ""), *map(str, spaces)])


def _stat(pid: int) -> list[str] | None:
    """The fields after the program's name, which may have any characters; None if it cannot be read."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > _BEGAN else None
