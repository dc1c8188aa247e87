"""Ports for servers that cannot say which port they chose: no two processes of a suite get the same one.

A port of the system's own choice (bind to 0, close, hand out) is anybody's between the probe and the
server: another process of the suite is given it too, or an outgoing connection takes it. So ports here lie
below the range of outgoing connections, and each process has a block of its own, which it holds by a lock.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

__all__ = ["Ports"]

FIRST = 10_000
LAST = 32_000  # outgoing connections begin at 32,768 on Linux, at 49,152 on macOS
BLOCK = 200


def locks() -> Path:
    return Path(tempfile.gettempdir()) / f"headrace-test-ports-{os.getuid()}"


class Ports:
    """The block of ports of this process, handed out in a circle; ``next`` passes over one in use."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or locks()
        self._lock = -1
        self._process = 0
        self._first = 0
        self._given = 0

    def next(self) -> int:
        """A port nobody listens on, and that nobody else is given."""
        if self._process != os.getpid():  # the first one, or a child that was forked
            self._claim()
        for _ in range(BLOCK):
            port = self._first + self._given % BLOCK
            self._given += 1
            if _is_free(port):
                return port
        raise RuntimeError(f"all ports from {self._first} to {self._first + BLOCK - 1} are in use")

    def close(self) -> None:
        """Let others have the block; the end of the process does the same."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock, self._process = -1, 0

    def _claim(self) -> None:
        self._folder.mkdir(exist_ok=True)
        for first in range(FIRST, LAST, BLOCK):
            lock = os.open(self._folder / str(first), os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            self._lock, self._process, self._first, self._given = lock, os.getpid(), first, 0
            return
        raise RuntimeError(f"every block of ports is held by another process: {self._folder}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
