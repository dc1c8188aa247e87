"""The question whether a subject is listened to, as push consumers ask it about where they deliver to.

Only subscriptions of exactly the subject count, as on the public server. A subscription to a pattern that
happens to match it receives what is sent there, but does not count as a listener. An account that imports
the subject is asked too, under the name the subject has there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

__all__ = ["Elsewhere", "Watch"]


class Elsewhere(Protocol):
    """A place where the same message is known by another subject: an importing account."""

    def name_of(self, subject: bytes) -> bytes | None:
        """Its subject there; None if it does not get there."""

    def watch(self, watch: Watch) -> None:
        """Answer a watch there."""

    def unwatch(self, watch: Watch) -> None:
        """No longer."""


class Watch:
    """One question: does anybody listen on ``subject`` in ``queue`` (``b""``: plainly)?

    ``listened`` is the answer; ``changed`` is called with each new one, and must not publish.
    """

    __slots__ = ("_here", "_there", "changed", "listened", "queue", "subject")

    def __init__(self, subject: bytes, queue: bytes, changed: Callable[[bool], None]) -> None:
        self.subject = subject
        self.queue = queue
        self.listened = False
        self.changed = changed
        self._here = False
        self._there: list[tuple[Elsewhere, Watch]] = []

    def answer(self, here: bool) -> bool:
        """Take what is known here; returns whether that changes the answer."""
        self._here = here
        listened = here or any(watch.listened for _, watch in self._there)
        changed = listened != self.listened
        self.listened = listened
        return changed

    def ask_elsewhere(self, places: Iterable[Elsewhere]) -> bool:
        """Ask in these places, and no longer in others; returns whether the answer changes."""
        for place, watch in self._there:
            place.unwatch(watch)
        self._there = []
        for place in places:
            subject = place.name_of(self.subject)
            if subject is not None:
                watch = Watch(subject, self.queue, self._heard)
                place.watch(watch)
                self._there.append((place, watch))
        return self.answer(self._here)

    def _heard(self, _listened: bool) -> None:
        if self.answer(self._here):
            self.changed(self.listened)
