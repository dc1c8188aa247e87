"""What a new owner must wait for before it begins: what the one before has not answered. Pure.

A consumer that lets several messages be under way gives its new pinned client what comes next, while what
the former one had is delivered again only when its time is over. To keep the order of each key, the new owner
holds back what it gets until nothing is under way to anybody else, then goes on in the stream's order.

The former owner may acknowledge what it was handling after that was delivered again, even much later, if its
process stood still. What is acknowledged by the time the new owner begins is not handled again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from ....api.acks import AckTokens
from ....api.consumers import ConsumerInfo


class Delivered(Protocol):
    """A message, as far as it matters here."""

    @property
    def metadata(self) -> AckTokens: ...


M = TypeVar("M", bound=Delivered)


class Takeover(Generic[M]):
    """The messages that came since the pin is ours; none of them is begun before ``is_complete``."""

    __slots__ = ("_by_sequence",)

    def __init__(self, messages: Iterable[M] = ()) -> None:
        self._by_sequence: dict[int, M] = {}
        self.add_all(messages)

    def add_all(self, messages: Iterable[M]) -> None:
        """Messages came; of one that came twice the later delivery counts."""
        for message in messages:
            sequence = message.metadata.stream_seq
            there = self._by_sequence.get(sequence)
            if there is None or there.metadata.consumer_seq < message.metadata.consumer_seq:
                self._by_sequence[sequence] = message

    def is_complete(self, info: ConsumerInfo, held: Iterable[M] = ()) -> bool:
        """Whether everything that waits for its ack, according to ``info``, was delivered to us.

        Of what came before this, ``held`` is not answered yet. A former owner may still acknowledge what was
        delivered again to us, which then must not stand for what was not. So what was delivered once is
        counted by itself: nobody else can acknowledge that.
        """
        delivered, floor = info.delivered.consumer_seq, info.ack_floor.stream_seq
        first: set[int] = set()
        again: set[int] = set()
        for message in (*self._by_sequence.values(), *held):
            metadata = message.metadata
            if metadata.consumer_seq <= delivered and metadata.stream_seq > floor:
                (first if metadata.delivered == 1 else again).add(metadata.stream_seq)
        waiting_again = min(info.num_redelivered, info.num_ack_pending)
        return waiting_again <= len(again) and info.num_ack_pending - waiting_again <= len(first)

    def has_no_former(self, info: ConsumerInfo) -> bool:
        """Whether nothing of a former owner's waits for its ack, though not all may be here yet that was
        delivered to us, and none of it is answered: so much was delivered since our first message."""
        if info.num_redelivered or not self._by_sequence:
            return False
        first = min(message.metadata.consumer_seq for message in self._by_sequence.values())
        return info.num_ack_pending <= info.delivered.consumer_seq - first + 1

    def __len__(self) -> int:
        return len(self._by_sequence)

    def came_again(self) -> int:
        """How many of them had been delivered before."""
        return sum(message.metadata.delivered > 1 for message in self._by_sequence.values())

    def last_delivery(self) -> int:
        """The highest number that the consumer gave to a delivery of them."""
        return max(message.metadata.consumer_seq for message in self._by_sequence.values())

    def in_order(self, floor: int = 0) -> list[M]:
        """Those above ``floor``, up to which all is acknowledged, in the stream's order."""
        return [message for number, message in sorted(self._by_sequence.items()) if number > floor]
