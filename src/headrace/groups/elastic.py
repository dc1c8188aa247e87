"""Elastic groups: members come and go while the group works. A work queue stream numbers the subjects.

Whoever administers the group changes its record; the members watch it and follow.
"""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ..api.consumers import ConsumerConfig
from ..client import JetStream, KeyExistsError
from . import changing as under_way
from . import trouble
from .changing import OnProgress
from .errors import GroupConfigurationError, GroupError
from .member import Membership
from .member.config import JoinOptions
from .member.shared import Handler
from .message import GroupMessage
from .record.assignment import MemberMapping, PartitioningFilter
from .record.names import check_group_name
from .record.records import CLOSED_BYTES, LIMITS, ElasticGroup, Layout
from .record.validation import mappings_given, texts_given
from .server import consumers, work_queue
from .server.bucket import ATTEMPTS, Records
from .server.work_queue import Beginning
from .start import Start, beginning, check_start

if TYPE_CHECKING:
    from ..api.streams import StreamInfo

__all__ = [
    "active_members",
    "add_members",
    "change",
    "create",
    "delete",
    "delete_mappings",
    "drop_members",
    "get",
    "is_active",
    "join",
    "list",
    "set_mappings",
    "step_down",
    "undo_change",
    "update",
]


class _Creation:
    """One call of ``elastic.create``: ``check``, then ``write``.

    Args:
        wanted: the group as it is to be.
        start: with which message it begins, if it is new.
    """

    def __init__(self, js: JetStream, wanted: ElasticGroup, start: Start) -> None:
        self._js = js
        self._wanted = wanted
        self._start = start
        self._records = Records(js, ElasticGroup)
        self._beginning: Beginning | None = None

    async def check(self) -> StreamInfo:
        """The group's stream, as it is now. Nothing is made yet.

        Raises GroupConfigurationError: a setting is wrong, or the stream does not exist or does not fit.
        """
        self._wanted.validate()
        check_start(self._start)
        origin = await consumers.origin_of(self._js, self._wanted.stream, "elastic")
        work_queue.config_of(self._wanted, origin)
        return origin

    async def write(self, origin: StreamInfo) -> ElasticGroup:
        """The work queue and the record, or those there are; raises as ``elastic.create``."""

        async def prepare() -> ElasticGroup:
            return await self._prepare(origin)

        async def first() -> Beginning:
            return await self._first(origin)

        wanted, records = self._wanted, self._records
        await records.make(origin.config.num_replicas)
        stored, created = await records.create_or_get(wanted, prepare)
        try:
            await work_queue.ensure(self._js, stored, origin, first)
        except GroupError:
            if created:
                await records.delete(wanted.stream, wanted.name, revision=stored.revision)
            raise
        return stored

    async def _prepare(self, origin: StreamInfo) -> ElasticGroup:
        """What has to be there before the record: there is no group of that name."""
        js, wanted = self._js, self._wanted
        if (buried := await self._records.buried(wanted.stream, wanted.name)) is not None:
            await _remove(js, self._records, buried)
        await trouble.check_new(js, wanted, origin)
        await self._first(origin)
        await work_queue.prepare(js, wanted, origin)
        return wanted

    async def _first(self, origin: StreamInfo) -> Beginning:
        """Where it begins; asked once, as what comes meanwhile must not move it."""
        if self._beginning is None:
            self._beginning = await beginning(self._js, origin, self._start)
        return self._beginning


async def _remove(js: JetStream, records: Records[ElasticGroup], record: ElasticGroup) -> None:
    """Delete what belongs to a group whose record is buried."""
    await work_queue.remove(js, record)
    await records.forget(record)


