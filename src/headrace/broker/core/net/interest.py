"""Who watches which subject of one router; see ``ports.Watch`` for the question."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..ports.bus import Elsewhere, Watch


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
