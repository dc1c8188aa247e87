"""Whether what outlives a run goes together: asked before a query starts, and without Spark."""

from __future__ import annotations

from ...errors import ConfigurationError
from ..checkpoints.bindings import check_results
from ..checkpoints.checkpoint import Generation, checkpoint_of, read_end, read_log
from ..checkpoints.folders import is_local
from ..graph import quarantined, sources_of
from ..model import Declared, Sink
from ..options import place_of_results
from ..problems import Problem
from .again import check_again


def refusals(declared: Declared, *, again: bool = False) -> list[Problem]:
    """Why queries would not start, as far as it is known without Spark. Nothing is changed.

    Args:
        again: rows may be written again that were written before the checkpoint was lost.
    """
    found = (refusal(declared, sink, again=again) for sink in declared.sinks.values())
    return [each for each in found if each is not None]


def refusal(declared: Declared, sink: Sink, *, again: bool = False) -> Problem | None:
    """Why a query would not start; None if it would."""
    generation = checkpoint_of(declared, sink.name).current()
    if problem := _check_starts(declared, sink, generation) or _check_logs(sink, generation):
        return problem
    place = place_of_results(declared, sink, generation.suffix)
    if place and (problem := check_results(declared, sink, generation, place)):
        return problem
    return None if again else check_again(declared, sink, generation)


def _check_logs(sink: Sink, generation: Generation) -> Problem | None:
    """A log in the checkpoint that Spark could not read."""
    if not is_local(generation.path):
        return None
    try:
        read_log(generation, "offsets")
        read_end(generation)
    except ConfigurationError as error:
        return Problem(sink.place, str(error))
    return None


def _check_starts(declared: Declared, sink: Sink, generation: Generation) -> Problem | None:
    """A generation that has not begun, and is to begin at a place of sources that the query does not read."""
    sources = sources_of(declared, sink.of or quarantined(declared, sink)[0])
    strange = sorted(set(generation.starts) - {each.name for each in sources})
    if not strange or not generation.is_new:
        return None
    begins = ", ".join(f"{name} at {generation.starts[name]}" for name in strange)
    command = declared.command("reset", "--query", sink.name, "--to", "WHERE")
    text = (
        f"generation {generation.number} of query {sink.name!r} is to begin {begins}, and the query does not "
        f"read that source any more. Say again where it is to begin: {command}"
    )
    return Problem(sink.place, text)
