"""The small files of runners: the notes of the one that runs, replaced as a whole, and who stands by."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ...documents import read_typed
from ...files import SHARED, write_whole

if TYPE_CHECKING:
    from ..model import Declared
    from ..standby.state import Ready


NAME: Final = "runner.json"
_BIRTH: Final = 19  # the field of /proc/<pid>/stat, counted behind the name


@dataclass(frozen=True)
class Process:
    """A process of a machine. ``born``: when, in the kernel's ticks; "" where the system does not tell."""

    host: str
    number: int
    born: str = ""

    def life(self, here: Process) -> Literal["alive", "dead", "unknown"]:
        """Whether it lives, as seen from another process; of another machine that is not known."""
        if self.host != here.host:
            return "unknown"
        try:
            os.kill(self.number, 0)
        except (ProcessLookupError, OverflowError):  # or no number of a process
            return "dead"
        except PermissionError:
            pass  # it is another user's
        now = birth_of(self.number)
        return "dead" if self.born and now and self.born != now else "alive"

    def __str__(self) -> str:
        return f"process {self.number} on {self.host}"


def this_process() -> Process:
    """The one that asks."""
    return Process(socket.gethostname(), os.getpid(), birth_of(os.getpid()))


def birth_of(number: int) -> str:
    """When a process was born; "" where the system does not tell."""
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return fields[_BIRTH] if len(fields) > _BIRTH else ""


@dataclass(frozen=True)
class QueryNotes:
    """How one query is.

    Attributes:
        state: starting, waiting, running, restarting, done, failed, not run or stopped.
        since: when it came to be so, in seconds since the epoch.
        why: what it waits for.
        error, error_at: the last failure, and when; it stays until a batch has ended after it.
        failures: how many times it failed since a batch ended.
        restarts: how often it was started again in this run, after a failure.
        rows_per_s, batch_s, behind: of the newest batch; ``behind`` is None where it is not known.
    """

    state: str = ""
    since: float = 0.0
    why: str = ""
    error: str = ""
    error_at: float = 0.0
    failures: int = 0
    restarts: int = 0
    rows_per_s: float = 0.0
    batch_s: float = 0.0
    behind: int | None = None


@dataclass(frozen=True)
class Notes:
    """What a runner says of itself and its queries.

    Attributes:
        process: the runner.
        since: when it began; ``written``: its last word; ``ended``: when it ended, 0 while it has not.
        token: of its lease, 0 without one.
    """

    process: Process
    since: float
    written: float = 0.0
    ended: float = 0.0
    token: int = 0
    queries: Mapping[str, QueryNotes] = field(default_factory=dict)

    def life(self, here: Process) -> Literal["alive", "ended", "dead", "unknown"]:
        """How the runner is, as seen from another process."""
        return "ended" if self.ended else self.process.life(here)

    def of(self, query: str) -> QueryNotes:
        """Of a query; of one that is not there, nothing."""
        return self.queries.get(query, QueryNotes())

    def with_query(self, query: str, **changes: Any) -> Notes:
        """The notes with something changed of a query."""
        changed = replace(self.of(query), **changes)
        return replace(self, queries={**self.queries, query: changed})


def file_of(declared: Declared) -> Path:
    """Where the notes of a pipeline lie; beside its file where checkpoints lie below a URL."""
    folder = declared.checkpoint_path if declared.is_local_checkpoint else declared.file.parent
    return folder.absolute() / declared.name / NAME


def write(file: Path, notes: Notes) -> None:
    """Replace the notes. Raises OSError: they cannot be written, and are as before."""
    import json

    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(asdict(notes)), SHARED)


def read(file: Path) -> Notes | None:
    """The notes; None if there are none, or none that are understood: they are only told, never relied on."""
    try:
        return read_typed(file.read_bytes(), Notes)
    except (OSError, ValueError):
        return None


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
