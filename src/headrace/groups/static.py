"""Static groups: the members are fixed when the group is created, and the stream numbers the subjects.

Nothing but a record is stored; the members create their consumers on the stream when they join.
"""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Sequence
from typing import Unpack

from ..api.consumers import ConsumerConfig
from ..client import JetStream
from . import trouble
from .errors import GroupExistsError
from .member import Membership
from .member.config import JoinOptions
from .member.shared import Handler
from .message import GroupMessage
from .record.assignment import MemberMapping
from .record.names import check_group_name
from .record.records import Layout, StaticGroup
from .record.validation import mappings_given, texts_given
from .server import consumers
from .server.bucket import FoundGroups, Records
from .start import Start, check_start, first_sequence

__all__ = ["active_members", "create", "delete", "get", "is_active", "join", "list", "step_down"]


async def create(
    js: JetStream,
    stream: str,
    group: str,
    max_members: int,
    *,
    filters: Sequence[str] = (),
    members: Sequence[str] = (),
    member_mappings: Sequence[MemberMapping] = (),
    layout: Layout = "interoperable",
    start: Start = "all",
) -> StaticGroup:
    """Create a static group, or return the one there is if it is the same.

    The stream must put the partition before each subject, for instance with the ``subject_transform``
    ``orders.*`` to ``{{partition(4,1)}}.orders.{{wildcard(1)}}`` for four partitions.

    Args:
        max_members: the number of partitions, and of members that can have work.
        filters: what the group takes of the stream, as patterns without the partition; none: everything.
        members: names among which the partitions are distributed.
        member_mappings: the distribution, given by hand, instead of ``members``.
        layout: ``"interoperable"``: one consumer for each member, as other implementations have it;
            ``"per_partition"``: one for each partition, for groups whose members are all ours.
        start: with which message a new group begins: ``"all"``, the first there is; ``"now"``, the next one;
            a sequence; a time with its zone; ``AfterConsumer(name)`` or ``AfterGroup(name)``, where that one
            of the same stream is. The record has it as a sequence, and members of other implementations
            refuse to join then, because they would begin with the first. Of a group that exists it changes
            nothing.

    After a failure call it again: what is there already is taken.

    Raises:
        GroupConfigurationError: a setting is wrong, the stream does not exist, or the group could surely get
            nothing of it, or not everything.
        GroupExistsError: the group exists with other settings, or it would share a consumer.
    """
    wanted = StaticGroup(
        stream,
        check_group_name(group),
        max_members,
        texts_given("filters", filters),
        texts_given("members", members),
        mappings_given(member_mappings),
        layout,
    )
    wanted.validate()
    check_start(start)
    origin = await consumers.origin_of(js, stream, "static")
    records = Records(js, StaticGroup)
    await records.make(origin.config.num_replicas)

    async def prepare() -> StaticGroup:
        if (buried := await records.buried(stream, group)) is not None:
            await _remove(js, records, buried)
        await trouble.check_new(js, wanted, origin)
        _check_neighbours(wanted, await records.list(stream))
        await _check_consumers(js, records, wanted)
        first = await first_sequence(js, origin, start)
        return dataclasses.replace(wanted, start_sequence=first)

    stored, created = await records.create_or_get(wanted, prepare)
    try:  # again: of two groups that were created at the same time neither has seen the other
        _check_neighbours(stored, await records.list(stream))
    except GroupExistsError:
        if created:
            await records.delete(stream, group, revision=stored.revision)
        raise
    return stored


async def get(js: JetStream, stream: str, group: str) -> StaticGroup:
    """The group as it is stored. Raises GroupNotFoundError, GroupRecordError."""
    return await Records(js, StaticGroup).get(stream, group)


async def list(js: JetStream, stream: str) -> builtins.list[StaticGroup]:  # noqa: A001
    """The static groups of a stream, by name. Raises GroupRecordError if a record cannot be read."""
    return (await Records(js, StaticGroup).list(stream)).readable()