async def create(
    js: JetStream,
    stream: str,
    group: str,
    max_members: int,
    *,
    partitioning_filters: Sequence[PartitioningFilter] | None = None,
    members: Sequence[str] = (),
    member_mappings: Sequence[MemberMapping] = (),
    max_buffered_messages: int = 0,
    max_buffered_bytes: int = 0,
    layout: Layout = "interoperable",
    start: Start = "all",
) -> ElasticGroup:
    """Create an elastic group with its work queue stream, or return the one there is if it is the same.

    One that is there is compared and not changed, nor is its work queue: ``update`` changes limits.

    Args:
        max_members: the number of partitions, and of members that can have work.
        partitioning_filters: what the group takes of the stream, and which wildcards make up the key;
            none: everything, and the whole subject is the key.
        members: names among which the partitions are distributed. They may be added later.
        member_mappings: the distribution, given by hand, instead of ``members``.
        max_buffered_messages, max_buffered_bytes: how much may lie in the work queue; when it is full,
            copying pauses. 0: no limit.
        layout: ``"interoperable"``: one consumer for each member, as other implementations have it;
            ``"per_partition"``: one for each partition, for groups whose members are all ours.
        start: with which message a new group begins: ``"all"``, the first there is; ``"now"``, the next one;
            a sequence; a time with its zone; ``AfterConsumer(name)`` or ``AfterGroup(name)``, where that one
            of the same stream is. Of a group that exists it changes nothing, and the record does not have it.

    A group that exists is the same whoever its members are, unless members are named here. After a failure
    call it again: what is there already is taken.

    Raises:
        GroupConfigurationError: a setting is wrong, the stream does not exist, or the group could surely get
            nothing of it, or not everything.
        GroupExistsError: the group exists with other settings, or its stream's name is taken.
    """
    filters = _filters_given(partitioning_filters)
    wanted = ElasticGroup(
        stream,
        check_group_name(group),
        max_members,
        filters,
        max_buffered_messages,
        max_buffered_bytes,
        texts_given("members", members),
        mappings_given(member_mappings),
        layout,
    )
    creation = _Creation(js, wanted, start)
    return await creation.write(await creation.check())


async def update(
    js: JetStream,
    stream: str,
    group: str,
    *,
    max_buffered_messages: int | None = None,
    max_buffered_bytes: int | None = None,
) -> ElasticGroup:
    """Change how much may lie in a group's work queue, there and in its record, while it works.

    Nothing is removed from the queue: where it holds more, copying pauses until it holds less. What is not
    named stays. After a failure call it again. Members of the Go implementation end when the record of
    their group changes so, and have to be started again.

    Args:
        max_buffered_messages, max_buffered_bytes: as of ``create``; 0: no limit.

    Raises:
        GroupNotFoundError, GroupRecordError: the group cannot be read.
        GroupConfigurationError: a limit is wrong, or none is named.
        GroupExistsError: the stream of that name is not the group's.
        GroupError: the server refuses, the stream is gone, or others have changed the group too often.
    """
    limits = {
        "max_buffered_messages": max_buffered_messages,
        "max_buffered_bytes": max_buffered_bytes,
    }
    changes: dict[str, Any] = {name: each for name, each in limits.items() if each is not None}
    if not changes:
        raise GroupConfigurationError(f"nothing to change; name one of {', '.join(limits)}")

    def limit(record: ElasticGroup) -> ElasticGroup:
        under_way.check_unchanging(record, "its limits are not changed by themselves")
        return dataclasses.replace(record, **changes)

    wanted = limit(await get(js, stream, group))
    wanted.validate()
    await work_queue.change(js, wanted, await consumers.origin_of(js, stream, "elastic"))
    return await _change(js, stream, group, limit)


