"""Servers of ours in tests are forked off a process that has imported all that one imports.

Starting Python and importing takes most of what a server costs that a test starts, and hundreds are started.
A fork is a child of who asks for it, as if it had been started: it is waited for, and its status is its own.
``make test-all`` starts each anew.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["Adopted", "Forks"]

PROGRAM: Final = str(Path(__file__).with_name("parent.py"))
SET_CHILD_SUBREAPER: Final = 36  # of prctl, <linux/prctl.h>


class Adopted(subprocess.Popen[bytes]):
    """A process that another has started, and that is a child of ours. It has no pipes."""

    def __init__(self, command: Sequence[str], pid: int) -> None:
        # What ``Popen`` would say of itself once it had started one.
        self.args, self.pid = command, pid
        self.stdin = self.stdout = self.stderr = None
        self.returncode: int | None = None
        self.text_mode = False
        self._child_created = True
        self._communication_started = False
        self._input = None
        self._sigint_wait_secs = 0.25
        self._waitpid_lock = threading.Lock()


class Forks:
    """Asks for forks; the process that makes them is started when the first is asked for."""

    def __init__(self) -> None:
        self.are_wanted = False
        self._lock = threading.Lock()
        self._parent: subprocess.Popen[bytes] | None = None
        self._variables: dict[str, str] = {}

    def fork(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes] | None:
        """``python -m headrace …`` with this environment, in the folder of its log, to which it writes.

        None where that would not be as if it had been started: Python reads some variables as it starts.
        """
        if list(command[:3]) != [sys.executable, "-m", "headrace"] or sys.platform != "linux":
            return None
        with self._lock:
            if self._parent is None:
                self._start()
            if _read_at_start() != self._variables:
                return None
            asked = {"arguments": command[3:], "log": str(log), "environment": dict(os.environ)}
            try:
                pid = self._ask(asked)
            except BaseException:  # a timeout, too: it is not known how far the two have come
                self._end()
                raise
        return Adopted(command, pid)

    def close(self) -> None:
        with self._lock:
            self._end()

    def _start(self) -> None:
        self._variables = _read_at_start()
        self._parent = subprocess.Popen(
            [sys.executable, PROGRAM],
            cwd=Path(PROGRAM).parent,  # a test's own may go with the test
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def _ask(self, asked: Mapping[str, object]) -> int:
        assert self._parent is not None
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        with adopting():
            self._parent.stdin.write(json.dumps(asked).encode() + b"\n")
            self._parent.stdin.flush()
            answer = self._parent.stdout.readline()
        if not answer:
            raise RuntimeError("the process that forks servers has ended")
        return int(answer)

    def _end(self) -> None:
        if self._parent is not None:
            self._parent.kill()
            self._parent.communicate()
            self._parent = None


@contextmanager
def adopting() -> Iterator[None]:
    """Processes below this one whose parents end become children of this one."""
    prctl = ctypes.CDLL(None).prctl
    prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _read_at_start() -> dict[str, str]:
    """Variables that Python reads as it starts."""
    return {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
