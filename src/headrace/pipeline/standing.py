"""Whether what outlives a run goes together: asked before a query starts, and without Spark."""

from __future__ import annotations

from .again import check_again
from .bindings import check_results
from .checkpoints import checkpoint_of
from .frames import place_of_results
from .model import Declared, Sink
from .problems import Problem


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
    place = place_of_results(declared, sink, generation.suffix)
    if place and (problem := check_results(declared, sink, generation, place)):
        return problem
    return None if again else check_again(declared, sink, generation)
