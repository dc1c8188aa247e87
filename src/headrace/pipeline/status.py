"""How far a pipeline is, by its checkpoints and the servers; no Spark is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..spark.lost import Loss, merged, read_losses
from . import backlog
from .backlog import SourceState
from .checkpoints import checkpoint_of, losses_of, read_log
from .model import Declared
from .totals import Totals


@dataclass(frozen=True)
class QueryStatus:
    """One query.

    ``finished``, ``planned``: the newest batches in Spark's logs, -1 for none; ``planned`` is greater while a
    batch runs, or after a kill. ``sources``: its streams.
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
            "generation": self.generation,
            "checkpoint": self.path,
            "finished_batch": self.finished,
            "planned_batch": self.planned,
            "waiting": self.waiting,
            "sources": [_document(each) for each in self.sources],
            "rows": self.totals.rows,
            "batches": self.totals.batches,
            "expectations": {
                name: {"rows": view.rows, "failed": dict(view.failed)}
                for name, view in self.totals.views.items()
            },
            "lost": [each._asdict() for each in self.lost],
            "notes": list(self.notes),
        }


def _document(source: SourceState) -> dict[str, Any]:
    """Of a source that could not be asked there is no number, rather than 0."""
    unknown = dict.fromkeys(("sequence", "waiting", "last")) if source.error else {}
    return source._asdict() | unknown


def _unasked(source: SourceState) -> str:
    return f"{source.source}: what waits in {source.stream} could not be asked: {source.error}"


def status_of(declared: Declared) -> list[QueryStatus]:
    """Every query of a pipeline.

    Raises:
        ConfigurationError: a checkpoint is of a version that is not known here.
    """
    return [_status(declared, name) for name in declared.sinks]


def _status(declared: Declared, name: str) -> QueryStatus:
    generation = checkpoint_of(declared, name).current()
    sources = tuple(backlog.of_sources(declared, declared.sinks[name]))
    lost = tuple(merged(read_losses(losses_of(declared, generation, name))[0]))
    if not declared.is_local_checkpoint:
        note = f"the checkpoint is below {declared.checkpoint}, which only Spark reads"
        notes = [note, *map(str, lost)]
        return QueryStatus(
            name, 1, generation.path, -1, -1, sources, Totals(None), tuple(notes), lost
        )
    planned, done = read_log(generation, "offsets"), read_log(generation, "commits")
    finished = done.batch if done is not None else -1
    totals = Totals(generation.totals)
    notes = [_unasked(each) for each in sources if each.error]
    if generation.starts and finished < 0:
        begins = ", ".join(f"{source} at {start}" for source, start in generation.starts.items())
        notes.append(f"begins {begins}")
    missed = finished + 1 - totals.batches
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
    )
