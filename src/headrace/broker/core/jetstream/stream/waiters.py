"""Consumers that have had everything so far: who is woken by which new messages.

A consumer waits with its filter. When new messages are durable, the subjects among them are looked up
once for all who wait; who waits for others is not touched, however many that are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from .....subjects import SubjectFilter
from ...net.trie import Trie

if TYPE_CHECKING:
    from ..consumer.consumer import Consumer

__all__ = ["Hungry"]

# A filter is asked by itself while that is cheap: while few are, or if it has so many patterns that
# taking it in and out of the tree with every message would cost more. All others stand in the tree.
_ASKED_MAX: Final = 8
_ASKED_LONG_MAX: Final = 64
_LONG: Final = 16


class _Place:
    """How one consumer waits; ``caught_up`` is its next sequence, if nothing before that is for it."""

    __slots__ = ("caught_up", "filter")

    def __init__(self, filter: SubjectFilter, caught_up: int) -> None:
        self.filter = filter
        self.caught_up = caught_up


class Hungry:
    """The waiting consumers of one stream."""

    def __init__(self) -> None:
        self._anything: dict[Consumer, None] = {}
        self._asked: dict[Consumer, _Place] = {}
        self._planted: dict[Consumer, _Place] = {}
        self._tree: Trie[Consumer] = Trie()

    def __bool__(self) -> bool:
        return bool(self._anything or self._asked or self._planted)

    def __contains__(self, consumer: Consumer) -> bool:
        return any(consumer in each for each in (self._anything, self._asked, self._planted))

    def add(self, consumer: Consumer, filter: SubjectFilter | None, caught_up: int = 0) -> None:
        """Let a consumer wait for messages that match; with no filter, for any completed flush.

        ``caught_up`` is its next sequence if it has seen everything before that, else 0.
        """
        if filter is None:
            self._forget_choice(consumer)
            self._anything[consumer] = None
            return
        self._anything.pop(consumer, None)
        place = self._asked.get(consumer) or self._planted.get(consumer)
        if place is not None and place.filter is filter:
            place.caught_up = caught_up
            return
        self._forget_choice(consumer)
        most = _ASKED_LONG_MAX if len(filter.patterns) > _LONG else _ASKED_MAX
        if len(self._asked) < most:
            self._asked[consumer] = _Place(filter, caught_up)
            return
        self._planted[consumer] = _Place(filter, caught_up)
        for pattern in filter.patterns:
            self._tree.add(pattern, b"", consumer)

    def discard(self, consumer: Consumer) -> None:
        """Let a consumer wait no more."""
        self._anything.pop(consumer, None)
        self._forget_choice(consumer)

    def wake(self, first_new: int, subjects: Callable[[], Iterable[bytes]]) -> list[Consumer]:
        """Take out who is to have a turn, now that messages from ``first_new`` on are durable.

        ``subjects`` tells theirs, each once; it is called only if somebody asks.
        """
        woken = list(self._anything)
        self._anything.clear()
        if self._asked or self._planted:
            for consumer in self._chosen(list(subjects())):
                place = self._forget_choice(consumer)
                if place is not None and 0 < place.caught_up == consumer.state.next_seq:
                    consumer.skip_to(first_new)  # nothing in between was for it
                woken.append(consumer)
        return woken

    def _chosen(self, subjects: list[bytes]) -> Iterable[Consumer]:
        found = {c: None for c, p in self._asked.items() if any(map(p.filter.matches, subjects))}
        if self._planted:
            tree = self._tree
            for subject in subjects:
                tokens = subject.split(b".")
                leaves, nodes = tree.walk(tokens)
                leaves += tree.ends(nodes, tokens[-1])
                for leaf in leaves:
                    found.update(leaf.groups[b""])
        return found

    def _forget_choice(self, consumer: Consumer) -> _Place | None:
        place = self._asked.pop(consumer, None)
        if place is None:
            place = self._planted.pop(consumer, None)
            if place is not None:
                for pattern in place.filter.patterns:
                    self._tree.remove(pattern, b"", consumer)
        return place
