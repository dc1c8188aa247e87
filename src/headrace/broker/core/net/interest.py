"""Who wants to know whether a subject is listened to: push consumers, about where they deliver to.

Only subscriptions of exactly the subject count, as on the public server: one of a pattern that happens
to match it receives what is sent there, but does not bring it about. Who imports the subject into
another account is asked there, under its name there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

__all__ = ["Elsewhere", "InterestWatches", "Watch"]


class Elsewhere(Protocol):
    """A place where the same message is known by another subject: an importing account."""

    def name_of(self, subject: bytes) -> bytes | None:
        """Its subject there; None if it does not get there."""
        ...

    def watch(self, watch: Watch) -> None:
        """Answer a watch there."""
        ...

    def unwatch(self, watch: Watch) -> None:
        """No longer."""
        ...


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


class InterestWatches:
    """The watches of one router, by subject; false while there are none."""

    def __init__(self) -> None:
        self._by_subject: dict[bytes, dict[Watch, None]] = {}
        self._elsewhere: list[Elsewhere] = []

    def ask_elsewhere(self, places: Iterable[Elsewhere]) -> None:
        """The places where the subjects of this router are known, too, from now on."""
        self._elsewhere = list(places)
        for watches in list(self._by_subject.values()):
            for watch in list(watches):
                if watch.ask_elsewhere(self._elsewhere):
                    watch.changed(watch.listened)

    def __bool__(self) -> bool:
        return bool(self._by_subject)

    def add(self, watch: Watch, queues: Callable[[bytes], object]) -> None:
        """Answer a watch from now on; ``queues(queue)`` is true if somebody listens there now."""
        watch.answer(bool(queues(watch.queue)))
        watch.ask_elsewhere(self._elsewhere)
        self._by_subject.setdefault(watch.subject, {})[watch] = None

    def remove(self, watch: Watch) -> None:
        """Answer a watch no more; nothing happens when it is not there."""
        watches = self._by_subject.get(watch.subject)
        if watches is not None:
            watches.pop(watch, None)
            watch.ask_elsewhere(())
            if not watches:
                del self._by_subject[watch.subject]

    def tell(self, subject: bytes, queues: Callable[[bytes], object]) -> None:
        """Subscriptions of ``subject`` changed: tell who is concerned."""
        for watch in list(self._by_subject.get(subject, ())):
            if watch.answer(bool(queues(watch.queue))):
                watch.changed(watch.listened)
