"""What waits in a group, and with whom: one look at it, and the rates between two. Pure.

``lag.measure`` asks the server and makes a ``GroupLag`` of what it says. Everything here is a
number of one moment; the server's own clock dates it, so that clocks of other machines do not matter.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..api.consumers import ConsumerInfo
from ..api.streams import StreamInfo
from ..api.times import parse_time
from .reach import Trouble
from .record import names
from .record.records import ElasticGroup, Layout, StaticGroup

_NS = 1_000_000_000


class Pin(NamedTuple):
    """The instance that has a consumer's messages.

    Attributes:
        client_id: the server's name for it.
        since_ns: when it was pinned, in nanoseconds since the Unix epoch: the generation its handlers see.
    """

    client_id: str
    since_ns: int


class First(NamedTuple):
    """What lies in one partition: how many messages, and when the first of them came to the stream."""

    messages: int
    time_ns: int = 0


def _warn_of(former: str, name: str) -> None:
    warnings.warn(f"{former} is deprecated: use {name}", DeprecationWarning, stacklevel=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One partition.

    Attributes:
        partition: its number.
        member: its owner by the group's record; "" if it has none.
        lag: messages not handled yet; None where that was too much to ask. In a static group whose
            members have one consumer each, messages that a handler has right now count only for the member.
        oldest_s: seconds for which the first of them has been in the stream that is consumed; None if
            nothing waits, or if it was too much to ask.
        pin: the instance that has its messages, if there is one.
    """

    partition: int
    member: str = ""
    lag: int | None = None
    oldest_s: float | None = None
    pin: Pin | None = None

    @property
    def waiting(self) -> int | None:
        """Deprecated: the name that ``lag`` had, though it counts what is unacknowledged, too."""
        _warn_of("PartitionLag.waiting", "lag")
        return self.lag


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLag:
    """One member.

    Attributes:
        member: its name.
        partitions: what it owns by the group's record.
        listed: whether it is a member; otherwise it left, and its consumer is not gone yet.
        consumers: how many consumers there are for it; none: nobody has joined under the name.
        pin: the instance that has the messages, with several consumers the one pinned last.
        instances: pull requests that wait at the server, of the consumer that has most. Each instance that
            has joined and is not busy has about one there.
        lag: messages not handled yet, those with a handler included; None where it is not known.
        unacknowledged: delivered and not acknowledged.
        redelivered: of these, delivered more than once.
        handled: messages acknowledged since the consumers were made; what was delivered twice may count
            twice.
    """

    member: str
    partitions: tuple[int, ...] = ()
    listed: bool = True
    consumers: int = 0
    pin: Pin | None = None
    instances: int = 0
    lag: int | None = None
    unacknowledged: int = 0
    redelivered: int = 0
    handled: int = 0

    @property
    def is_active(self) -> bool:
        """Whether an instance of it has the messages."""
        return self.pin is not None

    @property
    def is_live(self) -> bool:
        """Whether an instance has joined: it is pinned, or it waits."""
        return self.pin is not None or self.instances > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """One look at a group.

    Attributes:
        stream, group: which.
        kind: ``static`` or ``elastic``.
        layout: as in the group's record.
        revision: of the record that was looked at.
        at_ns: when, by the server's clock, in nanoseconds since the Unix epoch.
        partitions, members: by number, and by name.
        group_lag: messages of the group's work queue, or of a static group's partitions, not handled yet;
            None where it is not known.
        source_lag: messages of the stream that the work queue has not copied yet; 0 for a static group.
        oldest_s: seconds for which the first message has waited, of the partitions that were asked; None
            if nothing waits, or if it is not known.
        stored: the last sequence of the stream that is consumed.
        handled: messages of each consumer handled in its life, by its name and the time of its creation.
        troubles: what keeps messages from the group, where that was looked for.
    """

    stream: str
    group: str
    kind: str
    layout: Layout
    revision: int
    at_ns: int
    partitions: tuple[PartitionLag, ...]
    members: tuple[MemberLag, ...]
    group_lag: int | None
    source_lag: int
    oldest_s: float | None
    stored: int
    handled: Mapping[tuple[str, str], int]
    troubles: tuple[Trouble, ...] = ()

    @property
    def lag(self) -> int | None:
        """All that is not handled yet, here and at the source; None where it is not known."""
        return None if self.group_lag is None else self.group_lag + self.source_lag

    @property
    def waiting(self) -> int | None:
        """Deprecated: the name that ``group_lag`` had, though it counts what is unacknowledged, too."""
        _warn_of("GroupLag.waiting", "group_lag")
        return self.group_lag

    @property
    def handled_total(self) -> int:
        """Messages handled so far: of an elastic group since its creation, of a static one since the
        consumers were made."""
        if self.kind == "elastic" and self.group_lag is not None:
            return self.stored - self.group_lag
        return sum(self.handled.values())

    def member(self, name: str) -> MemberLag | None:
        """A member by its name."""
        return next((each for each in self.members if each.member == name), None)


