"""How long the pin and what came by it are surely ours, and the time of ownership that it makes. Pure.

A server lets go of a pin once no pull with its id has come for ``priority_timeout``. Our clock knows when
we *sent* such a pull, which is before it came, and so a lease that runs from there ends in time. An answer
proves that the pull was honoured only while the lease still runs: a server that has let go meanwhile may
answer the same.

A message is ours for ``ack_wait`` from its delivery, or from when the server last heard that it is in
progress; then an admin who takes the pin from us lets another one have it. We say so of all that has come
before each pull, so that the pull's answer proves both. What came between the pull and its answer was said
nothing of, and may have been on its way for as long as since the pull before, but no longer: a server sends
that one's answer and its deliveries in their order. With such messages a lease runs from the pull before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from ...api.acks import AckTokens
from ...api.consumers import ConsumerInfo

CONFIRMED_MAX: Final = 16_384
"""More than wait anywhere to be begun."""

RENEWALS_PER_LEASE: Final = 3
"""Renewed when only a third of it is over, a lease survives an answer that takes the rest."""


class Lease:
    """The time until which the pin is ours, and what came by it, by the loop's clock.

    Args:
        seconds: the shortest of the consumer's ``priority_timeout`` and its times to acknowledge.
        since: a pull was sent at this time, and the pin was given to it or to a later one.
    """

    __slots__ = ("_asked", "_seconds", "_was_until", "until")

    def __init__(self, seconds: float, since: float) -> None:
        self._seconds = seconds
        self._asked = since
        self.until = since + seconds
        self._was_until = float("-inf")

    def holds(self, now: float) -> bool:
        """Whether the pin is surely ours."""
        return now < self.until

    def lasts(self, now: float) -> bool:
        """Whether it holds for so long that whoever renews it beside this has the time to."""
        return now < self.until - self._seconds / RENEWALS_PER_LEASE

    def answered(self, sent: float, now: float, *, came: bool) -> bool:
        """A pull with our pin's id, sent at ``sent``, was answered and not refused. False: too late, as
        the pin may have been another's in between.

        ``came``: whether there may be messages that came between the two.
        """
        if now >= self.until:
            return False
        self.seen(sent, came=came)
        return True

    def seen(self, sent: float, *, came: bool) -> None:
        """The server said that the pin is ours after it had a pull that was sent at ``sent``."""
        self.until = max(self.until, (self._asked if came else sent) + self._seconds)
        self._asked = max(self._asked, sent)

    def end(self) -> None:
        """It was taken from us, or given back."""
        self._was_until = max(self._was_until, self.until)
        self.until = float("-inf")

    def may_return(self, now: float) -> bool:
        """Whether what came by it can be sent back: its time is not over, so no server has delivered it to
        another owner for that. Then it would be taken from that one."""
        return now < max(self.until, self._was_until)

    def due_s(self, now: float) -> float:
        """Seconds until it is to be renewed: 0 once a third of it is over.

        A lease runs from a pull, which may have waited for long before it was given the pin.
        """
        return max(0.0, -self.late_s(now))

    def late_s(self, now: float) -> float:
        """For how long it has been due; below 0 until it is."""
        left_when_due = self._seconds * (1 - 1 / RENEWALS_PER_LEASE)
        return now - (self.until - left_when_due)


@dataclass(eq=False, slots=True)
class Generation:
    """One time of ownership: a consumer's pin, as long as it is ours.

    Attributes:
        number: grows with every change of owner: the server's time at which it gave the pin, in
            nanoseconds.
        partitions: those of the consumer.
        lease: until when it is surely ours.
        time: the loop's clock.
        is_copied: whether what comes of it are copies of the stream's messages, as in an elastic group.
        confirmed: the last messages whose acknowledgement was confirmed, by their sequence.
        asks: asks the server whether it is ours, while it is left: nothing is pulled then, by which we would
            hear that the consumer was deleted.
    """

    number: int
    partitions: tuple[int, ...]
    lease: Lease
    time: Callable[[], float]
    is_copied: bool = False
    confirmed: dict[int, None] = field(default_factory=dict)
    asks: Callable[[], Awaitable[bool]] | None = None

    def confirm(self, sequence: int) -> None:
        """A message is acknowledged, and that is confirmed. A delivery of it that waits here, as the server
        delivered it again meanwhile, is not to be handled."""
        confirmed = self.confirmed
        confirmed[sequence] = None
        if len(confirmed) > CONFIRMED_MAX:
            del confirmed[next(iter(confirmed))]

    @property
    def is_owned(self) -> bool:
        """Whether it is surely ours, now."""
        return self.lease.holds(self.time())


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
