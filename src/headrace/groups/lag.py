"""Asking the server how far a group has come, with few calls whatever the number of partitions.

One look costs the stream's state, the group's consumers (in pages of 256, or one by one where the stream has
many others), and for each partition in which something waits the stream's first message of it, which also
tells how many there are. The last is done for 64 partitions at most; beyond that the work queue is asked once
for its counts by subject, if it has few subjects, and otherwise only members are counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ..api.errors import Errors
from ..errors import JetStreamApiError, NoRespondersError
from ..limits import INFOS_PER_PAGE
from .errors import GroupNotFoundError
from .progress import (
    First,
    GroupLag,
    MemberLag,
    PartitionLag,
    Pin,
    Rates,
    assemble,
    consumer_of,
    lag_of,
    rates,
)
from .reach import Trouble
from .record import names
from .record.records import ElasticGroup, StaticGroup, first_of
from .server.asking import of_each
from .server.consumers import stream_of
from .trouble import troubles as _troubles

if TYPE_CHECKING:
    from ..api.consumers import ConsumerInfo
    from ..api.streams import StreamInfo
    from ..client import JetStream, Stream

__all__ = ["GroupLag", "MemberLag", "PartitionLag", "Pin", "Rates", "Trouble", "measure", "rates"]

FIRSTS_MAX: Final = 64
"""Partitions (times filters) whose first message is read in one look."""

SUBJECTS_MAX: Final = 10_000
"""Subjects that a work queue may have to be asked for its counts by subject."""

AT_ONCE: Final = 16
"""Calls under way at a time."""

_INFOS_FOR_A_PAGE: Final = 16  # a page of 256 consumers costs about as much as so many single ones
_GONE: Final = frozenset({Errors.CONSUMER_NOT_FOUND.err_code})


async def measure(
    js: JetStream, group: StaticGroup | ElasticGroup, *, troubles: bool = True
) -> GroupLag:
    """Look at a group: what waits, for whom, who is active, and what keeps messages from it.

    Args:
        group: its record, as ``elastic.get`` or ``static.get`` returns it.
        troubles: whether to look for what keeps messages away, which is not counted as lag: a stream whose
            subjects were renamed, another transform. It costs two to five calls more.

    Raises:
        GroupNotFoundError: the stream that the group consumes is gone.
        JetStreamApiError, RequestTimeoutError, DisconnectedError, NoRespondersError: the server did not say.
    """
    name = stream_of(group)
    try:
        stream = await js.stream(name)
    except JetStreamApiError as error:
        if error.err_code != Errors.STREAM_NOT_FOUND.err_code:
            raise
        raise GroupNotFoundError(
            f"stream {name!r} of group {group.name!r} does not exist: {error.description}"
        ) from error
    info = stream.cached_info
    assert info is not None
    consumers = await _consumers(js, info, group)
    firsts = await _firsts(stream, info, group, consumers)
    source_lag = await _source_lag(js, info, group) if isinstance(group, ElasticGroup) else 0
    look = assemble(group, info, consumers, firsts, source_lag)
    return dataclasses.replace(look, troubles=await _troubles(js, group)) if troubles else look


# The consumers


async def _consumers(
    js: JetStream, info: StreamInfo, group: StaticGroup | ElasticGroup
) -> dict[str, ConsumerInfo]:
    wanted = {
        consumer_of(group, number, member)
        for member, numbers in group.assignment().items()
        for number in numbers or ((0,) if group.layout == "interoperable" else ())
    }
    stream, there = info.config.name, info.state.consumer_count
    if not there:
        return {}
    pages = -(-there // INFOS_PER_PAGE)
    if isinstance(group, ElasticGroup) or len(wanted) > pages * _INFOS_FOR_A_PAGE:
        found = [each async for each in js.consumers(stream)]
        everyone = isinstance(group, ElasticGroup) and group.layout == "interoperable"
        return {each.name: each for each in found if everyone or each.name in wanted}

    async def ask(name: str) -> ConsumerInfo | None:
        try:
            return (await js.consumer(stream, name)).cached_info
        except JetStreamApiError as error:
            if error.err_code not in _GONE:
                raise
            return None

    infos = await of_each(ask, sorted(wanted), AT_ONCE)
    return {each.name: each for each in infos if each is not None}


# The partitions


async def _firsts(
    stream: Stream,
    info: StreamInfo,
    group: StaticGroup | ElasticGroup,
    consumers: Mapping[str, ConsumerInfo],
) -> dict[int, First]:
    if not info.state.messages:
        return {number: First(0) for number in range(group.max_members)}
    wanted = dict(_begins(group, consumers))
    subjects = {number: set(group.filter_subjects((number,))) for number in wanted}
    if sum(map(len, subjects.values())) > FIRSTS_MAX:
        if not isinstance(group, ElasticGroup) or info.state.num_subjects > SUBJECTS_MAX:
            return {}
        return await _counted(stream, group)
    if not info.config.allow_direct:
        return {}

    async def ask(number: int) -> First:
        found = [await _first(stream, each, wanted[number]) for each in subjects[number]]
        times = [each.time_ns for each in found if each.time_ns]
        return First(sum(each.messages for each in found), min(times, default=0))

    numbers = sorted(wanted)
    try:
        return dict(zip(numbers, await of_each(ask, numbers, AT_ONCE), strict=True))
    except NoRespondersError:
        return {}  # the configuration was changed meanwhile


def _begins(
    group: StaticGroup | ElasticGroup, consumers: Mapping[str, ConsumerInfo]
) -> Iterator[tuple[int, int]]:
    """The partitions in which something may wait, and the sequence behind which it lies."""
    owners = {n: name for name, numbers in group.assignment().items() for n in numbers}
    shared = {name for name, numbers in group.assignment().items() if len(numbers) > 1}
    for number in range(group.max_members):
        owner = owners.get(number, "")
        consumer = consumers.get(consumer_of(group, number, owner))
        if consumer is None or isinstance(group, ElasticGroup):
            if consumer is None or lag_of(consumer):
                yield number, max(1, first_of(group))
        elif lag_of(consumer):
            shares = group.layout == "interoperable" and owner in shared
            floor = consumer.delivered if shares else consumer.ack_floor
            yield number, floor.stream_seq + 1


async def _first(stream: Stream, subject: str, begin: int) -> First:
    """The first message from ``begin`` on, and how many there are."""
    batch = await stream.get_batch(1, subject=subject, sequence=begin)
    if not batch.messages:
        return First(0)
    return First(1 + batch.pending, batch.messages[0].timestamp_ns)


async def _counted(stream: Stream, group: ElasticGroup) -> dict[int, First]:
    """The messages of all partitions, by one call; not how old they are."""
    counts = dict.fromkeys(range(group.max_members), 0)
    info = await stream.info(subjects=">")
    for subject, messages in info.state.subjects.items():
        try:
            number, _ = names.split_subject(subject)
        except ValueError:
            continue  # in no partition
        if number in counts:
            counts[number] += messages
    return {number: First(messages) for number, messages in counts.items()}


# The source


async def _source_lag(js: JetStream, info: StreamInfo, group: ElasticGroup) -> int:
    """What the stream still holds for a work queue.

    The server's own number is old while a full queue keeps the copy waiting. Then the stream itself is asked,
    from the position that the copy has reached, where the server tells it (nats-server from 2.15 on).
    """
    said = max((each.lag for each in info.sources), default=0)
    if not said and not is_full(info):
        return 0
    reached = max((each.seq for each in info.sources), default=0)
    filters = [each.filter for each in group.partitioning_filters or ()] or [">"]
    if not reached or len(filters) > AT_ONCE:
        return said
    try:
        origin = await js.stream(group.stream)
        if origin.cached_info is None or not origin.cached_info.config.allow_direct:
            return said
        found = await of_each(lambda each: _first(origin, each, reached + 1), filters, AT_ONCE)
    except NoRespondersError:
        return said
    except JetStreamApiError as error:
        if error.err_code != Errors.STREAM_NOT_FOUND.err_code:
            raise
        return said
    return sum(each.messages for each in found)


def is_full(info: StreamInfo) -> bool:
    """Whether a work queue has, or about has, no room for another message."""
    config, state = info.config, info.state
    return 0 < config.max_msgs <= state.messages or 0 < config.max_bytes <= 2 * state.bytes
