"""Consumers that have had everything so far: who is woken by which new messages.

A consumer waits with its filter. When new messages are durable, the subjects among them are looked up
once for all who wait; who waits for others is not touched, however many that are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ....subjects import SubjectFilter
from ..router_trie import Trie

if TYPE_CHECKING:
    from .consumer import Consumer

__all__ = ["Hungry"]

_ASKED_IN_TURN_MAX: Final = 8  # more filters than this are cheaper to find in a tree


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
        self._choosy: dict[Consumer, _Place] = {}
        self._tree: Trie[Consumer] | None = None

    def __bool__(self) -> bool:
        return bool(self._anything or self._choosy)

    def __contains__(self, consumer: Consumer) -> bool:
        return consumer in self._anything or consumer in self._choosy

    def add(self, consumer: Consumer, filter: SubjectFilter | None, caught_up: int = 0) -> None:
        """Let a consumer wait for messages that match; with no filter, for any completed flush.

        ``caught_up`` is its next sequence if it has seen everything before that, else 0.
        """
        if filter is None:
            self._forget_choice(consumer)
            self._anything[consumer] = None
            return
        self._anything.pop(consumer, None)
        place = self._choosy.get(consumer)
        if place is not None and place.filter is filter:
            place.caught_up = caught_up
            return
        self._forget_choice(consumer)
        self._choosy[consumer] = _Place(filter, caught_up)
        if self._tree is not None:
            self._plant(self._tree, consumer, filter)

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
        if self._choosy:
            for consumer in self._chosen(subjects()):
                place = self._forget_choice(consumer)
                if place is not None and 0 < place.caught_up == consumer.state.next_seq:
                    consumer.skip_to(first_new)  # nothing in between was for it
                woken.append(consumer)
        return woken

    def _chosen(self, subjects: Iterable[bytes]) -> list[Consumer]:
        if len(self._choosy) <= _ASKED_IN_TURN_MAX:
            names = list(subjects)
            return [c for c, place in self._choosy.items() if any(map(place.filter.matches, names))]
        tree = self._tree
        if tree is None:
            tree = self._tree = Trie()
            for consumer, place in self._choosy.items():
                self._plant(tree, consumer, place.filter)
        found: dict[Consumer, None] = {}
        for subject in subjects:
            tokens = subject.split(b".")
            leaves, nodes = tree.walk(tokens)
            leaves += tree.ends(nodes, tokens[-1])
            for leaf in leaves:
                found.update(leaf.groups[b""])
        return list(found)

    @staticmethod
    def _plant(tree: Trie[Consumer], consumer: Consumer, filter: SubjectFilter) -> None:
        for pattern in filter.patterns:
            tree.add(pattern, b"", consumer)

    def _forget_choice(self, consumer: Consumer) -> _Place | None:
        place = self._choosy.pop(consumer, None)
        if place is not None and self._tree is not None:
            for pattern in place.filter.patterns:
                self._tree.remove(pattern, b"", consumer)
            if not self._choosy:
                self._tree = None  # rebuilt when it is worth it
        return place
