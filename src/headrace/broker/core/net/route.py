"""Who receives what is published on one subject."""

from __future__ import annotations

from itertools import chain
from typing import Final

from ..ports.bus import Sink
from .broadcast import PART_RECEIVERS, parts_of
from .subscription import GuardedSubscription, Subscription

RECEIVERS_PER_UNIT: Final = 2


class Route:
    """The receivers of one subject: plain subscriptions, queue groups by member list, sinks."""

    __slots__ = (
        "_takes_runs",
        "groups",
        "guarded",
        "only_sink",
        "parts",
        "plain",
        "sinks",
        "weight",
    )

    def __init__(
        self,
        plain: tuple[Subscription, ...] = (),
        groups: tuple[tuple[Subscription, ...], ...] = (),
        sinks: tuple[Sink, ...] = (),
        sinks_weight: int = 0,
    ) -> None:
        self.plain = plain
        self.groups = groups
        self.sinks = sinks
        self.guarded = any(  # permissions are to be asked about each message
            isinstance(member, GuardedSubscription)
            for members in (plain, *groups)
            for member in members
        )
        self.weight = 1 + (len(plain) + len(groups)) // RECEIVERS_PER_UNIT + sinks_weight
        """What a message on it counts in a turn; see ``budget``."""
        self.parts = parts_of(self) if len(plain) > 2 * PART_RECEIVERS else ()
        """How it is divided, if it has too many receivers for one go."""
        self._takes_runs: bool | None = None
        # The commonest route by far, a stream's, is told apart with one look.
        self.only_sink = sinks[0] if len(sinks) == 1 and not plain and not groups else None

    @classmethod
    def to_one(cls, subscription: Subscription) -> Route:
        """Make the route to one plain subscription, of which there may be a hundred thousand."""
        route = cls.__new__(cls)
        route.plain, route.groups, route.sinks, route.parts = (subscription,), (), (), ()
        route.guarded = isinstance(subscription, GuardedSubscription)
        route.weight, route.only_sink, route._takes_runs = 1, None, None
        return route

    @property
    def takes_runs(self) -> bool:
        """Whether neighbouring messages may be delivered as a block to each receiver; see ``runs``."""
        if self._takes_runs is None:  # most routes are never asked
            self._takes_runs = not (self.sinks or self.guarded or self.parts) and _are_apart(
                self.plain, self.groups
            )
        return self._takes_runs


def _are_apart(
    plain: tuple[Subscription, ...], groups: tuple[tuple[Subscription, ...], ...]
) -> bool:
    """Whether there are receivers, each with an output of its own: the order in one is that of messages."""
    receivers = [*plain, *chain.from_iterable(groups)]
    return 0 < len(receivers) == len({id(receiver.output) for receiver in receivers})


NOBODY: Final = Route()


def sole_receiver(route: Route) -> Subscription | None:
    """The one subscription of a route that goes to nobody else, if its messages are not counted."""
    if len(route.plain) != 1 or route.groups or route.sinks:
        return None
    subscription = route.plain[0]
    return subscription if subscription.messages_max < 0 else None
