"""What a pinned instance is delivered, and whether something is missing in it.

A link that is lost takes with it what was on its way. With several messages under way at once the pin
outlives that, and what comes next may have overtaken what was lost, which comes again only when its time is
over. The consumer numbers its deliveries, so a gap shows, and then everything waits until it is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from .renewal import Renewal

if TYPE_CHECKING:
    from ....client import JetStreamMessage
    from ....client.seam import ManagedConsumption


class Intake:
    """The messages of a consumption, none of which has overtaken one that was lost.

    Args:
        gather: waits until all that is under way has come, calls ``follow``, and returns what of it is to be
            handled in the stream's order, beginning with what it is given. None: it is over.
        may_overtake: whether more than one message may be under way.
        renewal: of the lease.
    """

    def __init__(
        self,
        consumption: ManagedConsumption,
        gather: Callable[[list[JetStreamMessage]], Awaitable[list[JetStreamMessage] | None]],
        *,
        may_overtake: bool,
        renewal: Renewal | None = None,
    ) -> None:
        self._consumption = consumption
        self._gather = gather
        self._may_overtake = may_overtake
        self._renewal = renewal
        self._next = 0

    def follow(self, delivery: int) -> None:
        """All up to this number of the consumer's came, in whatever order: the next one is to follow."""
        self._next = delivery + 1

    async def next_batch(self, max_messages: int = 0) -> list[JetStreamMessage]:
        """As ``Consumption.next_batch``."""
        while messages := await self._consumption.next_batch(max_messages):
            if not self._may_overtake:
                return messages
            first = messages[0].metadata.consumer_seq
            last = messages[-1].metadata.consumer_seq
            if first == self._next and last - first + 1 == len(messages):
                self.follow(last)
                return messages
            gathered = await self._gather(messages)
            if gathered is None:
                return []
            if gathered:  # otherwise all of it was acknowledged before it came again
                return gathered
        return []

    @property
    def has_more(self) -> bool:
        """Whether something has come that was not taken yet."""
        return self._consumption.buffered > 0

    def is_overdue(self) -> bool:
        """Whether the lease should have been renewed by now, had no handler kept the loop."""
        return self._renewal is not None and self._renewal.is_overdue()

    async def until_renewed(self) -> None:
        """Until that is made up for, or the lease is over."""
        if self._renewal is not None:
            await self._renewal.wait()

    def send_answers(self) -> None:
        """Send what was answered so far, without waiting for the end of the turn."""
        self._consumption.write_answers()

    def abandon(self) -> None:
        """Nothing more is wanted."""
        self._consumption.abandon()
