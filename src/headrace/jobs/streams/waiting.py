"""Which of the messages at hand may be called next: of one ordering key one at a time, in order. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Entry", "Waiting"]

T = TypeVar("T")


@dataclass(slots=True)
class Entry(Generic[T]):
    """A message: its sequence and ordering key, its bytes, since when it is at hand (seconds), and itself."""

    seq: int
    key: str | None
    size: int
    since_s: float
    item: T
    called: bool = False


class Waiting(Generic[T]):
    """Messages that were fetched and are not finished.

    A key is *busy* while jobs of it in the database are unfinished: its messages are to be set aside, behind
    those. While *recovering*, keyed messages wait: what was delivered before may come after what is new.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry[T]] = {}
        self._ready: deque[int] = deque()
        self._lines: dict[str, deque[int]] = {}
        self._fronted: set[str] = set()  # keys whose first message is ready, called or aside
        self._aside: dict[str, None] = {}
        self._busy: set[str] | None = set()
        self._cleared: set[str] = (
            set()
        )  # with busy keys unknown: those that were asked for and are not
        self._recovering = False
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self._entries.values())

    @property
    def called(self) -> int:
        """How many were taken and are not finished."""
        return sum(entry.called for entry in self._entries.values())

    def get(self, seq: int) -> Entry[T] | None:
        """The message of this sequence, if it is at hand."""
        return self._entries.get(seq)

    def add(self, entry: Entry[T]) -> None:
        """A message came that is not at hand."""
        self._entries[entry.seq] = entry
        self.size += entry.size
        if entry.key is None:
            self._ready.append(entry.seq)
            return
        line = self._lines.setdefault(entry.key, deque())
        line.append(entry.seq)
        if not self._recovering and entry.key not in self._fronted:
            self._front(entry.key)

    def take(self, n: int) -> list[T]:
        """Up to ``n`` messages that may be called now; they are until they are finished."""
        taken: list[T] = []
        while self._ready and len(taken) < n:
            entry = self._entries[self._ready.popleft()]
            if entry.key is not None and self._is_busy(entry.key):
                self._aside[entry.key] = None
                continue
            entry.called = True
            taken.append(entry.item)
        return taken

    def untake(self, seqs: Sequence[int]) -> None:
        """These were taken and are not called after all: they are the next to be taken, in this order."""
        for seq in reversed(seqs):
            self._entries[seq].called = False
            self._ready.appendleft(seq)

    def aside(self, n: int) -> list[T]:
        """Up to ``n`` messages of keys that are busy, in order of each key."""
        found: list[T] = []
        for key in self._aside:
            for seq in self._lines[key]:
                if len(found) >= n:
                    return found
                found.append(self._entries[seq].item)
        return found

    def set_aside(self, asked: Collection[int], moved: Collection[int]) -> None:
        """Of the messages that were ``asked`` for, these are jobs now; the keys of the others are free."""
        free = {self._entries[seq].key for seq in asked if seq not in moved}
        for seq in moved:
            self.finish(seq)
        for key in free:
            if key is None or key not in self._aside:
                continue
            del self._aside[key]
            self._fronted.discard(key)
            if self._busy is None:
                self._cleared.add(key)
            else:
                self._busy.discard(key)
            self._front(key)

    def finish(self, seq: int) -> None:
        """A message needs no more calls; the next one of its key may be called."""
        entry = self._entries.pop(seq)
        self.size -= entry.size
        key = entry.key
        if key is None:
            if not entry.called:
                self._ready.remove(seq)
            return
        line = self._lines[key]
        was_first = line[0] == seq
        line.remove(seq)
        if not was_first:
            return
        if not entry.called and seq in self._ready:
            self._ready.remove(seq)
        self._fronted.discard(key)
        self._aside.pop(key, None)
        self._cleared.discard(key)
        if not line:
            del self._lines[key]
        elif not self._recovering:
            self._front(key)

    def hold(self, key: str) -> None:
        """A message of this key became a job: the next ones wait behind it."""
        self._cleared.discard(key)
        if self._busy is not None:
            self._busy.add(key)

    def busy(self, keys: Collection[str] | None) -> None:
        """These are the busy keys; None: too many to be named, so each is to be asked for."""
        self._busy = None if keys is None else set(keys)
        self._cleared.clear()
        for key in [key for key in self._aside if not self._is_busy(key)]:
            del self._aside[key]
            self._ready.append(self._lines[key][0])

    def recover(self) -> None:
        """Keyed messages that come now may be out of order, until ``recovered``."""
        self._recovering = True

    def recovered(self) -> None:
        """All that was delivered before is at hand."""
        self._recovering = False
        for key, line in self._lines.items():
            first = [line.popleft()] if key in self._fronted else []
            self._lines[key] = deque([*first, *sorted(line)])
        for key in [key for key in self._lines if key not in self._fronted]:
            self._front(key)

    def drop(self) -> list[T]:
        """Forget those that are not being called, and return them in order."""
        dropped = sorted(entry.seq for entry in self._entries.values() if not entry.called)
        items = [self._entries[seq].item for seq in dropped]
        for seq in dropped:
            entry = self._entries.pop(seq)
            self.size -= entry.size
        self._ready.clear()
        self._aside.clear()
        for key, line in list(self._lines.items()):
            kept = deque(seq for seq in line if seq in self._entries)
            if kept:
                self._lines[key] = kept
            else:
                del self._lines[key]
                self._fronted.discard(key)
        return items

    def _is_busy(self, key: str) -> bool:
        return key not in self._cleared if self._busy is None else key in self._busy

    def _front(self, key: str) -> None:
        self._fronted.add(key)
        if self._is_busy(key):
            self._aside[key] = None
        else:
            self._ready.append(self._lines[key][0])
