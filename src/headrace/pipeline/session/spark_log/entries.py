"""Lines of a log become entries: each with a time, and those that repeat are counted. Pure.

An entry is a line that begins with a time, and what follows up to the next one: a message and its trace. What
comes without a time, as what users' code prints, is an entry of its own if nothing has come just before.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

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
