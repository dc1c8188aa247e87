"""Takes what processes print from a pipe, on a thread, and writes it to a file that stays small."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from ....files import PRIVATE
from ....files import opened as open_file
from .entries import Entries

BYTES_MAX: Final = 10 * 1024 * 1024
KEPT: Final = 3
"""Older files: ``spark.log.1`` is the newest of them."""
QUIET_S: Final = 0.25
_CHUNK: Final = 64 * 1024

_running: dict[Path, Pump] = {}


class Pump:
    """A context manager; ``fileno`` is where to print to, also for processes that are started within.

    A disk that takes nothing loses lines, and the processes go on: a full pipe would hold them.
    """

    def __init__(
        self,
        file: Path,
        clock: Callable[[], float] = time.time,
        *,
        bytes_max: int = BYTES_MAX,
        kept: int = KEPT,
    ) -> None:
        self._file = file.absolute()
        self._entries = Entries(clock)
        self._bytes_max = bytes_max
        self._kept = kept
        self._end = threading.Event()
        self._lost = 0

    def __enter__(self) -> Self:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self._thread = threading.Thread(target=self._run, name="headrace spark.log", daemon=True)
        self._thread.start()
        _running[self._file] = self
        return self

    def __exit__(self, *_: object) -> None:
        """What was printed so far is written; what others print later is lost."""
        del _running[self._file]
        self._end.set()
        os.close(self._write)
        self._thread.join()
        os.close(self._read)

    def fileno(self) -> int:
        """The descriptor to print to."""
        return self._write

    def _run(self) -> None:
        while True:
            is_last = self._end.is_set()
            ready, _, _ = select.select([self._read], [], [], 0 if is_last else QUIET_S)
            data = self._chunk() if ready else b""
            if data:
                self._put(self._entries.take(data))
            elif is_last:
                self._put(self._entries.end())
                return
            else:
                self._put(self._entries.idle())
                if ready:  # nobody holds the other end: wait to be told so
                    self._end.wait(QUIET_S)

    def _chunk(self) -> bytes:
        try:
            return os.read(self._read, _CHUNK)
        except BlockingIOError:
            return b""

    def _put(self, text: bytes) -> None:
        if not text:
            return
        if self._lost:
            text = b"%d bytes could not be written here\n%b" % (self._lost, text)
        try:
            self._turn(len(text))
            with open_file(self._file, "ab") as file:
                file.write(text)
        except OSError:
            self._lost += len(text)
        else:
            self._lost = 0

    def _turn(self, more: int) -> None:
        """Begin another file if this one would become too large."""
        try:
            size = self._file.stat().st_size
        except FileNotFoundError:
            return
        if not size or size + more <= self._bytes_max:
            return
        for number in range(self._kept, 1, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self._file.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._file.with_name(f"{self._file.name}.{number}")


def opened(file: Path) -> int:
    """A descriptor to print to ``file`` with: of the pump that runs for it, if one does. To be closed."""
    pump = _running.get(file.absolute())
    if pump is not None:
        return os.dup(pump.fileno())
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
