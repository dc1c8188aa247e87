"""The small files of runners that stand by: who they are, and whether they could take over.

::

    <root>/<pipeline>/standby-<machine>-<process>.json

Each is written by its runner, anew every few seconds, and removed when that does not stand by any more.
One that was not written for a while is that of a runner which has gone.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...documents import read_typed
from ...files import SHARED, write_whole
from .notes import Process, file_of

if TYPE_CHECKING:
    from ..model import Declared
    from ..standby.state import Ready

_LOG: Final = logging.getLogger("headrace.pipeline")
EVERY_S: Final = 5.0
GONE_S: Final = 30.0
LISTED_MAX: Final = 100


@dataclass(frozen=True)
class Bystander:
    """A runner that stands by.

    Attributes:
        since: when it came to be ready, or not, in seconds since the epoch; ``written``: its last word.
        why: why it could not take over.
    """

    process: Process
    is_ready: bool
    since: float
    written: float
    why: str = ""

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "host": self.process.host,
            "process": self.process.number,
            "ready": self.is_ready,
            "since": self.since,
            "why": self.why or None,
        }


class Presence:
    """Hears that its runner stands by, and says so in its file.

    A disk that is full is said once in the log: the runner stands by all the same.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, declared: Declared, process: Process, clock: Callable[[], float]) -> None:
        name = f"standby-{re.sub(r'[^A-Za-z0-9.-]', '_', process.host)}-{process.number}.json"
        self._file = file_of(declared).with_name(name)
        self._process = process
        self._clock = clock
        self._due = 0.0
        self._last: Ready | None = None
        self._said = False

    def standby(self, holder: str, ready: Ready) -> None:
        """It stands by, and is so ready."""
        self._write(ready)

    def standing(self, ready: Ready) -> None:
        """It still does."""
        if ready != self._last or self._clock() >= self._due:
            self._write(ready)

    def active(self, token: int, nobody_s: float | None) -> None:
        """It does not any more."""
        self.close()

    def close(self) -> None:
        """Remove the file."""
        if self._last is not None:
            self._last = None
            with suppress(OSError):
                self._file.unlink(missing_ok=True)

    def _write(self, ready: Ready) -> None:
        now = self._clock()
        self._due, self._last = now + EVERY_S, ready
        why = "; ".join(map(str, ready.problems))
        one = Bystander(self._process, ready.is_ready, ready.since, now, why)
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, json.dumps(asdict(one)), SHARED)
        except OSError as error:
            if not self._said:
                _LOG.warning("%s is not written: %s", self._file, error.strerror or error)
                self._said = True


def bystanders(declared: Declared, here: Process, now: float) -> list[Bystander]:
    """The runners that stand by, as far as is seen from here; those that could take over first."""
    found = (_read(file) for file in sorted(file_of(declared).parent.glob("standby-*.json")))
    there = [each for each in found if each is not None and _is_there(each, here, now)]
    there.sort(key=lambda each: (not each.is_ready, each.since))
    return there[:LISTED_MAX]


def _is_there(one: Bystander, here: Process, now: float) -> bool:
    return now - one.written < GONE_S and one.process.life(here) != "dead"


def _read(file: Path) -> Bystander | None:
    try:
        return read_typed(file.read_bytes(), Bystander)
    except (OSError, ValueError):
        return None


def sentence_about(declared: Declared, there: list[Bystander]) -> str:
    """What is to be said to whoever relies on a standby; "" if one is ready."""
    if declared.lease is None or any(each.is_ready for each in there):
        return ""
    if not there:
        return "no runner stands by: if this one ends, nobody takes over"
    return "no standby is ready: " + "; ".join(
        f"{each.process}: {each.why or 'getting ready'}" for each in there
    )
