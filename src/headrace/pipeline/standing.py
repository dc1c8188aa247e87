"""Whether what outlives a run goes together: asked before a query starts, and without Spark."""

from __future__ import annotations

from .bindings import check_results
from .checkpoints import checkpoint_of
from .frames import place_of_results
from .model import Declared, Sink
from .problems import Problem


def refusals(declared: Declared) -> list[Problem]:
    """Why queries would not start, as far as it is known without Spark. Nothing is changed."""
    found = (refusal(declared, sink) for sink in declared.sinks.values())
    return [each for each in found if each is not None]


def refusal(declared: Declared, sink: Sink) -> Problem | None:
    """Why a query would not start; None if it would."""
    generation = checkpoint_of(declared, sink.name).current()
    place = place_of_results(declared, sink, generation.suffix)
    return check_results(declared, sink, generation, place) if place else None
