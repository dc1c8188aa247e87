"""Findings of a look: their kinds, and one finding. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

Grade = Literal["ok", "note", "problem"]

Evidence = Mapping[str, int | float | str]
"""Evidence of a finding, by name: numbers and times."""

MARKS: Final = {"ok": "✓", "note": "!", "problem": "✗"}

KINDS: Final[Mapping[str, str]] = MappingProxyType({
    "nobody-pulls": "Messages wait in a pull consumer, and nobody asks for them.",
    "nobody-listens": "Messages wait in a push consumer, and nobody listens.",
    "unanswered": "As many messages as allowed are without an answer: nothing more is delivered.",
    "poison-message": "One message comes again and again.",
    "feed-stands": "A job service makes no jobs of the messages that wait for it.",
    "paused": "A consumer is paused, and messages wait.",
    "kept-for-nobody": "A work queue, or a stream by interest, has messages and no consumer.",
    "member-away": "Nobody works for a member of a group: its partitions are not handled.",
    "group-unreachable": "Messages do not reach a group.",
    "group-record": "The record of a group cannot be read.",
    "stream-full": "A stream that refuses what does not fit is full, or nearly.",
    "account-full": "An account is at a limit, or near it.",
    "endless-stream": "A stream grows, and nothing limits it.",
    "lost-messages": "Damage has taken messages.",
    "ahead-of-clock": "The clock was set back behind a stream's newest message.",
    "copy-fails": "A mirror or source cannot copy.",
    "copy-behind": "A mirror or source is behind, and silent.",
    "being-renamed": "A stream is being renamed, and takes no messages.",
    "repartitioned": "A stream takes no messages: another one does, with other partitions.",
    "replica-away": "A replica is offline or behind.",
    "query-failed": "A query of a pipeline has failed, and runs no more.",
    "query-restarting": "A query of a pipeline fails, and is begun again.",
    "pipeline-silent": "A pipeline's runner was killed, or cannot reach the server.",
    "jobs-part-fails": "A part of a job service fails, and is tried again.",
    "endpoint-disabled": "A job service calls an endpoint no more, as it failed too long.",
    "endpoint-fails": "Every call of an endpoint by a job service fails.",
    "jobs-unreachable": "The job service does not answer.",
    "store-failed": "The store takes no messages.",
    "slow-clients": "Clients were cut off, as they read too slowly.",
    "connections-full": "As many clients are connected as allowed, or nearly.",
})  # fmt: skip
"""The kinds of findings about a server and what it holds: names, which stay as they are, and meanings."""


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        grade: ``ok``, ``note`` (worth knowing), ``problem`` (something does not work, or will not for long).
        what: what was looked at.
        text: what is the case.
        mend: the command that mends it, or "".
        name: which of ``KINDS`` it is; "" for what is only about this machine, or well.
        since: since when, RFC 3339; "" where that is not known.
        evidence: what it rests on.
    """

    grade: Grade
    what: str
    text: str
    mend: str = ""
    name: str = ""
    since: str = ""
    evidence: Evidence = field(default_factory=dict)


@dataclass
class Findings:
    """Findings in the order they were looked for."""

    found: list[Finding] = field(default_factory=list)

    def ok(self, what: str, text: str) -> None:
        """Add that all is well."""
        self.found.append(Finding("ok", what, text))

    def note(
        self, what: str, text: str, mend: str = "", *, name: str = "", since: str = "", **seen: Any
    ) -> None:
        """Add something worth knowing; ``seen`` is its evidence."""
        self.found.append(Finding("note", what, text, mend, name, since, seen))

    def problem(
        self, what: str, text: str, mend: str = "", *, name: str = "", since: str = "", **seen: Any
    ) -> None:
        """Add something that is wrong; ``seen`` is its evidence."""
        self.found.append(Finding("problem", what, text, mend, name, since, seen))

    @property
    def problems(self) -> int:
        """Number of problems."""
        return sum(each.grade == "problem" for each in self.found)

    def document(self) -> list[dict[str, Any]]:
        """The findings for programs."""
        return [asdict(each) for each in self.found]


SHOWN_MAX: Final = 200
"""Findings on a page of numbers; the others are counted."""


def samples(findings: Iterable[Finding]) -> list[tuple[tuple[tuple[str, str], ...], float]]:
    """The findings as samples of one metric, at most ``SHOWN_MAX``: problems first."""
    told = [each for each in findings if each.grade != "ok" and each.name]
    told.sort(key=lambda each: each.grade != "problem")
    # One series for several of a kind, as of two sources of a stream.
    series = dict.fromkeys(
        (("finding", each.name), ("severity", each.grade), ("what", each.what)) for each in told
    )
    return [(labels, 1.0) for labels in list(series)[:SHOWN_MAX]]
