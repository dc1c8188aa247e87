"""The runner's notes: one small file beside the checkpoints, replaced as a whole.

::

    <root>/<pipeline>/runner.json

A runner that was killed leaves its last notes. So they name its process, by its number and the moment it was
born: a number alone is soon another process's.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from ...documents import read_typed
from ...files import SHARED, write_whole
from ..model import Declared

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
