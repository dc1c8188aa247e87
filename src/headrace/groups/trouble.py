"""Why a group stands still, or passes messages by, that nobody would notice otherwise: asked of the server.

``reach`` says what the configurations make certain; here they are read, and what lies in the stream is
compared with what any partition can match. A look costs the states of the streams and, where few subjects are
stored, their counts; nothing is asked for each message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from ..api.consumers import ConsumerInfo
from ..api.errors import Errors
from ..client import Stream
from ..client.seam import api_of
from ..errors import JetStreamApiError
from . import reach
from .errors import GroupConfigurationError, GroupNotFoundError
from .reach import Trouble
from .record.records import CLOSED_BYTES, ElasticGroup, StaticGroup
from .server import work_queue
from .server.bucket import Records
from .server.consumers import is_groups_own, stream_of

if TYPE_CHECKING:
    from ..api.streams import StreamInfo
    from ..client import JetStream

__all__ = ["Trouble", "check_new", "troubles"]


SUBJECTS_MAX: Final = 10_000
"""Subjects that a stream may have to be asked for its counts by subject."""

ASKED_MAX: Final = 16
"""Subjects or filters of which a message is looked for."""

_NOT_FOUND: Final = Errors.STREAM_NOT_FOUND.err_code


async def troubles(js: JetStream, group: StaticGroup | ElasticGroup) -> tuple[Trouble, ...]:
    """What keeps messages from a group, with what mends it; nothing is said that is not sure.

    Args:
        group: its record, as ``elastic.get`` or ``static.get`` returns it.

    Raises:
        JetStreamApiError, RequestTimeoutError, DisconnectedError, NoRespondersError: the server did not say.
    """
    origin = await _info(js, group.stream)
    if origin is None:
        return (_no_stream(group),)
    if isinstance(group, StaticGroup):
        return await _of_static(js, group, origin)
    return await _of_elastic(js, group, origin)


async def check_new(js: JetStream, group: StaticGroup | ElasticGroup, origin: StreamInfo) -> None:
    """Refuse to create a group that can get nothing, or surely not everything. Raises
    GroupConfigurationError."""
    if isinstance(group, ElasticGroup) and (kept := _kept_for_nobody(js, origin)):
        text = f"{_name(group)} would lose messages: {kept[0].text}; {kept[0].mend}"
        raise GroupConfigurationError(text)
    found = reach.by_configuration(group, origin.config)
    if not found or await _has_some(js, group, origin, found[0]):
        return
    trouble = found[0]
    mend = trouble.mend
    if trouble.kind == "unmatched":
        mend = (
            "take filters within these, or add their subjects: "
            f"headrace stream edit {group.stream} --subjects …"
        )
    raise GroupConfigurationError(f"{_name(group)} would not get messages: {trouble.text}; {mend}")


async def _has_some(
    js: JetStream, group: StaticGroup | ElasticGroup, origin: StreamInfo, found: Trouble
) -> bool:
    """Whether the stream has messages for it that were stored before its subjects changed."""
    if found.kind == "beyond" or not origin.state.messages:
        return False
    stream = Stream(api_of(js), group.stream, origin)
    if isinstance(group, ElasticGroup):
        return await _finds_any(stream, reach.filters_of(group))
    counts = await _counts(stream, origin)
    return counts is None or any(reach.is_read(group, each) for each in counts)


# Static


async def _of_static(js: JetStream, group: StaticGroup, origin: StreamInfo) -> tuple[Trouble, ...]:
    found = reach.by_configuration(group, origin.config)
    stream = Stream(api_of(js), group.stream, origin)
    left = reach.outside(group, await _counts(stream, origin) or {})
    if not left or not await _came_since(js, group, stream, left):
        return found
    messages = sum(left.values())
    text = (
        f"{messages:,} of {origin.state.messages:,} messages in stream {group.stream!r} are in none of its "
        f"{group.max_members} partitions, such as {next(iter(left))!r}: nobody is handed them"
    )
    mend = found[0].mend if found else f"headrace stream subjects {group.stream}"
    return (*found, Trouble("outside", text, mend))


async def _came_since(
    js: JetStream, group: StaticGroup, stream: Stream, subjects: Iterable[str]
) -> bool:
    """Whether messages of these subjects came after the group was created: what lies there from before its
    stream was numbered need not be meant for it."""
    try:
        created = await Records(js, StaticGroup).stored_at(group.stream, group.name)
    except GroupNotFoundError:
        return False  # it was deleted meanwhile
    asked = [each for each, _ in zip(subjects, range(ASKED_MAX), strict=False)]
    times = await asyncio.gather(*(_newest(stream, each) for each in asked))
    return max(times, default=0) > created


async def _newest(stream: Stream, subject: str) -> int:
    try:
        return (await stream.get_last_message(subject)).timestamp_ns
    except JetStreamApiError as error:
        if error.code != 404:
            raise
        return 0


# Elastic


def _kept_for_nobody(js: JetStream, origin: StreamInfo) -> tuple[Trouble, ...]:
    """A stream of interest retention on nats-server (2.15), which removes what no consumer waits for: what
    comes while it has not set up a copy, as after its creation and after a restart, is not copied."""
    if origin.config.retention != "interest" or js.connection.server_info.headrace:
        return ()
    name = origin.config.name
    text = (
        f"stream {name!r} keeps messages for its consumers alone (retention interest), and nats-server does "
        "not count a work queue that copies it: what comes before the copy is set up, or after a restart of "
        "the server until it is again, is removed"
    )
    mend = f"headrace stream edit {name} --retention limits --max-age 7d"
    return (Trouble("interest", text, mend),)


async def _of_elastic(
    js: JetStream, group: ElasticGroup, origin: StreamInfo
) -> tuple[Trouble, ...]:
    queue = await _info(js, stream_of(group))
    again = f"headrace group elastic create {group.stream} {group.name} {group.max_members} …"
    if queue is None:
        text = f"its work queue {stream_of(group)!r} does not exist, so nothing is copied or handed out"
        found: tuple[Trouble, ...] = (Trouble("no-queue", text, f"{again}    makes it again"),)
        return found if await _is_unchanged(js, group) else ()
    if why := work_queue.foreign(queue, group):
        text = f"stream {stream_of(group)!r} is not its work queue: {why}"
        mend = f"headrace stream info {stream_of(group)}"
        found = (Trouble("other-queue", text, mend),)
        return found if await _is_unchanged(js, group) else ()
    consumers = list[ConsumerInfo]()
    if queue.state.consumer_count:
        consumers = [each async for each in js.consumers(stream_of(group))]
    found = _kept_for_nobody(js, origin) + _of_queue(group, queue) + _strangers(queue, consumers)
    found += await _passed_over(js, queue, consumers)
    if group.change is None:
        found += reach.by_configuration(group, origin.config)
        found += await _in_queue(js, group, queue)
    if group.change is None and not found:
        found = await _nothing_yet(js, group, origin, queue)
    return found if not found or await _is_unchanged(js, group) else ()


def _of_queue(group: ElasticGroup, queue: StreamInfo) -> tuple[Trouble, ...]:
    found: tuple[Trouble, ...] = ()
    if queue.config.max_bytes == CLOSED_BYTES and group.change is None:
        text = "its work queue is closed, as for a change, and no change is under way"
        mend = f"headrace group elastic change {group.stream} {group.name}"
        found = (Trouble("closed-queue", text, mend),)
    error = queue.sources[0].error if queue.sources else None
    if error:
        text = f"copying from stream {group.stream!r} fails: {error.get('description') or error}"
        found += (Trouble("copy-fails", text, f"headrace stream info {stream_of(group)}"),)
    return found


def _strangers(queue: StreamInfo, consumers: Collection[ConsumerInfo]) -> tuple[Trouble, ...]:
    """Consumers of the work queue that no member made: a work queue lets no other one read what they do."""
    name = queue.config.name
    names = sorted(each.name for each in consumers if not is_groups_own(each))
    if not names:
        return ()
    text = (
        f"its work queue {name!r} has a consumer that is no member's, {names[0]!r}: what that reads no "
        "member can be handed"
    )
    return (Trouble("stranger", text, f"headrace consumer rm {name} {names[0]}"),)


async def _passed_over(
    js: JetStream, queue: StreamInfo, consumers: Collection[ConsumerInfo]
) -> tuple[Trouble, ...]:
    """Messages of the work queue that a member's consumer counts as acknowledged, and that are still there.

    nats-server (2.15) makes such a consumer where it deletes one of its name at the same moment: the new one
    stands where the old one stood. Members see that when they make theirs; others do not.
    """
    own = [each for each in consumers if is_groups_own(each) and each.config.max_deliver <= 0]
    if queue.state.messages <= sum(each.num_pending + each.num_ack_pending for each in own):
        return ()
    stream = Stream(api_of(js), queue.config.name, queue)
    config = [(each, each.config.filter_subjects or (each.config.filter_subject,)) for each in own]
    looks = [(each, subject) for each, subjects in config for subject in subjects]
    for consumer, subject in looks[:ASKED_MAX]:
        first = await _first(stream, subject or ">")
        if not first or first > consumer.ack_floor.stream_seq:
            continue
        if await _first(stream, subject or ">") != first:
            continue  # it was on its way out: the server removes it after it has counted it
        text = (
            f"message {first} of its work queue lies before the place of consumer "
            f"{consumer.name!r}, which nobody acknowledged it to: no member is handed it"
        )
        mend = f"headrace consumer rm {queue.config.name} {consumer.name}"
        return (Trouble("passed-over", text, f"{mend}    its member makes it again"),)
    return ()


async def _in_queue(js: JetStream, group: ElasticGroup, queue: StreamInfo) -> tuple[Trouble, ...]:
    """Messages of the work queue that no consumer of the group can match."""
    counts = await _counts(Stream(api_of(js), queue.config.name, queue), queue)
    left = reach.outside(group, counts or {})
    if not left:
        return ()
    text = (
        f"{sum(left.values()):,} messages in its work queue are in none of its {group.max_members} "
        f"partitions, such as {next(iter(left))!r}: nobody is handed them"
    )
    return (Trouble("outside", text, f"headrace stream subjects {stream_of(group)}"),)


async def _nothing_yet(
    js: JetStream, group: ElasticGroup, origin: StreamInfo, queue: StreamInfo
) -> tuple[Trouble, ...]:
    """A filter that matches none of what is stored, in a group that never had a message."""
    if not group.partitioning_filters or not origin.state.messages or queue.state.last_seq:
        return ()
    filters = reach.filters_of(group)
    stream = Stream(api_of(js), group.stream, origin)
    if len(filters) > ASKED_MAX or await _finds_any(stream, filters):
        return ()
    there = f"{origin.state.messages:,} message{'s' * (origin.state.messages != 1)}"
    text = (
        f"of {there} in stream {group.stream!r} none matches "
        f"{', '.join(map(repr, filters))}, and none ever did"
    )
    return (Trouble("nothing-yet", text, f"headrace stream subjects {group.stream}", False),)


# Asking


async def _is_unchanged(js: JetStream, group: ElasticGroup) -> bool:
    """Whether the record still is what was looked by: else a change began or ended in between."""
    try:
        now = await Records(js, ElasticGroup).get(group.stream, group.name)
    except GroupNotFoundError:
        return False
    return now.revision == group.revision


async def _info(js: JetStream, name: str) -> StreamInfo | None:
    try:
        return (await js.stream(name)).cached_info
    except JetStreamApiError as error:
        if error.err_code != _NOT_FOUND:
            raise
        return None


async def _counts(stream: Stream, info: StreamInfo) -> dict[str, int] | None:
    """The messages of each subject; None if there are too many subjects to ask."""
    if not info.state.messages:
        return {}
    if info.state.num_subjects > SUBJECTS_MAX:
        return None
    return (await stream.info(subjects=">")).state.subjects


async def _finds_any(stream: Stream, filters: Iterable[str]) -> bool:
    for each in filters:
        if await _first(stream, each):
            return True
    return False


async def _first(stream: Stream, subject: str) -> int:
    """The sequence of the first message of ``subject``; 0 if there is none."""
    try:
        return (await stream.get_next_message(subject)).sequence
    except JetStreamApiError as error:
        if error.code != 404:
            raise
        return 0


def _no_stream(group: StaticGroup | ElasticGroup) -> Trouble:
    kind = "static" if isinstance(group, StaticGroup) else "elastic"
    left = ""
    if kind == "elastic":
        left = f"; what was copied is in {stream_of(group)!r} and is handed out"
    text = f"its stream {group.stream!r} does not exist{left}"
    mend = f"headrace stream create {group.stream} …    or: headrace group {kind} delete {group.stream} "
    return Trouble("no-stream", text, f"{mend}{group.name}")


def _name(group: StaticGroup | ElasticGroup) -> str:
    kind = "static" if isinstance(group, StaticGroup) else "elastic"
    return f"{kind} group {group.name!r} of stream {group.stream!r}"
