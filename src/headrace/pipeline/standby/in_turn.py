"""One runner of a machine starts at a time: several would take the processors from what runs there."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

WAITS_S: Final = 120.0
"""Then it goes on all the same: who holds the turn may be frozen."""
LOOK_S: Final = 0.2
REST: Final = 0.5
"""So long, as a part of what a start took, nobody else starts behind it: what runs there catches up."""
REST_MAX_S: Final = 5.0

Later = Callable[[float, Callable[[], object]], object]


def in_the_background(delay_s: float, call: Callable[[], object]) -> None:
    """Call it then, on a thread of its own that keeps no process alive."""
    timer = threading.Timer(delay_s, call)
    timer.daemon = True
    timer.start()


@contextmanager
def in_turn(
    is_over: Callable[[], bool],
    sleep: Callable[[float], object],
    steady: Callable[[], float],
    folder: Path | None = None,
    later: Later = in_the_background,
) -> Iterator[bool]:
    """While no other runner of this user starts here; yields whether it is our turn, or was not waited for.

    Whoever had a turn goes on at once. The next one's begins after ``REST``.

    Args:
        is_over: whether waiting has no sense any more.
        folder: of the lock; default: that of temporary files.
        later: calls something after so many seconds.
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
    is_ours, began = False, steady()
    try:
        while not is_ours and not is_over() and steady() < began + WAITS_S:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours, began = True, steady()
            except OSError:
                sleep(LOOK_S)
        yield is_ours
    finally:
        close = partial(os.close, descriptor)
        try:
            if is_ours:
                later(min((steady() - began) * REST, REST_MAX_S), close)
            else:
                close()
        except (
            RuntimeError
        ):  # the system gives no thread: there is no rest, and nobody waits for one
            close()
