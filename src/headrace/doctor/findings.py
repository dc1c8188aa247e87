"""What a look finds. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

Grade = Literal["ok", "note", "problem"]

MARKS: Final = {"ok": "✓", "note": "!", "problem": "✗"}


@dataclass(frozen=True)
class Finding:
    """One of them.

    Attributes:
        grade: ``ok``, ``note`` (worth knowing), ``problem`` (something does not work, or will not for long).
        what: what was looked at.
        text: what is the case.
        mend: the command that mends it, or "".
    """

    grade: Grade
    what: str
    text: str
    mend: str = ""


@dataclass
class Findings:
    """All of them, in the order they were looked for."""

    found: list[Finding] = field(default_factory=list)

    def ok(self, what: str, text: str) -> None:
        """Nothing is wrong."""
        self.found.append(Finding("ok", what, text))

    def note(self, what: str, text: str, mend: str = "") -> None:
        """Worth knowing."""
        self.found.append(Finding("note", what, text, mend))

    def problem(self, what: str, text: str, mend: str = "") -> None:
        """Wrong."""
        self.found.append(Finding("problem", what, text, mend))

    @property
    def problems(self) -> int:
        """How many."""
        return sum(each.grade == "problem" for each in self.found)

    def document(self) -> list[dict[str, Any]]:
        """For programs."""
        return [asdict(each) for each in self.found]
