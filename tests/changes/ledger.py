"""What was published and what was handled, and what that says: lost, doubled, out of order, stuck. Pure.

A lane is one way from publishers to handlers. Its keys have numbers, counted from 0; each is published once
the one before is acknowledged. A message may be handled again where nobody could know that it was
handled: not where its acknowledgement was confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

STUCK_S = 10.0
"""So long may a key wait without a word."""


@dataclass
class Key:
    """The messages of one key."""

    begun: int = 0  # numbers that were sent, acknowledged or not
    under_way: set[int] = field(default_factory=set)  # sent, and neither acknowledged nor handled
    stored: dict[int, float] = field(
        default_factory=dict
    )  # acknowledged and not handled: since when
    handled: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)
    came: dict[int, str] = field(default_factory=dict)
    newest: int = -1
    moved_at: float = 0.0


@dataclass
class Lane:
    """One way of messages; ``keeps_order`` says whether that of a key is promised."""

    name: str
    keeps_order: bool
    keys: dict[str, Key] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    again: int = 0
    explained: int = 0  # waits of more than 10 s of which something was said
    longest_s: float = 0.0
    said_at: float = float("-inf")
    said: str = ""
    explained_until: float = float("-inf")

    def explain_until(self, by: float) -> None:
        """Anybody can see why it waits until then: a consumer that is paused, an ``ack_wait`` that has begun
        when the link was lost."""
        self.explained_until = max(self.explained_until, by)

    def say(self, text: str, now: float) -> None:
        """A line that somebody could read: why this lane may stand still."""
        self.said, self.said_at = text, now

    def begin(self, key: str) -> int:
        """The next number of a key, which is sent now."""
        found = self.keys.setdefault(key, Key())
        found.begun += 1
        found.under_way.add(found.begun - 1)
        return found.begun - 1

    def store(self, key: str, number: int, now: float) -> None:
        """The stream has acknowledged it."""
        found = self.keys[key]
        found.under_way.discard(number)
        if number not in found.handled:
            found.stored[number] = now

    def handle(self, key: str, number: int, now: float, how: str = "") -> None:
        """A handler has it; ``how`` it came is told where that is wrong."""
        found = self.keys.setdefault(key, Key())
        before = f"; before{found.came[number]}" if found.came.get(number) else ""
        if number >= found.begun:
            self._wrong(f"invented: {key} {number}, and {found.begun} were sent")
        elif number in found.confirmed and number not in found.doubtful:
            self._wrong(f"doubled: {key} {number} was confirmed, and comes again{how}{before}")
        elif number in found.handled:
            self.again += 1
        elif self.keeps_order and number != found.newest + 1:
            self._wrong(f"out of order: {key} {number} after {found.newest}")
        found.came[number] = how
        found.under_way.discard(number)
        found.handled.add(number)
        found.newest = max(found.newest, number)
        found.stored.pop(number, None)
        found.moved_at = now

    def doubt(self, key: str, number: int) -> None:
        """It may be stored twice: an attempt had no answer, and nobody remembers its id any more."""
        self.keys[key].doubtful.add(number)

    def confirm(self, key: str, number: int) -> None:
        """Its acknowledgement is confirmed: it must not come again."""
        self.keys[key].confirmed.add(number)

    def look(self, now: float) -> None:
        """Whether a key waits too long, without a word."""
        for name, key in self.keys.items():
            if not key.stored:
                continue
            since = max(min(key.stored.values()), key.moved_at)
            self.longest_s = max(self.longest_s, now - since)
            if now - since <= STUCK_S:
                continue
            if now - max(self.said_at, self.explained_until) <= STUCK_S:
                self.explained += 1
            else:
                number = min(key.stored)
                self._wrong(
                    f"stuck: {name} {number} waits {now - since:.0f} s; last said "
                    f"{now - self.said_at:.0f} s ago: {self.said!r}"
                )
            key.moved_at = now  # told once each time

    @property
    def waiting(self) -> int:
        """Messages that are stored and not handled, or on their way to be stored."""
        return sum(len(key.stored) + len(key.under_way) for key in self.keys.values())

    def end(self) -> None:
        """Nothing comes any more: what was not handled is lost."""
        for name, key in self.keys.items():
            if key.stored:
                self._wrong(f"lost: {name} {sorted(key.stored)[:20]}")

    @property
    def counts(self) -> dict[str, float]:
        """Figures for a report."""
        keys = self.keys.values()
        return {
            "published": sum(key.begun for key in keys),
            "handled": sum(len(key.handled) for key in keys),
            "confirmed": sum(len(key.confirmed) for key in keys),
            "again": self.again,
            "waits over 10 s, explained": self.explained,
            "longest wait": round(self.longest_s, 1),
        }

    def _wrong(self, text: str) -> None:
        self.wrong.append(f"{self.name}: {text}")


@dataclass
class Kept:
    """What a stream with limits has to hold, message by message; all of the same size."""

    max_msgs: int = -1
    per_subject: int = -1
    discard: str = "old"
    held: list[tuple[int, str]] = field(default_factory=list)
    refused: int = 0

    def store(self, sequence: int, subject: str) -> None:
        """A message was taken."""
        if not self.held or sequence > self.held[-1][0]:
            self.held.append((sequence, subject))
            self._apply()

    def refuse(self) -> str:
        """A message was refused for want of room; what is wrong with that, if anything is."""
        self.refused += 1
        full = self.discard == "new" and 0 < self.max_msgs <= len(self.held)
        return "" if full else f"refused with {len(self.held)} of {self.max_msgs}, {self.discard}"

    def change(self, max_msgs: int, per_subject: int, discard: str) -> None:
        """The limits are others from now on."""
        self.max_msgs, self.per_subject, self.discard = max_msgs, per_subject, discard
        self._apply()

    def _apply(self) -> None:
        if self.per_subject > 0:
            seen: dict[str, int] = {}
            left = []
            for sequence, subject in reversed(self.held):
                seen[subject] = seen.get(subject, 0) + 1
                if seen[subject] <= self.per_subject:
                    left.append((sequence, subject))
            self.held = left[::-1]
        if self.max_msgs > 0 and self.discard == "old":
            self.held = self.held[-self.max_msgs :]
