"""One runner of a machine starts at a time: several would take the processors from what runs there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

WAITS_S: Final = 120.0
"""Then it goes on all the same: who holds the turn may be frozen."""
LOOK_S: Final = 0.2


@contextmanager
def in_turn(
    is_over: Callable[[], bool],
    sleep: Callable[[float], object],
    steady: Callable[[], float],
    folder: Path | None = None,
) -> Iterator[bool]:
    """While no other runner of this user starts here; yields whether it is our turn, or was not waited for.

    Args:
        is_over: whether waiting has no sense any more.
        folder: of the lock; default: that of temporary files.
    """
    try:
        import fcntl
    except ImportError:  # a system that has none
        yield False
        return
    file = (folder or Path(tempfile.gettempdir())) / f"headrace-start-{os.getuid()}.lock"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield False
        return
    try:
        until = steady() + WAITS_S
        is_ours = False
        while not is_ours and not is_over() and steady() < until:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = True
            except OSError:
                sleep(LOOK_S)
        yield is_ours
    finally:
        os.close(descriptor)
