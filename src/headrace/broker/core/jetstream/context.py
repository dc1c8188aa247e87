"""What every part of an engine is handed: the ports, what all parts share, and who may ask for a flush.

``TakenSubjects`` knows which subjects the streams of an engine have: no two may have one in common. Asking
every stream takes as long as there are subjects of others; the tree of all of them takes as long as there
are new ones.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from ....clock import Clock
from ....pattern_tree import PatternTree, TooManyPatternsError, are_literal
from ..ports import Bus, Randomness, Storage
from ..timers import TimerQueue
from .advisories import Advisories
from .config.options import JetStreamOptions
from .ports import StreamQuota
from .tick.flush_barrier import FlushBarrier
from .tick.removals import Disposals, Removals

COMPARED_MAX: Final = 20_000  # so many are compared with each other where the tree is no help
_NAME_DIGITS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


class TakenSubjects:
    """The subjects streams listen on, kept by the streams themselves."""

    def __init__(self) -> None:
        self._tree = PatternTree()
        self._owners: dict[bytes, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, patterns: Collection[bytes], stream: str) -> None:
        """A stream listens on these, too."""
        mine, owners = (stream,), self._owners
        self._tree.update(patterns)
        if owners.keys().isdisjoint(patterns):
            owners.update(dict.fromkeys(patterns, mine))
            return
        for pattern in patterns:  # recovered so: what was made by requests has one owner
            owners[pattern] = owners.get(pattern, ()) + mine

    def remove(self, patterns: Collection[bytes], stream: str) -> None:
        """A stream listens on these no more."""
        mine, owners = (stream,), self._owners
        for pattern in patterns:
            others = owners[pattern]
            if others == mine:
                del owners[pattern]
                self._tree.discard(pattern)
            else:
                owners[pattern] = tuple(name for name in others if name != stream)

    def is_taken(self, patterns: Collection[bytes], stream: str) -> bool:
        """Whether another stream has a subject of these. Raises TooManyPatternsError."""
        mine = (stream,)
        try:
            return self._is_in_tree(patterns, mine)
        except TooManyPatternsError:
            if len(self._owners) > COMPARED_MAX:
                raise
        asked = PatternTree(patterns)
        return any(
            owners != mine and asked.overlapping(taken) is not None
            for taken, owners in self._owners.items()
        )

    def _is_in_tree(self, patterns: Collection[bytes], mine: tuple[str, ...]) -> bool:
        tree, owners = self._tree, self._owners
        if are_literal(patterns) and tree.has_no_branch_for(patterns):
            return any([owners[taken] != mine for taken in owners.keys() & patterns])  # noqa: C419
        tree.ask_anew()
        # Nobody else has a subject of what is its own already.
        new = [pattern for pattern in patterns if owners.get(pattern) != mine]
        if tree.is_apart_from(new):
            return False
        for pattern in new:
            for found in tree.all_overlapping(pattern):
                if owners[found] != mine:
                    return True
        return False


class BatchRoom(msgspec.Struct):
    """What the open batches of all streams take together."""

    batches: int = 0
    nbytes: int = 0
    fast: int = 0
    """How many fast batches are open; they hold nothing."""


class Context:
    """The ports of one engine, and what its parts share."""

    barrier: FlushBarrier
    quota: StreamQuota

    def __init__(
        self,
        bus: Bus,
        storage: Storage,
        clock: Clock,
        random: Randomness,
        timers: TimerQueue,
        options: JetStreamOptions,
    ) -> None:
        self.bus = bus
        self.storage = storage
        self.clock = clock
        self.random = random
        self.timers = timers
        self.options = options
        self.advisories = Advisories(self)
        self.batch_room = BatchRoom()
        self.removals = Removals(self)
        self.disposals = Disposals(self)
        self.taken = TakenSubjects()

    def new_name(self, length: int) -> str:
        """A random name of letters and digits."""
        number = self.random.getrandbits(6 * length + 16)
        name = ""
        for _ in range(length):
            number, digit = divmod(number, len(_NAME_DIGITS))
            name += _NAME_DIGITS[digit]
        return name
