"""What happened to acknowledged messages, in the manner of Jepsen's queue checker. Pure.

A publisher sends a rising counter and never repeats one. Whatever was acknowledged must be read back,
under the sequence its acknowledgement named; whatever was not may be there or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["History", "Verdict", "check"]

Message = tuple[int, int]  # publisher, counter
SHOWN = 20


@dataclass
class History:
    """What the publishers know."""

    attempted: dict[int, int] = field(
        default_factory=dict
    )  # publisher -> counters 0 … n-1 were sent
    acknowledged: dict[Message, int] = field(default_factory=dict)  # -> the sequence it was given


@dataclass
class Verdict:
    """Everything that went wrong; all empty is the promise kept."""

    lost: list[Message] = field(default_factory=list)
    duplicated: list[Message] = field(default_factory=list)
    reordered: list[Message] = field(default_factory=list)
    unexpected: list[Message] = field(default_factory=list)
    moved: list[Message] = field(
        default_factory=list
    )  # stored under another sequence than promised
    gaps: list[int] = field(
        default_factory=list
    )  # sequences missing between the first and the last
    reused: list[int] = field(default_factory=list)  # sequences acknowledged for two messages

    @property
    def faults(self) -> Mapping[str, list[object]]:
        return {name: list(found) for name, found in vars(self).items() if found}

    def __str__(self) -> str:
        lines = [
            f"{name}: {len(found)}, first {found[:SHOWN]}" for name, found in self.faults.items()
        ]
        return "\n".join(lines) or "nothing lost, duplicated, reordered or unexpected"


def check(history: History, read: Iterable[tuple[int, Message]]) -> Verdict:
    """Judge what was read back, ``(sequence, message)`` in stream order, against the history."""
    verdict = Verdict()
    stored: dict[Message, int] = {}
    newest: dict[int, int] = {}
    last_sequence = 0
    for sequence, message in read:
        publisher, counter = message
        verdict.gaps.extend(range(last_sequence + 1, sequence))
        last_sequence = max(last_sequence, sequence)
        if message in stored:
            verdict.duplicated.append(message)
            continue
        stored[message] = sequence
        if not 0 <= counter < history.attempted.get(publisher, 0):
            verdict.unexpected.append(message)
        if counter < newest.get(publisher, -1):
            verdict.reordered.append(message)
        newest[publisher] = max(counter, newest.get(publisher, -1))
    given: set[int] = set()
    for message, sequence in history.acknowledged.items():
        if message not in stored:
            verdict.lost.append(message)
        elif stored[message] != sequence:
            verdict.moved.append(message)
        if sequence in given:
            verdict.reused.append(sequence)
        given.add(sequence)
    return verdict
