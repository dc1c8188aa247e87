"""What is wrong with a pipeline's file, and where."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import HeadraceError


class Place(NamedTuple):
    """A line of a file, from 1; 0 is the file as a whole."""

    file: Path
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else str(self.file)


class Problem(NamedTuple):
    """One sentence about one place."""

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class Unasked(Problem):
    """A server was not reached, refused the login, or did not answer in time: no mistake of the file."""

    __slots__ = ()


class PipelineError(HeadraceError):
    """A pipeline cannot be read or run.

    Attributes:
        problems: everything that was found, each with its place.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` if something known is near; then what is accepted."""
    names = list(known)
    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), lowered, n=1)
    hint = f"; did you mean {lowered[near[0]]!r}?" if near else ""
    accepted = f"; accepted: {', '.join(names)}" if names else ""
    return hint or accepted