async def change(
    js: JetStream,
    stream: str,
    group: str,
    *,
    max_members: int | None = None,
    partitioning_filters: Sequence[PartitioningFilter] | None = None,
    member_mappings: Sequence[MemberMapping] | None = None,
    max_buffered_messages: int | None = None,
    max_buffered_bytes: int | None = None,
    on_progress: OnProgress | None = None,
) -> ElasticGroup:
    """Change a group's partitions, its key or its filters while it works: nothing is handled again, nothing
    is left out, and each key stays in order.

    The work queue takes nothing more from a message of the stream on, the **boundary**. The members, whoever
    they are, handle what is in it. Once it is empty the record has the new settings, the members follow, and
    the queue goes on behind the boundary with the new numbers. So new messages wait while the queue is
    drained; it returns when all is done. What is not named stays.

    Interrupted, at whatever call, it goes on when it is called again, with the same settings or with none;
    by anybody. Until the boundary is passed ``undo_change`` takes it back.

    Members of other implementations, and of Headrace before this, drain the queue like all others and end
    when the record changes; start them again.

    Args:
        max_members, partitioning_filters: as of ``create``; no filters, ``[]``: everything.
        member_mappings: the distribution by hand for the new partitions; a group that has mappings needs it
            where ``max_members`` changes.
        max_buffered_messages, max_buffered_bytes: as of ``create``. Where nothing else is named it is what
            ``update`` does.
        on_progress: called with each new ``ChangeProgress``.

    Raises:
        GroupNotFoundError, GroupRecordError: the group cannot be read.
        GroupConfigurationError: a setting is wrong, or none is named and no change is under way.
        GroupExistsError: the stream of that name is not the group's.
        GroupError: another change is under way; the work queue has replicas, or the server does not say how
            far it has copied; it is gone; others have changed the group too often.
    """
    named: dict[str, Any] = {
        "max_members": max_members,
        "partitioning_filters": _filters_given(partitioning_filters),
        "member_mappings": None if member_mappings is None else mappings_given(member_mappings),
        "max_buffered_messages": max_buffered_messages,
        "max_buffered_bytes": max_buffered_bytes,
    }
    named = {name: each for name, each in named.items() if each is not None}

    def alter(record: ElasticGroup) -> ElasticGroup:
        most = named.get("max_members", record.max_members)
        is_dealt = not record.member_mappings or "member_mappings" in named
        if not is_dealt and most != record.max_members:
            raise GroupConfigurationError(
                f"elastic group {group!r} of stream {stream!r} has mappings for {record.max_members} "
                f"partitions; give those for {most}, too (member_mappings)"
            )
        wanted = dataclasses.replace(record, **named)
        return dataclasses.replace(wanted, members=()) if wanted.member_mappings else wanted

    record = await get(js, stream, group)
    if not named:
        found = await work_queue.find(js, record.stream, record.name)
        if record.change is None and found.config.max_bytes != CLOSED_BYTES:
            raise GroupConfigurationError(
                f"elastic group {group!r} of stream {stream!r} is not being changed, and nothing to change "
                "is named; name max_members, partitioning_filters, or limits"
            )
    elif record.change is None and named.keys() <= {*LIMITS}:
        return await update(js, stream, group, **named)
    else:
        if "partitioning_filters" in named:
            origin = await consumers.origin_of(js, stream, "elastic")
            await trouble.check_new(js, alter(record), origin)
        await under_way.begin(js, stream, group, alter, on_progress)
    return await under_way.go_on(js, stream, group, on_progress)


async def undo_change(
    js: JetStream, stream: str, group: str, *, on_progress: OnProgress | None = None
) -> ElasticGroup:
    """Take back a change that is under way, before its boundary is passed: the work queue takes messages
    again, with the settings that the group has. A group that is not being changed is left as it is.

    Raises:
        GroupNotFoundError, GroupRecordError: the group cannot be read.
        GroupError: the boundary is passed, the queue is gone, or others have changed the group too often.
    """
    await under_way.undo(js, stream, group)
    return await under_way.go_on(js, stream, group, on_progress)


async def get(js: JetStream, stream: str, group: str) -> ElasticGroup:
    """The group as it is stored. Raises GroupNotFoundError, GroupRecordError."""
    return await Records(js, ElasticGroup).get(stream, group)


async def list(js: JetStream, stream: str) -> builtins.list[ElasticGroup]:  # noqa: A001
    """The elastic groups of a stream, by name. Raises GroupRecordError if a record cannot be read."""
    return (await Records(js, ElasticGroup).list(stream)).readable()


async def delete(js: JetStream, stream: str, group: str) -> None:
    """Delete a group and its work queue stream with what is left in it. Its members end.

    After a failure call it again: the second call completes the first. A stream of that name that is not
    the group's is left alone.

    Raises:
        GroupNotFoundError: there is no such group.
        GroupRecordError: the record cannot be read, so nobody knows what belongs to the group.
    """
    records = Records(js, ElasticGroup)
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
) -> Membership[ElasticGroup]:
    """One instance of a member at work: ``async with elastic.join(…) as membership``.

    Several instances may join as one member; one of them is active, the others stand by. Whoever is no
    member yet waits until it is added. Nothing is asked of the server until it is entered. See
    ``Membership`` for what it does, its arguments and its errors.
    """
    return Membership(
        js,
        ElasticGroup,
        stream,
        group,
        member,
        handler,
        config,
        **options,
    )


