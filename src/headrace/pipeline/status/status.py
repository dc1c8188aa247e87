"""How a pipeline is: by its runner's notes, its checkpoints and the servers; no Spark is started."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...spark.lost_messages import Loss, merged, read_losses
from ...spark.set_aside import file_beside, read_aside
from ..checking import backlog
from ..checking.backlog import SourceState
from ..checkpoints.checkpoint import checkpoint_of, losses_of, read_log
from ..checkpoints.totals import Totals
from ..model import Declared
from .notes import (
    Bystander,
    Notes,
    Process,
    QueryNotes,
    bystanders,
    file_of,
    read,
    sentence_about,
    this_process,
)


@dataclass(frozen=True)
class QueryStatus:
    """One query.

    ``finished``, ``planned``: the newest batches in Spark's logs, -1 for none; ``planned`` is greater while a
    batch runs, or after a kill. ``sources``: its streams. ``life``: what is seen of the runner, "" if none
    has left notes; ``told``: what it has said of this query. ``aside``: messages whose values did
    not fit (malformed), that were skipped, or became dead letters, by kind. ``runner``: who runs it, "" for
    nobody; ``standbys``: who else would, None of a pipeline without a lease.
    """

    query: str
    generation: int
    path: str
    finished: int
    planned: int
    sources: tuple[SourceState, ...]
    totals: Totals
    notes: tuple[str, ...] = field(default=())
    lost: tuple[Loss, ...] = ()
    aside: Mapping[str, int] = field(default_factory=dict)
    life: str = ""
    told: QueryNotes = field(default_factory=QueryNotes)
    runner: str = ""
    standbys: tuple[Bystander, ...] | None = None

    @property
    def state(self) -> str:
        """In the runner's words; ``killed`` if that ended without a last one, "" if nothing is known."""
        is_over = self.told.state in ("done", "failed", "not run", "stopped")
        if self.life == "dead" and self.told.state and not is_over:
            return "killed"
        return self.told.state

    @property
    def is_live(self) -> bool:
        """Whether a runner may be at work on it."""
        return self.life in ("alive", "unknown")

    @property
    def waiting(self) -> int | None:
        """Messages still to read; None if a server did not tell, or no source is a stream."""
        if not self.sources or any(each.error for each in self.sources):
            return None
        return sum(each.waiting for each in self.sources)

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "query": self.query,
            "state": self.state or None,
            "since": rfc3339(self.told.since),
            "why": self.told.why or None,
            "error": self.told.error or None,
            "error_at": rfc3339(self.told.error_at),
            "failures": self.told.failures,
            "restarts": self.told.restarts,
            "generation": self.generation,
            "checkpoint": self.path,
            "finished_batch": self.finished,
            "planned_batch": self.planned,
            "waiting": self.waiting,
            "sources": [_document(each) for each in self.sources],
            "rows": self.totals.rows,
            "rows_out": self.totals.rows_out,
            "late": self.totals.late,
            "watermark": self.totals.watermark or None,
            "batches": self.totals.batches,
            "expectations": {
                name: {"rows": view.rows, "failed": dict(view.failed)}
                for name, view in self.totals.views.items()
            },
            "malformed": self.aside.get("malformed", 0),
            "skipped": self.aside.get("skipped", 0),
            "dead_letters": self.aside.get("dead_letters", 0),
            "lost": [each._asdict() for each in self.lost],
            "notes": list(self.notes),
            "runner": self.runner or None,
            "standbys": self._standbys(),
        }

    def _standbys(self) -> list[dict[str, Any]] | None:
        return None if self.standbys is None else [each.document() for each in self.standbys]


def _document(source: SourceState) -> dict[str, Any]:
    """Of a source that could not be asked there is no number, rather than 0."""
    unknown = dict.fromkeys(("sequence", "waiting", "last")) if source.error else {}
    return source._asdict() | unknown


def _unasked(source: SourceState) -> str:
    return f"{source.source}: what waits in {source.stream} could not be asked: {source.error}"


