"""Changing what is fixed when an elastic group is created, while it works: partitions, filters, keys.

``record.change`` says what the next step is; here it is carried out. Each step is read from the record and
the work queue, so that whoever was interrupted, at whatever call, goes on by calling again. What a step
answers is what the next one goes by: while the queue is closed every round trip is silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ..client import JetStream, KeyExistsError, Stream
from ..client.seam import api_of
from ..errors import JetStreamApiError
from .errors import GroupConfigurationError, GroupError, GroupExistsError, GroupNotFoundError
from .lag import measure
from .member.config import plans
from .member.consumer.conflicts import is_in_use
from .record import change as steps
from .record.assignment import transforms
from .record.change import Queue, Step
from .record.names import QUERY_MEMBER, QUERY_ROLE, RENUMBERED, ROLE, SOURCE
from .record.records import CLOSED_BYTES, ElasticGroup
from .server import consumers, work_queue
from .server.asking import Asking, together
from .server.bucket import ATTEMPTS, Records

if TYPE_CHECKING:
    from ..api.streams import StreamInfo
    from ..client import StreamMessage


LOOK_FIRST_S: Final = 0.025  # growing …
LOOK_MAX_S: Final = 0.5  # … up to here: nothing tells when a work queue is empty
STUCK_AFTER_S: Final = 0.5
"""For so long nothing was handled before it is asked who is absent, which takes many round trips."""


class ChangeProgress(NamedTuple):
    """How far a change has come.

    Attributes:
        phase: ``closing``, ``draining``, ``switching``, ``undoing``; "" once it is done.
        boundary: the last sequence of the stream that belongs to the former settings; 0 while it is not
            known, or if there is none.
        left: messages in the work queue that the members have not handled and confirmed yet.
        absent: while it is drained, the members that have messages and no instance at work: the change waits
            for them, or until they are dropped. "" stands for partitions that have no member.
    """

    phase: str
    boundary: int
    left: int
    absent: tuple[str, ...] = ()


OnProgress = Callable[[ChangeProgress], object]
Known = tuple[ElasticGroup, "StreamInfo"]
"""The record and the work queue, as they were at the same time."""


class _Stale(NamedTuple):
    """Consumers of a group that were made for its former settings, by name: who may be at work, or not."""

    used: list[str]
    unused: list[str]


async def begin(
    js: JetStream,
    stream: str,
    group: str,
    alter: Callable[[ElasticGroup], ElasticGroup],
    on_progress: OnProgress | None = None,
) -> ElasticGroup:
    """Write into the record that the group is to become ``alter(record)``; nothing, if it is that already, or
    on its way there. A change that others took out of the record is completed first. Raises as
    ``elastic.change``."""
    records = Records(js, ElasticGroup)
    for _ in range(ATTEMPTS):
        record = await records.get(stream, group)
        wanted = alter(record)
        wanted.validate()
        under_way = record.other_side()
        if record.change is not None and under_way is not None:
            is_new = record.change.phase == "switching"
            new = steps.ended(record) if is_new else under_way
            if record.change.phase != "undoing" and not new.differences(wanted):
                return record
            raise _under_way(record)
        if not record.differences(wanted):
            return record
        _check_limit(record, wanted)
        found = await work_queue.find(js, stream, group)
        _check_possible(found, record)
        if steps.next_step(record, _seen(found, record)) is not Step.NOTHING:
            # Or undoing the new one would open a queue that numbers as nobody's record says.
            await go_on(js, stream, group, on_progress)
            continue
        await _check_no_query(js, record)
        begun = steps.begun(record, wanted, found.config.max_bytes)
        try:
            return await records.update(begun, record.revision)
        except KeyExistsError:
            continue
    raise records.contended(stream, group)


async def undo(js: JetStream, stream: str, group: str) -> ElasticGroup:
    """Write into the record that its change goes no further. Raises as ``elastic.undo_change``."""
    records = Records(js, ElasticGroup)
    for _ in range(ATTEMPTS):
        record = await records.get(stream, group)
        if record.change is None or record.change.phase == "undoing":
            return record
        if record.change.phase == "switching":
            raise GroupError(
                f"{_name(record)} has passed the boundary of its change, {record.change.boundary}: it has "
                "the new settings; complete the change, and change the group again to have the former ones"
            )
        try:
            return await records.update(steps.undoing(record), record.revision)
        except KeyExistsError:
            continue
    raise records.contended(stream, group)


async def go_on(
    js: JetStream, stream: str, group: str, on_progress: OnProgress | None = None
) -> ElasticGroup:
    """Take all steps that are left. Raises as ``elastic.change``."""
    return await _Change(js, stream, group, on_progress).run()


class _Change:
    """A change that is carried out."""

    def __init__(
        self, js: JetStream, stream: str, group: str, on_progress: OnProgress | None
    ) -> None:
        self._js = js
        self._stream = stream
        self._group = group
        self._records: Records[ElasticGroup] = Records(js, ElasticGroup)
        self._on_progress = on_progress
        self._told: ChangeProgress | None = None
        self._draining: Asking[Known] | None = None
        self._leaving: Asking[tuple[_Stale, Known]] | None = None
        self._left = -1
        self._stuck_from = 0.0
        self._last: StreamMessage | None = None
        self._patient_until: dict[tuple[str, str], float] = {}

    async def run(self) -> ElasticGroup:
        try:
            return await self._run()
        finally:
            await self._look_no_more()

    async def _run(self) -> ElasticGroup:
        known: Known | None = None
        while True:
            record, found = known or await self._look()
            known = None
            _check_limit(record, record)
            _check_form(found, record)
            queue = _seen(found, record)
            step = steps.next_step(record, queue)
            self._tell(record, queue, await self._absent(record, queue, step))
            if step is Step.NOTHING:
                return record
            try:
                known = await self._take(step, record, found)
            except KeyExistsError:
                await self._look_no_more()  # somebody has changed the record meanwhile

    async def _look(self) -> Known:
        return await together(self._records.get(self._stream, self._group), self._find())

    async def _find(self) -> StreamInfo:
        return await work_queue.find(self._js, self._stream, self._group)

    async def _look_no_more(self) -> None:
        asked = self._draining, self._leaving
        self._draining = self._leaving = None
        for each in asked:
            if each is not None:
                await each.end()

    async def _absent(self, record: ElasticGroup, queue: Queue, step: Step) -> tuple[str, ...]:
        """Who would have to handle what is left, and is not there; asked where nothing went on lately."""
        now = asyncio.get_running_loop().time()
        if step is not Step.WAIT or queue.messages != self._left:
            self._left = queue.messages if step is Step.WAIT else -1
            self._stuck_from = now + STUCK_AFTER_S
        if now < self._stuck_from or self._on_progress is None:
            return ()
        try:
            look = await measure(self._js, record, troubles=False)
        except GroupNotFoundError:
            return ()  # the work queue is gone, which the next step meets
        absent = [
            each.member for each in look.members if each.listed and each.lag and not each.is_live
        ]
        is_unowned = any(each.lag for each in look.partitions if not each.member)
        return (*absent, *([""] if is_unowned else []))

    def _tell(self, record: ElasticGroup, queue: Queue, absent: tuple[str, ...]) -> None:
        change = record.change
        phase, boundary = ("", 0) if change is None else (change.phase, change.boundary)
        progress = ChangeProgress(phase, boundary, queue.messages, absent)
        if self._on_progress is not None and progress != self._told:
            self._on_progress(progress)
        self._told = progress

    async def _take(self, step: Step, record: ElasticGroup, found: StreamInfo) -> Known | None:
        """Take a step. What is known after it, without another look; None: nothing that lasts."""
        if step not in (Step.MARK, Step.WAIT, Step.RENUMBER):
            await self._look_no_more()
        match step:
            case Step.WAIT:
                return await self._next_look(record)
            case Step.CLOSE:
                # The last copy is asked for at the same time: if nothing came in between it has the boundary.
                closing = self._update(found, max_bytes=CLOSED_BYTES)
                closed, self._last = await together(closing, self._copy(found))
                return record, closed
            case Step.REOPEN:
                change = record.change
                size = _bytes_of(record) if change is None else change.queue_bytes
                return record, await self._update(found, max_bytes=size)
            case Step.RENUMBER:
                return await self._renumber(record)
            case Step.MARK:
                boundary = await self._boundary(record, found)
                marked = steps.marked(record, boundary, found.state.last_seq)
                stored, seen = await together(self._store(marked, record), self._next_look(record))
                return stored, seen[1]
            case Step.RECOVER:
                boundary = await self._boundary(record, found)
                recovered = steps.recovered(record, boundary, found.state.last_seq)
                return await self._store(recovered, record), found
            case Step.CLOSE_AGAIN:
                return await self._store(steps.closing_again(record), record), found
            case Step.SWITCH:
                return await self._store(steps.switched(record), record), found
            case Step.FINISH | Step.FORGET:
                return await self._store(steps.ended(record), record), found
        return None

    async def _next_look(self, record: ElasticGroup) -> Known:
        """The record and the queue while that is drained. What was asked before the record was stored has the
        queue as it was then, which takes nothing, so that it can only be emptier now."""
        if self._draining is None:
            self._draining = Asking(self._look, LOOK_FIRST_S, LOOK_MAX_S)
        now, found = await self._draining.next()
        return (now if now.revision > record.revision else record), found

    async def _store(self, record: ElasticGroup, instead_of: ElasticGroup) -> ElasticGroup:
        return await self._records.update(record, instead_of.revision)

    # The queue

    async def _update(self, found: StreamInfo, **values: object) -> StreamInfo:
        stream = Stream(api_of(self._js), found.config.name, found)
        config = msgspec.structs.replace(found.config, discard="new", **values)
        try:
            return await stream.update(config)
        except JetStreamApiError as error:
            raise work_queue.refused(found.config.name, "change", error) from error

    async def _boundary(self, record: ElasticGroup, found: StreamInfo) -> int:
        """The last message of the stream that was copied before the queue was closed; 0: none ever was.

        The last copy says where it comes from. If it was handled, the server says how far it has copied;
        nothing changes that while the queue takes nothing.
        """
        last, copy = found.state.last_seq, self._last
        since, _, boundary = found.config.metadata.get(RENUMBERED, "0 0").partition(" ")
        if since == str(last) and boundary.isdigit():
            return int(boundary)  # nothing was copied since it was numbered so
        if (copy is None or copy.sequence != last) and found.state.messages:
            copy = await self._copy(found, sequence=last)
        if copy is not None and copy.sequence == last:
            fields = (copy.headers.get(SOURCE) or "").split(" ")
            if len(fields) > 1 and fields[1].isdigit():
                return int(fields[1])
        if reached := found.sources[0].seq if found.sources else 0:
            return reached
        raise GroupError(
            f"{_name(record)} cannot be changed: its work queue is empty, and the server does not say how "
            "far it had copied (nats-server does from 2.15 on); call again while messages wait in it, or "
            "undo the change"
        )

    async def _copy(self, found: StreamInfo, sequence: int = 0) -> StreamMessage | None:
        """A message of the queue, or its last one; None if it is handled."""
        queue = Stream(api_of(self._js), found.config.name)
        try:
            return await (queue.get_message(sequence) if sequence else queue.get_last_message(">"))
        except JetStreamApiError as error:
            if error.code != 404:
                raise
            return None

    async def _stale(self, record: ElasticGroup) -> _Stale:
        """The consumers that were made for the former settings. Members follow the record by themselves; what
        is left of those that do not is unused once nobody uses it, or has had the time to. The queue is empty
        and takes nothing, so these consumers hold nothing."""
        wanted = {
            plan.consumer: plan.filters
            for member in record.assignment()
            for plan in plans(record, member).values()
        }
        now = asyncio.get_running_loop().time()
        found = _Stale([], [])
        async for info in self._js.consumers(consumers.stream_of(record)):
            is_stale = info.config.filter_subjects != wanted.get(info.name, ())
            if not is_stale or not consumers.is_groups_own(info):
                continue
            patient_until = self._patient_until.setdefault(
                (info.name, info.created), now + 2 * info.config.priority_timeout
            )
            is_used = (is_in_use(info) or info.num_waiting) and now < patient_until
            (found.used if is_used else found.unused).append(info.name)
        return found

    async def _renumber(self, record: ElasticGroup) -> Known | None:
        """Number as the record says, from the boundary on, and take messages again, once nothing is left of
        the former settings."""
        assert record.change is not None
        if self._leaving is None:
            look = lambda: together(self._stale(record), self._look())  # noqa: E731
            self._leaving = Asking(look, LOOK_FIRST_S, LOOK_MAX_S)
        stale, (now, found) = await self._leaving.next()
        if now.revision != record.revision:
            await self._look_no_more()
            return None  # somebody else has gone on; what follows would be late
        if stale.unused:
            # Nobody who was asked before it is removed may say that it is, and be believed meanwhile.
            await self._look_no_more()
            await consumers.delete(self._js, consumers.stream_of(record), stale.unused)
        if stale.used or stale.unused:
            return record, found
        await self._look_no_more()
        numbered = transforms(record.partitioning_filters or (), record.max_members)
        source = msgspec.structs.replace(found.config.sources[0], subject_transforms=numbered)
        boundary = record.change.boundary
        if boundary:
            source = msgspec.structs.replace(
                source, opt_start_seq=boundary + 1, opt_start_time=None
            )
        messages = record.max_buffered_messages
        return record, await self._update(
            found,
            sources=(source,),
            metadata={**found.config.metadata, RENUMBERED: f"{found.state.last_seq} {boundary}"},
            max_msgs=messages if messages > 0 else -1,
            max_bytes=_bytes_of(record),
        )


def _seen(found: StreamInfo, record: ElasticGroup) -> Queue:
    other = record.other_side()
    numbering: steps.Numbering = "neither"
    if work_queue.numbers_for(found, record):
        numbering = "record"
    elif other is not None and work_queue.numbers_for(found, other):
        numbering = "other"
    closed = found.config.max_bytes == CLOSED_BYTES
    return Queue(closed, numbering, found.state.messages, found.state.last_seq)


def _bytes_of(record: ElasticGroup) -> int:
    return record.max_buffered_bytes if record.max_buffered_bytes > 0 else -1


# Refusals


def _name(record: ElasticGroup) -> str:
    return f"elastic group {record.name!r} of stream {record.stream!r}"


def _under_way(record: ElasticGroup) -> GroupError:
    assert record.change is not None
    return GroupError(
        f"{_name(record)} is being changed otherwise ({record.change.phase}): complete that first, by "
        "elastic.change without settings, or undo it, by elastic.undo_change "
        f"(headrace group elastic change {record.stream} {record.name}, or with --undo)"
    )


def check_unchanging(record: ElasticGroup, what: str) -> None:
    """Refuse what cannot be done while a group is being changed. Raises GroupError."""
    if record.change is not None:
        raise GroupError(
            f"{_name(record)} is being changed ({record.change.phase}), and {what} until that is done: "
            f"headrace group elastic change {record.stream} {record.name} completes it, --undo undoes it"
        )


def _check_limit(record: ElasticGroup, wanted: ElasticGroup) -> None:
    if CLOSED_BYTES in (record.max_buffered_bytes, wanted.max_buffered_bytes):
        raise GroupConfigurationError(
            f"max_buffered_bytes is {CLOSED_BYTES}, by which no message fits into the work queue; accepted: "
            "0 (no limit), or as much as a message has"
        )


def _check_possible(found: StreamInfo, record: ElasticGroup) -> None:
    _check_form(found, record)
    if found.config.num_replicas > 1:
        raise GroupError(
            f"{_name(record)} has a work queue of {found.config.num_replicas} replicas, which cannot be "
            "changed: what is under way between them when the queue is closed may be counted as copied and "
            "not be there; make another group that begins where this one ends (start)"
        )


async def _check_no_query(js: JetStream, record: ElasticGroup) -> None:
    """Refuse a group of which a Spark query is a member: it keeps its consumer, and what that was given,
    between its runs."""
    async for info in js.consumers(consumers.stream_of(record)):
        if info.config.metadata.get(ROLE) == QUERY_ROLE:
            member = info.config.metadata.get(QUERY_MEMBER, info.name)
            raise GroupError(
                f"{_name(record)} has a Spark query as its member {member!r}, which keeps what it was given "
                "between its runs; stop it and give its partitions back (headrace group elastic give-back "
                f"{record.stream} {record.name} {member}), change the group, and start it again"
            )


def _check_form(found: StreamInfo, record: ElasticGroup) -> None:
    if why := work_queue.foreign_form(found, record):
        raise GroupExistsError(
            f"stream {found.config.name!r} is not that of {_name(record)}: {why}"
        )