class Rates(NamedTuple):
    """What happened between two looks.

    Attributes:
        seconds: how far apart they are.
        arrived: new messages per second, at the source where there is one.
        handled: messages handled per second.
        by_member: messages handled per second, for each member that had a consumer.
        for_member: new messages per second in the partitions of each of these members.
    """

    seconds: float
    arrived: float
    handled: float
    by_member: Mapping[str, float]
    for_member: Mapping[str, float]


def rates(before: GroupLag, after: GroupLag) -> Rates | None:
    """The rates between two looks at one group; None if they cannot be compared."""
    seconds = (after.at_ns - before.at_ns) / _NS
    if seconds <= 0 or before.lag is None or after.lag is None or after.stored < before.stored:
        return None
    by_member: dict[str, float] = {}
    for (name, created), count in after.handled.items():
        member = _member_of(after, name)
        done = max(0, count - before.handled.get((name, created), 0))
        by_member[member] = by_member.get(member, 0.0) + done / seconds
    if after.kind == "elastic":
        handled = max(0, after.handled_total - before.handled_total) / seconds
    else:
        handled = sum(by_member.values())
    arrived = max(0.0, handled + (after.lag - before.lag) / seconds)
    lags = [{each.member: each.lag or 0 for each in look.members} for look in (before, after)]
    for_member = {
        member: max(0.0, done + (lags[1].get(member, 0) - lags[0].get(member, 0)) / seconds)
        for member, done in by_member.items()
    }
    return Rates(seconds, arrived, handled, by_member, for_member)


def _member_of(look: GroupLag, consumer: str) -> str:
    """Whose consumer it is, by the look's record."""
    if look.layout == "per_partition":
        number = int(consumer.rpartition("=")[2])
        return look.partitions[number].member
    return consumer if look.kind == "elastic" else consumer.removeprefix(f"{look.group}-")


# Making a look of what the server says


def assemble(
    group: StaticGroup | ElasticGroup,
    stream: StreamInfo,
    consumers: Mapping[str, ConsumerInfo],
    firsts: Mapping[int, First],
    source_lag: int = 0,
) -> GroupLag:
    """Put together what was read.

    Args:
        stream: the one that is consumed: a static group's own, an elastic group's work queue.
        consumers: the group's, by name.
        firsts: what was found in partitions that were asked.
    """
    at_ns = parse_time(stream.ts)
    owners = {n: name for name, numbers in group.assignment().items() for n in numbers}
    elastic = isinstance(group, ElasticGroup)
    of_partition = {n: consumers.get(consumer_of(group, n, owner)) for n, owner in owners.items()}
    alone = {name for name, numbers in group.assignment().items() if len(numbers) == 1}
    partitions = tuple(
        _partition(
            number,
            owners.get(number, ""),
            of_partition.get(number),
            firsts.get(number),
            whole=group.layout == "per_partition" or owners.get(number, "") in alone,
            at_ns=at_ns,
        )
        for number in range(group.max_members)
    )
    members = tuple(_members(group, consumers, partitions))
    counted = [each.lag for each in members if each.listed]
    unowned = [each.lag for each in partitions if not each.member]
    group_lag = stream.state.messages if elastic else _sum([*counted, *unowned])
    ages = [each.oldest_s for each in partitions if each.oldest_s is not None]
    oldest_s = max(ages, default=None)
    if elastic and group_lag:  # every message of a work queue is to be handled
        oldest_s = _age(at_ns, parse_time(stream.state.first_ts))
    return GroupLag(
        stream=group.stream,
        group=group.name,
        kind="elastic" if elastic else "static",
        layout=group.layout,
        revision=group.revision,
        at_ns=at_ns,
        partitions=partitions,
        members=members,
        group_lag=group_lag,
        source_lag=source_lag,
        oldest_s=oldest_s,
        stored=stream.state.last_seq,
        handled={(each.name, each.created): _handled(each) for each in consumers.values()},
    )


