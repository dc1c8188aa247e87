"""What every part of the engine is handed: the ports, and the marks a tick leaves behind.

Parts mark, the engine works through the marks once per tick. That is how work is done per batch without
a part knowing the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .advisories import Advisories
from .config.taken import TakenSubjects
from .tick.removals import Removals

if TYPE_CHECKING:
    from ....clock import Clock
    from ..ports import Bus, Randomness, Storage, Timers
    from .config.options import JetStreamOptions
    from .consumer.consumer import Consumer
    from .consumer.delivery_state import Entry
    from .engine.account_limits import Quota
    from .sourcing.copies import Copies
    from .stream.stream import Stream
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
    """The ports and the marks of one engine."""

    __slots__ = (
        "advisories",
        "appended",
        "barrier",
        "batch_room",
        "bus",
        "clock",
        "copies",
        "dirty_consumers",
        "dirty_streams",
        "forgotten",
        "later",
        "newborn",
        "options",
        "quota",
        "random",
        "ready",
        "removals",
        "removed",
        "settling",
        "storage",
        "taken",
        "timers",
    )

    barrier: FlushBarrier
    quota: Quota
    copies: Copies

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
        self.dirty_streams: list[Stream] = []
        """Streams with appended messages since the last end of a tick."""
        self.appended: dict[Stream, None] = {}
        """Streams with appended messages since the last flush started."""
        self.removed: dict[Stream, list[int]] = {}
        """Messages their consumers are done with, removed since the last flush started."""
        self.forgotten: dict[Consumer, list[Entry]] = {}
        self.newborn: dict[Consumer, None] = {}  # made since the last flush began
        """Deliveries that are over as their messages left the stream, since the last flush started."""
        self.ready: dict[Consumer, None] = {}
        """Consumers that may have something to deliver, in the order they became so."""
        self.dirty_consumers: dict[Consumer, None] = {}
        """Consumers whose state changed since it was last journaled."""

        self.later: dict[Consumer, None] = {}
        """Consumers whose turn ended with work left: they are ready again in the next tick."""
        self.settling: dict[Consumer, None] = {}
        """Consumers with acks the stream's retention has not heard of."""

    def new_name(self, length: int) -> str:
        """A random name of letters and digits."""
        number = self.random.getrandbits(6 * length + 16)
        name = ""
        for _ in range(length):
            number, digit = divmod(number, len(_NAME_DIGITS))
            name += _NAME_DIGITS[digit]
        return name
