"""What a search for the message that code fails on has found. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..problems import Place


@dataclass(frozen=True)
class Poison:
    """A message that code fails on.

    Attributes:
        source, stream, sequence, subject: which message.
        view: the view that fails; "" for the source itself.
        function: the function of the innermost frame of the user's code; "" for SQL.
        place: file and line of that frame, or of the view.
        cause: what it said.
    """

    source: str
    stream: str
    sequence: int
    subject: str
    view: str
    function: str
    place: Place
    cause: str

    def __str__(self) -> str:
        where = f"view {self.view!r}" if self.view else f"source {self.source!r}"
        if self.function:
            where += f", function {self.function}"
        return (
            f"message {self.sequence} of stream {self.stream!r}, subject {self.subject!r}, fails in {where} "
            f"({self.place}): {self.cause}"
        )


class Verdict(NamedTuple):
    """What a search has found. ``why``: why it has found nothing."""

    quarantined: tuple[Poison, ...] = ()
    failed: Poison | None = None
    why: str = ""
