"""What every part of an engine is handed: the ports, what all parts share, and who may ask for a flush."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .advisories import Advisories
from .config.taken import TakenSubjects
from .tick.removals import Removals

if TYPE_CHECKING:
    from ....clock import Clock
    from ..ports import Bus, Randomness, Storage, Timers
    from .config.options import JetStreamOptions
    from .ports import StreamQuota
    from .tick.flush_barrier import FlushBarrier

__all__ = [
    "BatchRoom",
    "Context",
]

_NAME_DIGITS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


class BatchRoom:
    """What the open batches of all streams take together."""

    def __init__(self) -> None:
        self.batches = 0
        self.nbytes = 0
        self.fast = 0
        """How many fast batches are open; they hold nothing."""


class Context:
    """The ports of one engine, and what its parts share."""

    __slots__ = (
        "advisories",
        "barrier",
        "batch_room",
        "bus",
        "clock",
        "options",
        "quota",
        "random",
        "removals",
        "storage",
        "taken",
        "timers",
    )

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
