"""``spark.log``: everything that Spark, its workers and users' code print during a run.

``entries`` makes entries of lines, gives those a time that have none, and counts what repeats; ``pump`` takes
what is printed from a pipe and keeps the file small. ``log4j2.properties`` is how Java writes: time, level,
and the query or thread.
"""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from ...files import PRIVATE
from ...files import opened as open_file

REPEATS_S: Final = 60.0
"""The same is written once in so many seconds, and then how often it came."""
KNOWN_MAX: Final = 100
ENTRY_BYTES_MAX: Final = 256 * 1024

_HEAD: Final = re.compile(
    rb"(?:\d{4}-\d\d-\d\dT[\d:.]+Z|\d\d/\d\d/\d\d \d\d:\d\d:\d\d) +(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) "
)
_GRAVE: Final = re.compile(rb"(?:ERROR|FATAL) $")
_NUMBERS: Final = re.compile(rb"\d+")
_SHOWN: Final = 160


@dataclass
class _Known:
    """An entry that was written: when, its first line, how often it came since."""

    at: float
    head: bytes
    more: int = 0


class Entries:
    """Takes what is printed, and says what is to be written.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._part = b""
        self._entry: list[bytes] = []
        self._size = 0
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def take(self, data: bytes) -> bytes:
        """What is to be written now of this and what came before."""
        lines = (self._part + data).split(b"\n")
        self._part = lines.pop()
        out: list[bytes] = []
        for line in lines:
            if self._entry and (_HEAD.match(line) or self._size > ENTRY_BYTES_MAX):
                out.append(self._finished())
            self._entry.append(line)
            self._size += len(line) + 1
        if len(self._part) > ENTRY_BYTES_MAX:
            self._entry.append(self._part)
            self._part = b""
            out.append(self._finished())
        return b"".join((*out, self._overdue()))

    def idle(self) -> bytes:
        """What is complete, and the entry that is begun: no more has come for a moment."""
        return self._finished() + self._overdue()

    def end(self) -> bytes:
        """The rest, and every count."""
        if self._part:
            self._entry.append(self._part)
            self._part = b""
        out = [self._finished()]
        while self._known:
            out.append(self._count(*self._known.popitem(last=False)))
        return b"".join(out)

    def _finished(self) -> bytes:
        lines, self._entry, self._size = self._entry, [], 0
        if not lines:
            return b""
        found = _HEAD.match(lines[0])
        if found is None and not any(lines):
            return b""
        text = b"\n".join(lines)
        key = text[found.end() :] if found is not None else text
        if found is not None and not _GRAVE.search(found[0]):
            key = _NUMBERS.sub(b"#", key)  # such as how late a batch was
        known = self._known.get(key)
        if known is not None:
            known.more += 1
            return b""
        now = self._clock()
        head = lines[0][found.end() :] if found is not None else lines[0]
        self._known[key] = _Known(now, head.strip())
        out = text + b"\n" if found is not None else self._time() + b" PRINT " + text + b"\n"
        if len(self._known) > KNOWN_MAX:
            out += self._count(*self._known.popitem(last=False))
        return out

    def _overdue(self) -> bytes:
        """The counts of what was written long enough ago; the same is written again from then on."""
        due = self._clock() - REPEATS_S
        out = []
        while self._known and next(iter(self._known.values())).at <= due:
            out.append(self._count(*self._known.popitem(last=False)))
        return b"".join(out)

    def _count(self, _: bytes, known: _Known) -> bytes:
        if not known.more:
            return b""
        times = b"once" if known.more == 1 else b"%d times" % known.more
        return b"%b INFO  came %b more, alike: %b\n" % (self._time(), times, known.head[:_SHOWN])

    def _time(self) -> bytes:
        now = datetime.fromtimestamp(self._clock(), UTC)
        return now.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()


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
