"""Giving a stream's subjects other numbers: what may be renumbered, and the steps, each of which can be the
last one.

A stream that puts a partition before each subject is mirrored, with a transform that puts another one there;
sequences and times are kept. When the mirror has caught up, the stream takes no messages for a moment; the
mirror copies the last ones, and becomes a stream with the subjects. So nothing that was acknowledged is
missing there. The former stream stays, for whoever reads it, until it is deleted. What is under way is
written in the metadata of both: whoever finds it, goes on or takes it back.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import click
import msgspec

from ...api.errors import Errors
from ...api.roles import REPARTITIONED_TO
from ...api.streams import StreamConfig, StreamInfo, StreamSource, StreamStateInfo
from ...client import JetStream, Stream
from ...documents import DocumentError, read_typed
from ...errors import JetStreamApiError
from ...groups import static
from ..shared.asking import may_go_on
from ..shared.errors import Failure
from ..shared.names import STREAM
from ..shared.output import progress
from ..shared.units import bytes_text, counted
from ..shared.verbs import Session, online
from .copy import RepartitionError, find, numbering_of

TO: Final = REPARTITIONED_TO
SUBJECTS: Final = "headrace.repartition.subjects"
FROM: Final = "headrace.repartition.from"
BOUNDARY: Final = "headrace.repartition.boundary"
MARKS: Final = (TO, SUBJECTS, FROM, BOUNDARY)

_NO_MESSAGE: Final = Errors.NO_MESSAGE_FOUND.err_code
_PARKED: Final = "headrace.repartitioned."
"""Below it lies the subject of a stream that takes no messages: one with none would get its own name."""

PARTITIONS_MAX: Final = 65_536
_LOOK_S: Final = 0.05
_SILENCE_S: Final = 30.0
_KEPT_BY_MIRRORS: Final = (
    *("storage", "num_replicas", "placement", "compression", "description", "allow_direct"),
    *("max_age", "max_msgs_per_subject", "max_msg_size", "max_consumers", "allow_msg_ttl"),
)


@dataclass(frozen=True, slots=True)
class RepartitionedStreams:
    """What there is of the two streams."""

    old: StreamInfo
    new: StreamInfo | None

    @property
    def is_switched(self) -> bool:
        """Whether the new one has the subjects."""
        return self.new is not None and self.new.config.mirror is None


async def look(js: JetStream, name: str, new: str, partitions: int) -> RepartitionedStreams:
    """What there is. Raises RepartitionError: the new name is taken, or another change is under way;
    JetStreamApiError (10059): there is no such stream."""
    old = await (await js.stream(name)).info()
    there = await find(js, new)
    under_way = old.config.metadata.get(TO)
    if under_way not in (None, new):
        raise RepartitionError(f"stream {name} has become {under_way} already, or is about to")
    if there is None:
        return RepartitionedStreams(old, None)
    info = await there.info()
    if info.config.metadata.get(FROM) != name:
        raise RepartitionError(f"there is a stream {new} already")
    mirror, numbering = info.config.mirror, numbering_of(old.config)
    if mirror is None:
        wanted, has = numbering.transform(partitions), info.config.subject_transform
    else:
        wanted = numbering.renumbering(partitions)
        has = mirror.subject_transforms[0] if mirror.subject_transforms else None
    if has != wanted:
        raise RepartitionError(f"stream {new} is being made of {name} with other partitions")
    return RepartitionedStreams(old, info)


def refuse(info: StreamInfo, partitions: int) -> None:
    """Raises RepartitionError where it cannot be done, or there is nothing to do."""
    config, name = info.config, info.config.name
    numbering = numbering_of(config)
    if config.sealed:
        raise RepartitionError(f"stream {name} is sealed, and nothing of it can be changed")
    if config.mirror is not None or config.sources:
        raise RepartitionError(
            f"stream {name} copies from other streams, and its position there would be lost"
        )
    if config.retention != "limits":
        raise RepartitionError(
            f"stream {name} keeps messages for its consumers ({config.retention}), and no mirror would have "
            "those that they are done with; headrace group elastic change changes an elastic group on it"
        )
    if numbering.count == partitions:
        raise RepartitionError(f"stream {name} has {counted(partitions, 'partition')} already")


async def check_numbered(js: JetStream, name: str) -> None:
    """Raises RepartitionError: messages without a number would be left out."""
    stream = await js.stream(name)
    pattern = numbering_of((await stream.info()).config).stored
    state = (await stream.info(subjects=pattern)).state
    if missing := state.messages - sum(state.subjects.values()):
        raise RepartitionError(
            f"{counted(missing, 'message')} of stream {name} outside {pattern!r}: without a partition, "
            "to be left out"
        )


async def begin(js: JetStream, info: StreamInfo, new: str, partitions: int) -> StreamInfo:
    """Make the mirror that renumbers."""
    config = info.config
    renumbering = numbering_of(config).renumbering(partitions)
    kept = {name: getattr(config, name) for name in _KEPT_BY_MIRRORS}
    if config.discard == "old":  # a mirror that refuses would wait for room
        kept |= {"max_msgs": config.max_msgs, "max_bytes": config.max_bytes}
    mirror = StreamSource(name=config.name, subject_transforms=(renumbering,))
    made = await js.create_stream(
        StreamConfig(name=new, mirror=mirror, metadata={FROM: config.name}, **kept)
    )
    await _check_copies(await js.stream(config.name), info.state, made)
    return await made.info()


async def _check_copies(origin: Stream, before: StreamStateInfo, made: Stream) -> None:
    """Raises RepartitionError where nats-server has left messages of a deleted stream in the new one: it
    would keep them, and copy only what comes after them. ``before``: what there was to copy."""
    assert made.cached_info is not None
    new = made.cached_info.state
    if new.first_seq >= before.first_seq and new.messages:
        is_left = not await _is_the_same(origin, made, new.first_seq)
    else:  # it has what the other does not have any more, or begins after the first that it should copy
        is_left = new.messages > 0 or (before.messages > 0 and new.last_seq >= before.first_seq)
    if is_left:
        raise RepartitionError(
            f"the server has left messages of a deleted stream in {made.name}, which is not kept: begin "
            "again some seconds later"
        )


async def _is_the_same(origin: Stream, made: Stream, sequence: int) -> bool:
    try:
        copied, stored = [await each.get_message(sequence) for each in (made, origin)]
    except JetStreamApiError as error:
        if error.err_code != _NO_MESSAGE:
            raise
        return True  # one of them has been removed since
    return copied.timestamp_ns == stored.timestamp_ns


async def catch_up(
    js: JetStream, found: RepartitionedStreams, within: int, tell: Callable[[int], object]
) -> StreamInfo:
    """Wait until the mirror is so few sequences behind. Raises RepartitionError: it copies no more."""
    assert found.new is not None
    old, new = await js.stream(found.old.config.name), await js.stream(found.new.config.name)
    before, moved_at = -1, time.monotonic()
    while True:
        behind, info = (await old.info(deleted=within == 0)).state, await new.info()
        copied = info.state.last_seq
        tell(copied)
        if copied > before:
            before, moved_at = copied, time.monotonic()
        if (
            _newest(behind.first_seq, behind.last_seq, behind.messages, behind.deleted) - copied
            <= within
        ):
            return info
        if info.mirror is not None and info.mirror.error:
            raise RepartitionError(
                f"stream {new.name} does not copy: {info.mirror.error.get('description')}"
            )
        if time.monotonic() - moved_at > _SILENCE_S:
            raise RepartitionError(
                f"stream {new.name} has copied nothing for {_SILENCE_S:.0f} s, and ends at {copied:,} of "
                f"{behind.last_seq:,}"
            )
        await asyncio.sleep(_LOOK_S)


def _newest(first: int, last: int, messages: int, deleted: tuple[int, ...] | list[int]) -> int:
    """The newest sequence that there is a message of."""
    if not messages:
        return 0
    gone = {*deleted}
    while last in gone and last > first:
        last -= 1
    return last


async def stop(js: JetStream, info: StreamInfo, to: str) -> None:
    """Let the stream take no messages. What that changes is written with it."""
    if TO in info.config.metadata:
        return
    marks = {TO: to, SUBJECTS: json.dumps(info.config.subjects)}
    stream = await js.stream(info.config.name)
    parked = (_PARKED + info.config.name,)
    await stream.update(subjects=parked, metadata={**info.config.metadata, **marks})


async def switch(js: JetStream, name: str, new: str, partitions: int) -> StreamInfo:
    """The mirror becomes a stream, with the subjects and all settings of the former one."""
    config = (await (await js.stream(name)).info()).config
    made = await js.stream(new)
    boundary = (await made.info()).state.last_seq
    changed = msgspec.structs.replace(
        config,
        name=new,
        mirror=None,
        subjects=_subjects(config),
        subject_transform=numbering_of(config).transform(partitions),
        metadata={**_unmarked(config), FROM: name, BOUNDARY: str(boundary)},
    )
    return await made.update(changed)


async def take_back(js: JetStream, name: str, new: str, partitions: int) -> bool:
    """All is as it was, unless the new stream has the subjects already: then False."""
    found = await look(js, name, new, partitions)
    if found.is_switched:
        return False
    if TO in found.old.config.metadata:
        stream = await js.stream(name)
        config = found.old.config
        await stream.update(subjects=_subjects(config), metadata=_unmarked(config))
    if found.new is not None:
        await js.delete_stream(new)
    return True


def _subjects(config: StreamConfig) -> tuple[str, ...]:
    """Those it had. Raises RepartitionError: somebody has changed the mark."""
    raw = config.metadata.get(SUBJECTS, "")
    try:
        return tuple(read_typed(raw, list[str]))
    except DocumentError as error:
        raise RepartitionError(
            f"metadata {SUBJECTS} of stream {config.name} is damaged: {raw!r}"
        ) from error


def _unmarked(config: StreamConfig) -> dict[str, str]:
    return {key: value for key, value in config.metadata.items() if key not in MARKS}


_AGAIN = "headrace stream repartition {old} {new} {partitions}    goes on with it"
_NEAR = 1000  # so few messages may be missing when nothing can be published any more


@online(
    STREAM,
    click.argument("new", metavar="NEW"),
    click.argument("partitions", type=click.IntRange(1, PARTITIONS_MAX)),
    destroys=True,
)
async def repartition(session: Session, stream: str, new: str, partitions: int) -> None:
    """Number the subjects of a stream for more or fewer partitions: NEW has all of it, with other numbers.

    \b
    headrace stream repartition SHIPPING SHIPPING8 8 --dry-run
    headrace stream repartition SHIPPING SHIPPING8 8

    For a stream that puts a partition before each subject, as static groups need it. NEW is a mirror while it
    catches up; then it takes the subjects over, with the same sequences and times. Publishers change nothing;
    for a moment nothing can be published. STREAM stays as it is for those who read it, and gets no more
    messages. When they are done, others begin on NEW behind the sequence that is shown.

    Ctrl-C and failures take everything back. After a crash run it again: it goes on.
    """
    js = session.js
    found = await look(js, stream, new, partitions)
    if found.new is None:
        refuse(found.old, partitions)
        await check_numbered(js, stream)
    if not found.is_switched:
        if not may_go_on(session.output, _what(found, new, partitions)):
            return
        await _carry_out(session, found, new, partitions)
        found = await look(js, stream, new, partitions)
    await _tell(session, found, partitions)


def _what(found: RepartitionedStreams, new: str, partitions: int) -> str:
    state, name = found.old.state, found.old.config.name
    count = numbering_of(found.old.config).count
    return (
        f"make stream {new} of {name} with {counted(partitions, 'partition')} instead of {count}: "
        f"{counted(state.messages, 'message')} ({bytes_text(state.bytes)}) are copied, and {new} takes "
        "the subjects over"
    )


async def _carry_out(
    session: Session, found: RepartitionedStreams, new: str, partitions: int
) -> None:
    """All of it, or all is as it was."""
    js, name = session.js, found.old.config.name
    try:
        made = found.new or await begin(js, found.old, new, partitions)
        found = RepartitionedStreams(found.old, made)
        total, shown = found.old.state.last_seq, 0
        with progress(session.output, new, total) as advance:

            def tell(copied: int) -> None:
                nonlocal shown
                advance(copied - shown)
                shown = copied

            await catch_up(js, found, _NEAR, tell)
            await stop(js, found.old, new)
            await catch_up(js, found, 0, tell)
        await check_numbered(js, name)
        await switch(js, name, new, partitions)
    except BaseException:
        if not await take_back(js, name, new, partitions):
            again = _AGAIN.format(old=name, new=new, partitions=partitions)
            raise Failure(f"stream {new} has the subjects of {name} by now", again) from None
        raise


async def _tell(session: Session, found: RepartitionedStreams, partitions: int) -> None:
    """What has become of it: where others begin, and who has what left in the former stream."""
    assert found.new is not None
    name, new = found.old.config.name, found.new.config.name
    stream = await session.js.stream(name)
    left = {each.name: each.num_pending + each.num_ack_pending async for each in stream.consumers()}
    groups = [each.name for each in await static.list(session.js, name)]
    boundary = int(found.new.config.metadata.get(BOUNDARY, "0"))
    lines = [
        f"stream {new} has the subjects of {name} now, with {counted(partitions, 'partition')}",
        f"{name} ends at {boundary}; what reads {new} begins at {boundary + 1}, when {name} is handled",
        *(f"  consumer {each}: {count:,} left" for each, count in sorted(left.items())),
        *(f"  group {each}: make it anew on {new}" for each in groups),
        f"headrace stream rm {name}    when nobody needs it any more",
    ]
    document = {
        "stream": new,
        "was": name,
        "partitions": partitions,
        "boundary": boundary,
        "left": left,
        "groups": groups,
    }
    session.output.show(document, "\n".join(lines))