def consumer_of(group: StaticGroup | ElasticGroup, partition: int, member: str) -> str:
    """The name of the consumer through which a member reads a partition."""
    elastic = isinstance(group, ElasticGroup)
    if group.layout == "per_partition":
        if elastic:
            return names.partition_consumer(partition)
        return names.static_partition_consumer(group.name, partition)
    return names.elastic_consumer(member) if elastic else names.static_consumer(group.name, member)


def lag_of(consumer: ConsumerInfo) -> int:
    """What a consumer has not seen acknowledged."""
    return consumer.num_pending + consumer.num_ack_pending


def pin_of(consumer: ConsumerInfo) -> Pin | None:
    """Who is pinned."""
    for state in consumer.priority_groups:
        if state.group == names.PRIORITY_GROUP and state.pinned_client_id:
            return Pin(state.pinned_client_id, parse_time(state.pinned_ts))
    return None


def _partition(
    number: int,
    member: str,
    consumer: ConsumerInfo | None,
    first: First | None,
    *,
    whole: bool,
    at_ns: int,
) -> PartitionLag:
    """``whole``: the consumer reads this partition and no other."""
    lag = None if first is None else first.messages
    if consumer is not None and (whole or lag_of(consumer) == 0):
        lag = lag_of(consumer)
    oldest = None
    if lag and first is not None and first.time_ns:
        oldest = _age(at_ns, first.time_ns)
    return PartitionLag(
        partition=number,
        member=member,
        lag=lag,
        oldest_s=oldest,
        pin=None if consumer is None else pin_of(consumer),
    )


def _members(
    group: StaticGroup | ElasticGroup,
    consumers: Mapping[str, ConsumerInfo],
    partitions: tuple[PartitionLag, ...],
) -> Iterable[MemberLag]:
    assigned = group.assignment()
    left = dict(consumers)
    for name, numbers in assigned.items():
        wanted = {consumer_of(group, number, name) for number in numbers}
        if group.layout == "interoperable":
            wanted = {consumer_of(group, 0, name)}
        found = [left.pop(each) for each in sorted(wanted) if each in left]
        lag: int | None
        if len(found) == len(wanted):
            lag = sum(map(lag_of, found))
        else:
            lag = _sum(partitions[number].lag for number in numbers)
        yield _member(name, numbers, found, lag)
    if isinstance(group, ElasticGroup) and group.layout == "interoperable":
        for name, consumer in sorted(left.items()):
            yield _member(name, (), [consumer], lag_of(consumer), listed=False)


def _member(
    name: str,
    numbers: tuple[int, ...],
    consumers: list[ConsumerInfo],
    lag: int | None,
    *,
    listed: bool = True,
) -> MemberLag:
    pins = [pin for pin in map(pin_of, consumers) if pin is not None]
    return MemberLag(
        member=name,
        partitions=numbers,
        listed=listed,
        consumers=len(consumers),
        pin=max(pins, key=lambda pin: pin.since_ns, default=None),
        instances=max((each.num_waiting for each in consumers), default=0),
        lag=lag,
        unacknowledged=sum(each.num_ack_pending for each in consumers),
        redelivered=sum(each.num_redelivered for each in consumers),
        handled=sum(map(_handled, consumers)),
    )


def _handled(consumer: ConsumerInfo) -> int:
    return max(0, consumer.delivered.consumer_seq - consumer.num_ack_pending)


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum, if all are known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _age(at_ns: int, time_ns: int) -> float:
    return max(0.0, (at_ns - time_ns) / _NS)