# Membership


async def add_members(js: JetStream, stream: str, group: str, names: Iterable[str]) -> ElasticGroup:
    """Add members; the partitions are distributed anew. Who is one already stays one.

    Several may call this at the same time; every name is added.

    Raises:
        GroupNotFoundError, GroupRecordError: the group cannot be read.
        GroupConfigurationError: a name is wrong, or the group has mappings.
        GroupError: others have changed the group so often meanwhile that it was given up.
    """
    added = _names_given(names)

    def add(record: ElasticGroup) -> ElasticGroup:
        if record.member_mappings:
            raise GroupConfigurationError(
                "can't add members to an elastic consumer group that uses member mappings; "
                "set the mappings anew, or delete them first"
            )
        members = tuple(sorted({*record.members, *added}))
        return dataclasses.replace(record, members=members)

    return await _change(js, stream, group, add)


async def drop_members(
    js: JetStream, stream: str, group: str, names: Iterable[str]
) -> ElasticGroup:
    """Drop members; the partitions are distributed anew. Who is no member need not be.

    Raises as ``add_members``.
    """
    dropped = _names_given(names)

    def drop(record: ElasticGroup) -> ElasticGroup:
        if record.member_mappings:
            raise GroupConfigurationError(
                "can't drop members from a elastic consumer group that uses member mappings; "
                "set the mappings anew, or delete them first"
            )
        members = tuple(name for name in record.members if name not in dropped)
        return dataclasses.replace(record, members=members)

    return await _change(js, stream, group, drop)


async def set_mappings(
    js: JetStream, stream: str, group: str, mappings: Iterable[MemberMapping]
) -> ElasticGroup:
    """Distribute the partitions by hand. Members that were added by name are members no longer.

    Raises as ``add_members``.
    """
    wanted = mappings_given(mappings)
    if not wanted:
        raise GroupConfigurationError(
            "invalid stream name or elastic consumer group name or member mappings: "
            "there is no mapping; to have none, delete them"
        )

    def set_all(record: ElasticGroup) -> ElasticGroup:
        under_way.check_unchanging(record, "its mappings stay")
        return dataclasses.replace(record, members=(), member_mappings=wanted)

    return await _change(js, stream, group, set_all)


async def delete_mappings(js: JetStream, stream: str, group: str) -> ElasticGroup:
    """Remove the distribution by hand. The group has no members then, until some are added.

    Raises as ``add_members``.
    """

    def delete_all(record: ElasticGroup) -> ElasticGroup:
        under_way.check_unchanging(record, "its mappings stay")
        return dataclasses.replace(record, member_mappings=())

    return await _change(js, stream, group, delete_all)


async def _change(
    js: JetStream, stream: str, group: str, change: Callable[[ElasticGroup], ElasticGroup]
) -> ElasticGroup:
    """Change a record, again and again until nobody else has changed it meanwhile."""
    records = Records(js, ElasticGroup)
    for _ in range(ATTEMPTS):
        record = await records.get(stream, group)
        changed = change(record)
        if changed == record:
            return record
        changed.validate()
        try:
            return await records.update(changed, record.revision)
        except KeyExistsError:
            continue
    raise records.contended(stream, group)


def _names_given(names: Iterable[str]) -> builtins.list[str]:
    given = texts_given("names", names)
    if not given:
        raise GroupConfigurationError(
            "invalid stream name or elastic consumer group name or no member names: there is no name"
        )
    return [*given]


def _filters_given(
    given: Sequence[PartitioningFilter] | None,
) -> tuple[PartitioningFilter, ...] | None:
    return None if given is None else tuple(_filter_given(each) for each in given)


def _filter_given(given: PartitioningFilter) -> PartitioningFilter:
    """A filter that a caller gave, whatever its wildcards are listed in."""
    if isinstance(given, str):
        raise GroupConfigurationError(
            f"partitioning filter {given!r}: accepted is PartitioningFilter({given!r}, (1,)) and the like"
        )
    pattern, wildcards = given
    return PartitioningFilter(pattern, None if wildcards is None else tuple(wildcards))