async def delete(js: JetStream, stream: str, group: str) -> None:
    """Delete a group and the consumers of its members, who end.

    After a failure call it again: the second call completes the first. Consumers that another group names,
    too, and those that are not made as a group's are, are left alone.

    Raises:
        GroupNotFoundError: there is no such group.
        GroupRecordError: the record cannot be read, so nobody knows what belongs to the group.
    """
    records = Records(js, StaticGroup)
    record = await records.bury(stream, group)
    await _remove(js, records, record)


async def active_members(js: JetStream, stream: str, group: str) -> builtins.list[str]:
    """The members of whom an instance pulls now, sorted. Raises GroupNotFoundError, GroupRecordError."""
    record = await get(js, stream, group)
    return await consumers.active(js, consumers.stream_of(record), consumers.consumers_of(record))


async def is_active(js: JetStream, stream: str, group: str, member: str) -> bool:
    """Whether an instance of this member pulls now; not so of a name that the group does not list.

    Raises GroupNotFoundError, GroupRecordError.
    """
    record = await get(js, stream, group)
    names = consumers.consumers_of(record).get(member, ())
    return bool(await consumers.active(js, consumers.stream_of(record), {member: names}))


async def step_down(js: JetStream, stream: str, group: str, member: str) -> None:
    """Let the active instance of a member stand by, and another one take over.

    Raises:
        GroupNotFoundError, GroupRecordError: the group cannot be read.
        NotAMemberError: the group has no such member.
        MemberNotActiveError: no instance of it is active.
    """
    await consumers.release(js, await get(js, stream, group), member)


def join(
    js: JetStream,
    stream: str,
    group: str,
    member: str,
    handler: Handler | None = None,
    config: ConsumerConfig | None = None,
    **options: Unpack[JoinOptions[GroupMessage]],
) -> Membership[StaticGroup]:
    """One instance of a member at work: ``async with static.join(…) as membership``.

    Several instances may join as one member; one of them is active, the others stand by. Nothing is asked
    of the server until it is entered, which raises NotAMemberError for a name that the group does not list.
    See ``Membership`` for what it does, its arguments and its errors.
    """
    return Membership(
        js,
        StaticGroup,
        stream,
        group,
        member,
        handler,
        config,
        **options,
    )


def _names(group: StaticGroup) -> set[str]:
    return {name for each in consumers.consumers_of(group).values() for name in each}


def _check_neighbours(mine: StaticGroup, found: FoundGroups[StaticGroup]) -> None:
    """Refuse to share a consumer with a group that was there before, as 'a' with the member 'b-c' does
    with 'a-b' with the member 'c'."""
    names = _names(mine)
    for other in found.groups:
        if other.name == mine.name or 0 < mine.revision < other.revision:
            continue
        if shared := sorted(names & _names(other)):
            raise GroupExistsError(
                f"static group {mine.name!r} of stream {mine.stream!r} would share the consumer "
                f"{shared[0]!r} with the group {other.name!r}; take another name"
            )
    for name, error in found.damaged.items():
        if name != mine.name and any(each.startswith((f"{name}-", f"{name}=")) for each in names):
            raise GroupExistsError(
                f"static group {mine.name!r} of stream {mine.stream!r} could share a consumer with the "
                f"group {name!r}, whose record cannot be read: {error}"
            ) from error


async def _check_consumers(js: JetStream, records: Records[StaticGroup], mine: StaticGroup) -> None:
    """Refuse to take over a consumer that somebody else has made: it has a position of its own."""
    there = await consumers.existing(js, mine.stream, _names(mine))
    if there and await records.same_as(mine) is None:
        raise GroupExistsError(
            f"stream {mine.stream!r} has a consumer {there[0].name!r} already, which a member of static "
            f"group {mine.name!r} would need; delete it first, or take another name"
        )


async def _remove(js: JetStream, records: Records[StaticGroup], record: StaticGroup) -> None:
    """Delete what belongs to a group whose record is buried."""
    found = await records.list(record.stream)
    others = (_names(each) for each in found.groups)
    await consumers.remove(js, record.stream, _names(record).difference(*others))
    await records.forget(record)
