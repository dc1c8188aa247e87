"""Whether a runner that stands by could take over: found out on a thread, told as it changes.

One runner of a machine starts at a time.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from ...errors import HeadraceError
from ...retries import pause_s
from ..model import Problem
from .state import Ready

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


_LOG: Final = logging.getLogger("headrace.pipeline")

KEEP_S: Final = 45.0
"""Spark ends Python workers that had nothing to do for a minute."""
AGAIN_S: Final = 600.0
"""How often what was ready is rehearsed again: what it needs may have gone since."""
RETRY_S: Final = 15.0
RETRY_MAX_S: Final = 120.0
HANGS_S: Final = 120.0
"""A rehearsal that takes longer is told as one that does not answer."""


class Rehearsing(Protocol):
    """What is asked whether it could take over."""

    step: str

    def run(self) -> Sequence[Problem]:
        """Why it could not; nothing if it could."""

    def keep_warm(self) -> None: ...
    def give_up(self) -> None: ...


def pause_after(failures: int) -> float:
    """How long until a rehearsal that failed so often is tried again."""
    return pause_s(failures, RETRY_S, RETRY_MAX_S)


class Readiness:
    """Makes a runner ready while it stands by, and keeps it so; a context manager.

    Whoever takes over does not wait for it: leaving only tells the rehearsal to end.

    Args:
        make: makes the rehearsal, on the thread.
        problem: a sentence as a problem of the pipeline's file.
        clock: seconds since the epoch; ``steady``: seconds of a clock that never jumps.
    """

    def __init__(
        self,
        make: Callable[[], Rehearsing],
        problem: Callable[[str], Problem],
        clock: Callable[[], float],
        steady: Callable[[], float],
    ) -> None:
        self._make = make
        self._problem = problem
        self._clock = clock
        self._steady = steady
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._rehearsal: Rehearsing | None = None
        self._began: float | None = None
        self._ready = Ready(since=clock())
        self._thread = threading.Thread(target=self._run, name="rehearsal", daemon=True)

    def __enter__(self) -> Readiness:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        rehearsal = self._rehearsal
        if rehearsal is not None:
            rehearsal.give_up()

    @property
    def now(self) -> Ready:
        """How ready it is. A rehearsal that hangs is a problem, too."""
        began, rehearsal = self._began, self._rehearsal
        if began is not None and self._steady() - began > HANGS_S:
            step = rehearsal.step if rehearsal is not None else ""
            text = f"the rehearsal has had no answer for {HANGS_S:.0f} s while {step or 'it began'}"
            self._turn(is_ready=False, problems=[self._problem(text)])
        return self._ready

    def _run(self) -> None:
        failures = 0
        while not self._over.is_set():
            problems = self._rehearse()
            if self._over.is_set():
                return
            self._turn(is_ready=not problems, problems=problems)
            failures = failures + 1 if problems else 0
            if problems:
                self._over.wait(pause_after(failures))
            else:
                self._keep()

    def _rehearse(self) -> Sequence[Problem]:
        self._began = self._steady()
        try:
            if self._rehearsal is None:
                self._rehearsal = self._make()
            return self._rehearsal.run()
        except Exception as error:
            if not self._over.is_set():
                foreseen = isinstance(error, HeadraceError)
                _LOG.warning("a rehearsal failed: %s", error, exc_info=None if foreseen else error)
            return [self._problem(f"the rehearsal failed: {error}")]
        finally:
            self._began = None

    def _keep(self) -> None:
        """Keep it ready until it is to be rehearsed again."""
        until = self._steady() + AGAIN_S
        while not self._over.wait(KEEP_S) and self._steady() < until:
            assert self._rehearsal is not None
            try:
                self._rehearsal.keep_warm()
            except Exception as error:  # the rehearsal that follows says what it is
                _LOG.warning("Python workers were not kept: %s", error)
                return

    def _turn(self, *, is_ready: bool, problems: Sequence[Problem]) -> None:
        with self._lock:
            before = self._ready
            if before.is_ready == is_ready and before.problems == tuple(problems):
                return
            self._ready = Ready(is_ready, self._clock(), tuple(problems))
