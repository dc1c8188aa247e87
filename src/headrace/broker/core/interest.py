"""Who wants to know whether a subject is listened to: push consumers, about where they deliver to.

Only subscriptions of exactly the subject count, as on the public server: one of a pattern that happens
to match it receives what is sent there, but does not bring it about.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["InterestWatches", "Watch"]


class Watch:
    """One question: does anybody listen on ``subject`` in ``queue`` (``b""``: plainly)?

    ``listened`` is the answer; ``changed`` is called with each new one, and must not publish.
    """

    __slots__ = ("changed", "listened", "queue", "subject")

    def __init__(self, subject: bytes, queue: bytes, changed: Callable[[bool], None]) -> None:
        self.subject = subject
        self.queue = queue
        self.listened = False
        self.changed = changed


class InterestWatches:
    """The watches of one router, by subject; false while there are none."""

    def __init__(self) -> None:
        self._by_subject: dict[bytes, dict[Watch, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_subject)

    def add(self, watch: Watch, queues: Callable[[bytes], object]) -> None:
        """Answer a watch from now on; ``queues(queue)`` is true if somebody listens there now."""
        watch.listened = bool(queues(watch.queue))
        self._by_subject.setdefault(watch.subject, {})[watch] = None

    def remove(self, watch: Watch) -> None:
        """Answer a watch no more; nothing happens when it is not there."""
        watches = self._by_subject.get(watch.subject)
        if watches is not None:
            watches.pop(watch, None)
            if not watches:
                del self._by_subject[watch.subject]

    def tell(self, subject: bytes, queues: Callable[[bytes], object]) -> None:
        """Subscriptions of ``subject`` changed: tell who is concerned."""
        for watch in list(self._by_subject.get(subject, ())):
            listened = bool(queues(watch.queue))
            if listened != watch.listened:
                watch.listened = listened
                watch.changed(listened)