def rfc3339(seconds: float) -> str | None:
    """A moment, for programs; None for 0."""
    if not seconds:
        return None
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    return text.replace("+00:00", "Z")


def status_of(declared: Declared, here: Process | None = None) -> list[QueryStatus]:
    """Every query of a pipeline.

    Args:
        here: who asks, to know the runner's machine; default: this process.

    Raises:
        ConfigurationError: a checkpoint is of a version that is not known here.
    """
    notes = read(file_of(declared))
    here = here or this_process()
    found = [_status(declared, name, notes, here) for name in declared.sinks]
    life = notes.life(here) if notes is not None else ""
    runner = str(notes.process) if notes is not None and life in ("alive", "unknown") else ""
    if declared.lease is None:
        return [replace(each, runner=runner) for each in found]
    there = bystanders(declared, here, time.time())
    said = sentence_about(declared, there) if runner else ""
    more = (said,) if said else ()
    return [
        replace(each, runner=runner, standbys=tuple(there), notes=each.notes + more)
        for each in found
    ]


def _status(declared: Declared, name: str, runner: Notes | None, here: Process) -> QueryStatus:
    life = runner.life(here) if runner is not None else ""
    told = runner.of(name) if runner is not None else QueryNotes()
    about_runner = _about_runner(runner, life)
    generation = checkpoint_of(declared, name).current()
    sources = tuple(backlog.of_sources(declared, declared.sinks[name]))
    losses = losses_of(declared, generation, name)
    lost = tuple(merged(read_losses(losses)[0]))
    aside, is_full = read_aside(Path(file_beside(str(losses))))
    about_runner += _set_aside(aside, is_full=is_full)
    if not declared.is_local_checkpoint:
        note = f"the checkpoint is below {declared.checkpoint}, which only Spark reads"
        said = (note, *about_runner, *map(str, lost))
        none = Totals(None)
        return QueryStatus(
            name, 1, generation.path, -1, -1, sources, none, said, lost, aside, life, told
        )
    planned, done = read_log(generation, "offsets"), read_log(generation, "commits")
    finished = done.batch if done is not None else -1
    totals = Totals(generation.totals)
    notes = [*about_runner, *(_unasked(each) for each in sources if each.error)]
    notes += [_removed(each) for each in sources if each.removed]
    if generation.starts and finished < 0:
        begins = ", ".join(f"{source} at {start}" for source, start in generation.starts.items())
        notes.append(f"begins {begins}")
    # Spark's log is a moment ahead of the runner's sums while that is at work.
    missed = totals.missed if life in ("alive", "unknown") else finished + 1 - totals.batches
    if missed > 0:
        notes.append(
            f"{missed} finished batches are not in the sums: they ended as the runner was killed"
        )
    notes += map(str, lost)
    return QueryStatus(
        query=name,
        generation=generation.number,
        path=generation.path,
        finished=finished,
        planned=planned.batch if planned is not None else -1,
        sources=sources,
        totals=totals,
        notes=tuple(notes),
        lost=lost,
        aside=aside,
        life=life,
        told=told,
    )


def _about_runner(runner: Notes | None, life: str) -> list[str]:
    """What is to be said of a runner that is not there any more, or cannot be seen."""
    if runner is None or life in ("alive", "ended"):
        return []
    last = f"its last word was at {rfc3339(runner.written)}"
    if life == "unknown":
        return [f"the runner is {runner.process}, which is not seen from here; {last}"]
    return [f"the runner, {runner.process}, was killed; {last}"]


def _set_aside(aside: Mapping[str, int], *, is_full: bool) -> list[str]:
    words = {
        "malformed": "values did not fit",
        "skipped": "messages were skipped",
        "dead_letters": "messages became dead letters",
    }
    least = "at least " if is_full else ""
    return [f"{least}{aside[kind]:,} {text}" for kind, text in words.items() if aside.get(kind)]


def _removed(source: SourceState) -> str:
    return (
        f"{source.source}: up to {source.removed:,} messages of {source.stream} after sequence "
        f"{source.sequence:,} were removed before this query read them"
    )
