"""Which message may be begun next, when several handlers run at once: never two of one key. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """Items by key. Those of one key leave in the order in which they came, one at a time.

    Between keys, the item that came first leaves first.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[T]] = {}  # of a key that is ready or busy
        self._ready: deque[Hashable] = deque()
        self._count = 0

    def __len__(self) -> int:
        """How many items wait."""
        return self._count

    @property
    def has_free(self) -> bool:
        """Whether there is an item whose key is free."""
        return bool(self._ready)

    def __iter__(self) -> Iterator[T]:
        """What waits, by key."""
        for lane in self._waiting.values():
            yield from lane

    def items(self) -> Iterator[tuple[Hashable, T]]:
        """What waits, by key, with it."""
        for key, lane in self._waiting.items():
            for item in lane:
                yield key, item

    def add(self, key: Hashable, item: T) -> None:
        """``item`` waits behind those of its key."""
        self._count += 1
        lane = self._waiting.get(key)
        if lane is None:
            self._waiting[key] = deque((item,))
            self._ready.append(key)
        else:
            lane.append(item)

    def take(self) -> tuple[Hashable, T] | None:
        """The next item whose key is free, and its key, which is busy until ``done``; None if there is
        none."""
        if not self._ready:
            return None
        key = self._ready.popleft()
        self._count -= 1
        return key, self._waiting[key].popleft()

    def done(self, key: Hashable) -> None:
        """The item of ``key`` that was taken is done."""
        if self._waiting[key]:
            self._ready.append(key)
        else:
            del self._waiting[key]

    def clear(self) -> list[T]:
        """Drop what waits, and return it; what is busy stays busy."""
        dropped = list(self)
        busy = self._waiting.keys() - set(self._ready)
        self._waiting = {key: deque() for key in busy}
        self._ready.clear()
        self._count = 0
        return dropped


class Line(Generic[T]):
    """As ``Lanes`` where all items have one key, and for less: they leave one at a time, as they came."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._is_busy = False

    def __len__(self) -> int:
        """How many items wait."""
        return len(self._waiting)

    @property
    def has_free(self) -> bool:
        """Whether there is an item, and none is busy."""
        return bool(self._waiting) and not self._is_busy

    def __iter__(self) -> Iterator[T]:
        """What waits, in order."""
        return iter(self._waiting)

    def add(self, key: Hashable, item: T) -> None:
        """``item`` waits behind all others."""
        self._waiting.append(item)

    def take(self) -> tuple[Hashable, T] | None:
        """The next item, with a key that says nothing; None if there is none, or one is busy."""
        if self._is_busy or not self._waiting:
            return None
        self._is_busy = True
        return None, self._waiting.popleft()

    def items(self) -> Iterator[tuple[Hashable, T]]:
        """What waits, in order, with a key that says nothing."""
        return ((None, item) for item in self._waiting)

    def clear(self) -> list[T]:
        """Drop what waits, and return it."""
        dropped = list(self._waiting)
        self._waiting.clear()
        return dropped

    def done(self, key: Hashable) -> None:
        """The item that was taken is done."""
        self._is_busy = False
