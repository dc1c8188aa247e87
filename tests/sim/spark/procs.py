"""Tasks as processes on a virtual clock: one runs at a time, and gives the others a turn where it would wait.

Each is a thread that runs only while it has the baton, so a seed decides who goes on, and when one is killed,
frozen or left behind. The code in it is blocking and knows nothing of this.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Killed", "Proc", "here"]


class Killed(BaseException):
    """The process is gone; nothing may catch this."""


class Proc:
    """One process. ``resume`` lets it run until it pauses or ends.

    Attributes:
        wakes_at: the time from which it may go on, in virtual seconds.
        listens: what it waits for before that, if it waits for bytes: a call that says whether some came.
        result, error: how it ended.
    """

    def __init__(self, name: str, run: Callable[[], Any]) -> None:
        self.name = name
        self.wakes_at = 0.0
        self.listens: Callable[[], bool] | None = None
        self.worker = (
            0  # which worker process this is; a task that ended well leaves it to another one
        )
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        self.is_killed = False
        self.is_dead = False  # what still runs of it is cleaning up, which a dead process would not
        self.is_frozen = False
        self._run = run
        self._go = _thread.allocate_lock()
        self._back = _thread.allocate_lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._is_started = False

    def resume(self) -> None:
        """Give it the baton until it gives it back."""
        if not self._is_started:
            self._is_started = True
            _running[self._thread] = self
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()
        if self.is_over:
            self._thread.join()
            _running.pop(self._thread, None)

    def kill(self) -> None:
        """End it where it stands."""
        self.is_killed = True
        self.is_frozen = False
        if not self._is_started:
            self.is_over, self.error = True, Killed()
        while not self.is_over:
            self.resume()

    def pause(self, wakes_at: float, listens: Callable[[], bool] | None = None) -> None:
        """Give the baton back; called in the process."""
        if self.is_killed:
            raise Killed
        self.wakes_at, self.listens = wakes_at, listens
        self._back.release()
        self._go.acquire()
        if self.is_killed:
            raise Killed

    def may_run(self, now: float) -> bool:
        if self.is_over or self.is_frozen:
            return False
        return self.wakes_at <= now or (self.listens is not None and self.listens())

    def _main(self) -> None:
        try:
            self.result = self._run()
        except BaseException as error:
            self.error = error
        self.is_over = True
        self._back.release()


_running: dict[threading.Thread, Proc] = {}


def here() -> Proc | None:
    """The process that runs this code; None in the driver, which is the test's own thread."""
    return _running.get(threading.current_thread())
