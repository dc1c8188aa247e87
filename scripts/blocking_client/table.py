"""What is special: which classes there are, and what of them is more than handing a call over.

Without a word here, a coroutine method is run on the loop; a plain method is called there; an asynchronous
iterator is taken item by item; a property and an attribute are read. Results of the classes in ``MODULES``
and ``MESSAGES`` are wrapped.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["HIDDEN", "MESSAGES", "MODULES", "ORDINARY", "RETURNED", "SPECIAL", "Special"]

MODULES = {
    "batch": ("AtomicBatch",),
    "watch": ("Watch",),
    "keyvalue": ("KeyValue",),
    "objectstore": ("ObjectReader", "ObjectStore"),
    "buckets": ("Buckets",),
    "publisher": ("Publisher",),
    "publishing": ("Publishing",),
    "subscription": ("Subscription",),
    "push": ("PushSubscription",),
    "consume": ("Consumption",),
    "consumer": ("Consumer",),
    "ordered": ("OrderedConsumption", "OrderedConsumer"),
    "stream": ("Stream",),
    "jetstream": ("JetStream",),
    "connection": ("connect", "Connection"),
}
"""Modules of ``headrace.client.blocking`` and what is in them. A module uses those before it."""

MESSAGES = ("Message", "JetStreamMessage", "Batch")
"""Written by hand, with a method ``_of`` that wraps."""

RETURNED = {"Connecting": "Connection", "AsyncIterator": "Iterator"}
"""Types of results and arguments that have another name without ``async``."""

HIDDEN = frozenset(
    {"start", "end", "connection_lost", "connection_restored", "connection_closed", "of"}
)
"""Public methods that are there for the client's own classes."""


@dataclass(frozen=True)
class Special:
    """What is special about a class.

    Attributes:
        part: an attribute and the hand-written class that it has an instance of.
        by_part: what is done by the part. Its methods have the same arguments, without defaults.
        by_function: what a hand-written function does, which is given loop thread, asyncio object, arguments.
        direct: plain methods that may be called on any thread, as they touch nothing of the loop's.
        narrowed: methods that return another type than those of the base.
    """

    part: tuple[str, str] = ("", "")
    by_part: frozenset[str] = frozenset()
    by_function: dict[str, str] = field(default_factory=dict)
    direct: frozenset[str] = frozenset()
    narrowed: frozenset[str] = frozenset()


_ITERATION = frozenset({"__aiter__", "__anext__"})
_TAKING = _ITERATION | {"next", "next_batch"}

ORDINARY = Special()

SPECIAL = {
    "AtomicBatch": Special(direct=frozenset({"add", "discard"})),
    "connect": Special(by_function={"connect": "open_on"}),
    "Connection": Special(
        by_function={
            "stats": "stats_of",
            "events": "events_until_closed",
            "drain": "drain_with_thread",
            "close": "close_with_thread",
        },
        direct=frozenset({"jetstream"}),
    ),
    "Consumer": Special(
        by_function={"ack_all": "ack_all"}, direct=frozenset({"on_pinned", "on_unpinned"})
    ),
    "Consumption": Special(
        part=("_reading", "ConsumptionReading"),
        by_part=_ITERATION | {"buffered", "batches", "next_batch", "wait", "stop", "drain"},
    ),
    "JetStream": Special(direct=frozenset({"publisher"})),
    "ObjectStore": Special(direct=frozenset({"open"})),
    "OrderedConsumption": Special(
        part=("_reading", "OrderedReading"), by_part=_ITERATION | {"next_batch"}
    ),
    "Publisher": Special(
        part=("_sending", "Sending"),
        by_part=frozenset({"sent", "in_flight", "send", "send_many", "flush", "close"}),
    ),
    "PushSubscription": Special(
        part=("_reading", "SubscriptionReading[JetStreamMessage]"),
        by_part=_TAKING,
        narrowed=_TAKING | {"_reading"},
    ),
    "Stream": Special(by_function={"scan": "scan_by_lists"}),
    "Subscription": Special(
        part=("_reading", "SubscriptionReading[Message]"),
        by_part=_TAKING | {"pending_messages", "drain"},
    ),
    "Watch": Special(part=("_reading", "WatchReading[T]"), by_part=_ITERATION | {"initial"}),
}
