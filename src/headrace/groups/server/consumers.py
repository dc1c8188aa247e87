"""The consumers of a group's members: their names, who pulls from them, and how they are removed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ...api.consumers import ConsumerInfo
from ...api.errors import Errors
from ...api.streams import StreamInfo
from ...client import JetStream
from ...errors import JetStreamApiError
from ..errors import GroupConfigurationError, MemberNotActiveError, NotAMemberError
from ..record.names import (
    PRIORITY_GROUP,
    check_stream_name,
    elastic_consumer,
    elastic_stream,
    partition_consumer,
    static_consumer,
    static_partition_consumer,
)
from ..record.records import ElasticGroup, StaticGroup
from .asking import of_each

_ASKED_AT_ONCE: Final = 64
_MISSING: Final = frozenset({Errors.CONSUMER_NOT_FOUND.err_code, Errors.STREAM_NOT_FOUND.err_code})


def stream_of(group: StaticGroup | ElasticGroup) -> str:
    """The stream that the members read."""
    if isinstance(group, StaticGroup):
        return group.stream
    return elastic_stream(group.stream, group.name)


def consumers_of(group: StaticGroup | ElasticGroup) -> dict[str, tuple[str, ...]]:
    """The consumers that each member reads."""
    static = isinstance(group, StaticGroup)
    found: dict[str, tuple[str, ...]] = {}
    for member, partitions in group.assignment().items():
        if group.layout == "interoperable":
            name = static_consumer(group.name, member) if static else elastic_consumer(member)
            found[member] = (name,)
        elif static:
            found[member] = tuple(static_partition_consumer(group.name, p) for p in partitions)
        else:
            found[member] = tuple(partition_consumer(p) for p in partitions)
    return found


async def origin_of(js: JetStream, stream: str, word: str) -> StreamInfo:
    """The stream that a group is made for; ``word``: static or elastic. Raises GroupConfigurationError."""
    check_stream_name(stream)
    try:
        found = await js.stream(stream)
        return found.cached_info or await found.info()
    except JetStreamApiError as error:
        if error.err_code != Errors.STREAM_NOT_FOUND.err_code:
            raise
        raise GroupConfigurationError(
            f"the {word} consumer group's stream does not exist: {error.description} "
            f"(stream {stream!r}); create it first"
        ) from error


def is_groups_own(info: ConsumerInfo) -> bool:
    """Whether a consumer is made as those of members are: it pins one client of their priority group."""
    config = info.config
    return config.priority_policy == "pinned_client" and PRIORITY_GROUP in config.priority_groups


async def existing(js: JetStream, stream: str, names: Collection[str]) -> list[ConsumerInfo]:
    """What the server says of those of ``names`` that are there; none where the stream is missing.

    In a cluster the listing of names is complete, while that of consumers leaves out whose leader is away.
    """
    wanted = frozenset(names)
    try:
        there = [name async for name in js.consumer_names(stream) if name in wanted]
    except JetStreamApiError as error:
        if error.err_code not in _MISSING:
            raise
        return []
    found = await of_each(lambda name: _info(js, stream, name), there, _ASKED_AT_ONCE)
    return [info for info in found if info is not None]


async def _info(js: JetStream, stream: str, name: str) -> ConsumerInfo | None:
    """What the server says of a consumer; None if it is gone."""
    try:
        return (await js.consumer(stream, name)).cached_info
    except JetStreamApiError as error:
        if error.err_code not in _MISSING:
            raise
        return None


async def active(js: JetStream, stream: str, consumers: Mapping[str, Sequence[str]]) -> list[str]:
    """The members from one of whose consumers somebody pulls, sorted."""
    names = {name for each in consumers.values() for name in each}
    waiting = {info.name for info in await existing(js, stream, names) if info.num_waiting}
    return sorted(member for member, each in consumers.items() if not waiting.isdisjoint(each))


async def release(js: JetStream, group: StaticGroup | ElasticGroup, member: str) -> None:
    """Take the pin from the instance that has it, so that the next one that pulls gets it.

    Raises NotAMemberError, MemberNotActiveError.
    """
    kind = "static" if isinstance(group, StaticGroup) else "elastic"
    what = f"{kind} consumer group {group.name!r} of stream {group.stream!r}"
    names = consumers_of(group).get(member)
    if names is None:
        raise NotAMemberError(
            f"the member name is not in the current {kind} consumer group membership: {member!r}; "
            f"members of {what}: {', '.join(sorted(consumers_of(group))) or 'none'}"
        )
    found = await existing(js, stream_of(group), names)
    pinned = [info for info in found if any(s.pinned_client_id for s in info.priority_groups)]
    for info in pinned:
        consumer = await js.consumer(info.stream_name, info.name)
        await consumer.unpin(PRIORITY_GROUP)
    if not pinned:
        raise MemberNotActiveError(
            f"no instance of member {member!r} of {what} is active, so none can step down"
        )


async def remove(js: JetStream, stream: str, names: Collection[str]) -> None:
    """Delete those of ``names`` that are consumers of a group; others of such a name are left alone."""
    found = await existing(js, stream, names)
    await delete(js, stream, [info.name for info in found if is_groups_own(info)])


async def delete(js: JetStream, stream: str, names: Sequence[str]) -> None:
    """Delete consumers, all at once; who is not there has been deleted by a member."""

    async def one(name: str) -> None:
        try:
            await js.delete_consumer(stream, name)
        except JetStreamApiError as error:
            if error.err_code not in _MISSING:
                raise

    await of_each(one, names, _ASKED_AT_ONCE)
