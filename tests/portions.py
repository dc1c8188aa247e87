"""How many of the places where something can go wrong are tried: `make test` tries some, `make test-all` all.

For tests that let one thing fail at each place of a workload in turn, or that play one seed after the other.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import pytest

__all__ = ["EVERY", "beginning_with", "one_way", "play_one_way", "portion", "some"]

EVERY: Final = "HEADRACE_EVERY_PLACE"
"""The variable that asks for all of them; ``conftest.py`` sets it where the slow tests are played, too."""

T = TypeVar("T")


def some(places: Iterable[T], one_in: int, beginning: int = 0) -> list[T]:
    """One in so many of the places, or all of them.

    Tests that try the same places in several ways begin at different ones: together they go further.
    """
    if EVERY in os.environ:
        return list(places)
    return list(itertools.islice(places, beginning % one_in, None, one_in))


def one_way(ways: Sequence[T], test: str) -> Sequence[T]:
    """One of the ways to play a test of this name, always the same one, or all of them.

    For tests whose outcome is not decided by the way: together they are played in all of them.
    """
    if EVERY in os.environ:
        return ways
    return [ways[zlib.crc32(test.encode()) % len(ways)]]


def play_one_way(metafunc: pytest.Metafunc, fixture: str, ways: Sequence[object]) -> None:
    """``one_way`` for all tests that take a fixture, but those that say themselves in which ways it is
    played."""
    marks = metafunc.definition.iter_markers("parametrize")
    said = {name for mark in marks for name in _names(mark.args[0])}
    if fixture in metafunc.fixturenames and fixture not in said:
        chosen = one_way(ways, metafunc.function.__name__)
        metafunc.parametrize(fixture, chosen, indirect=True)


def _names(said: str | Sequence[str]) -> Iterable[str]:
    return map(str.strip, said.split(",")) if isinstance(said, str) else said


def portion(of: int, few: int) -> int:
    """How many of so many seeds or trials: ``few``, or all of them."""
    return of if EVERY in os.environ else few


def beginning_with(likely: int, seeds: Iterable[int]) -> Iterator[int]:
    """The seeds, the one first that showed what is looked for when somebody looked last: seldom more are
    played than that one."""
    yield likely
    yield from (seed for seed in seeds if seed != likely)
