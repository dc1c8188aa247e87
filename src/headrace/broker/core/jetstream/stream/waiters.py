"""Waiters: consumers that have had everything so far, and which new messages wake which of them.

A consumer waits with its filter. When new messages are durable, the subjects among them are looked up
once for all waiters; those that wait for other subjects are not touched, however many they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from .....subjects import SubjectFilter
from ...net.trie import Trie
from ..ports import Reader

# A filter is asked by itself while that is cheap: while there are few, or if it has so many patterns that
# taking it in and out of the tree with every message would cost more. All others are in the tree.
_ASKED_MAX: Final = 8
_ASKED_LONG_MAX: Final = 64
_LONG: Final = 16


class _Place(msgspec.Struct, eq=False):
    """How one consumer waits; ``caught_up`` is its next sequence, if nothing before that is for it."""

    filter: SubjectFilter
    caught_up: int


class Waiters:
    """The waiting consumers of one stream."""

    def __init__(self) -> None:
        self._anything: dict[Reader, None] = {}
        self._asked: dict[Reader, _Place] = {}
        self._in_tree: dict[Reader, _Place] = {}
        self._tree: Trie[Reader] = Trie()

    def __bool__(self) -> bool:
        return bool(self._anything or self._asked or self._in_tree)

    def __contains__(self, reader: Reader) -> bool:
        return any(reader in each for each in (self._anything, self._asked, self._in_tree))

    def add(self, reader: Reader, filter: SubjectFilter | None, caught_up: int = 0) -> None:
        """Let a reader wait for messages that match; with no filter, for any completed flush.

        ``caught_up`` is its next sequence if it has seen everything before that, else 0.
        """
        if filter is None:
            self._forget_place(reader)
            self._anything[reader] = None
            return
        self._anything.pop(reader, None)
        place = self._asked.get(reader) or self._in_tree.get(reader)
        if place is not None and place.filter is filter:
            place.caught_up = caught_up
            return
        self._forget_place(reader)
        most = _ASKED_LONG_MAX if len(filter.patterns) > _LONG else _ASKED_MAX
        if len(self._asked) < most:
            self._asked[reader] = _Place(filter, caught_up)
            return
        self._in_tree[reader] = _Place(filter, caught_up)
        for pattern in filter.patterns:
            self._tree.add(pattern, b"", reader)

    def discard(self, reader: Reader) -> None:
        self._anything.pop(reader, None)
        self._forget_place(reader)

    def wake(self, first_new: int, subjects: Callable[[], Iterable[bytes]]) -> list[Reader]:
        """Take out those with something to deliver, now that messages from ``first_new`` on are durable.

        ``subjects`` gives their subjects, each once; it is called only if a filter has to be asked.
        """
        woken = list(self._anything)
        self._anything.clear()
        if self._asked or self._in_tree:
            for reader in self._matching(list(subjects())):
                place = self._forget_place(reader)
                if place is not None and 0 < place.caught_up == reader.state.next_seq:
                    reader.skip_to(first_new)  # nothing in between was for it
                woken.append(reader)
        return woken

    def _matching(self, subjects: list[bytes]) -> Iterable[Reader]:
        found = {c: None for c, p in self._asked.items() if any(map(p.filter.matches, subjects))}
        if self._in_tree:
            tree = self._tree
            for subject in subjects:
                tokens = subject.split(b".")
                leaves, places = tree.walk(tokens)
                tree.add_ends(places, tokens, leaves)
                for leaf in leaves:
                    found.update(dict.fromkeys(leaf.plain))
        return found

    def _forget_place(self, reader: Reader) -> _Place | None:
        place = self._asked.pop(reader, None)
        if place is None:
            place = self._in_tree.pop(reader, None)
            if place is not None:
                for pattern in place.filter.patterns:
                    self._tree.remove(pattern, b"", reader)
        return place
