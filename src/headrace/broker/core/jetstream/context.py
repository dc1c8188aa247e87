"""What every part of an engine is handed: the ports, what all parts share, and who may ask for a flush."""

from __future__ import annotations

from typing import Final

import msgspec

from ....clock import Clock
from ..ports.bus import Bus, Randomness, Timers
from ..ports.storage import Storage
from .advisories import Advisories
from .config.options import JetStreamOptions
from .config.subject_overlap import TakenSubjects
from .ports import StreamQuota
from .tick.flush_barrier import FlushBarrier
from .tick.removals import Removals

_NAME_DIGITS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


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
        timers: Timers,
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
        self.taken = TakenSubjects()

    def new_name(self, length: int) -> str:
        """A random name of letters and digits."""
        number = self.random.getrandbits(6 * length + 16)
        name = ""
        for _ in range(length):
            number, digit = divmod(number, len(_NAME_DIGITS))
            name += _NAME_DIGITS[digit]
        return name
