"""Moving a stream to another name: what may be moved, and the steps, each of which can be the last one.

A server gives no stream another name. So the stream takes no messages for a while and its consumers pause;
a backup of it is restored under the new name, with sequences, times and the state of the consumers; the
old one is deleted and the consumers go on. What is under way is written in the metadata of both streams, with
the change it is about: whoever finds it, goes on or takes it back.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import click

from ...api.roles import RENAMED_TO
from ...api.streams import StreamInfo
from ...client import JetStream, Stream, TransferProgress
from ...documents import DocumentError, read_typed
from ...errors import HeadraceError
from ...groups import elastic, static
from ..shared.asking import may_go_on
from ..shared.errors import Failure
from ..shared.names import STREAM
from ..shared.output import progress, telling
from ..shared.units import bytes_text, counted
from ..shared.verbs import Session, online
from .copy import find, transfer

TO: Final = RENAMED_TO
SUBJECTS: Final = "headrace.rename.subjects"
PAUSED: Final = "headrace.rename.paused"
FROM: Final = "headrace.rename.from"
MARKS: Final = (TO, SUBJECTS, PAUSED, FROM)

_PARKED: Final = "headrace.renaming."
"""Below it lies the subject of a stream that takes no messages: one with none would get its own name."""

_PAUSE_S: Final = 24 * 3600.0
_LOOK_S: Final = 0.1


class RenameError(HeadraceError):
    """The stream cannot be renamed, or not so."""


@dataclass(frozen=True, slots=True)
class RenamedStreams:
    """What there is of the two streams: one that is to be moved, one that has been, or both."""

    old: StreamInfo | None
    new: StreamInfo | None


async def look(js: JetStream, old: str, new: str) -> RenamedStreams:
    """What there is. Raises RenameError: another stream has the new name, or the old one is moving elsewhere;
    JetStreamApiError (10059): there is no stream of the old name, and none was moved."""
    here, there = await find(js, old), await find(js, new)
    moved = None if there is None else await there.info()
    if moved is not None and moved.config.metadata.get(FROM) != old:
        if here is None:
            await js.stream(old)
        raise RenameError(f"there is a stream {new} already")
    if here is None:
        if moved is None:
            await js.stream(old)
        return RenamedStreams(None, moved)
    info = await here.info()
    under_way = info.config.metadata.get(TO)
    if under_way not in (None, new):
        raise RenameError(f"stream {old} is being renamed to {under_way}; finish that first")
    if moved is not None and under_way is None:
        raise RenameError(
            f"stream {new} was moved from an earlier stream {old}; there is another one now"
        )
    return RenamedStreams(info, moved)


async def refuse(js: JetStream, info: StreamInfo) -> None:
    """Raises RenameError where a name is more than a name: others keep it, and would lose their position."""
    name = info.config.name
    if name.startswith(("KV_", "OBJ_")):
        raise RenameError(
            f"{name} is a bucket, whose name is in the subject of everything it holds"
        )
    if info.config.sealed:
        raise RenameError(f"stream {name} is sealed, and nothing of it can be changed")
    if info.config.mirror is not None or info.config.sources:
        raise RenameError(
            f"stream {name} copies from other streams, and its position there would be lost"
        )
    groups = [group.name for kind in (static, elastic) for group in await kind.list(js, name)]
    if groups:
        raise RenameError(
            f"groups work on stream {name} and know it by its name: {', '.join(groups)}"
        )

    copies = [
        each.config.name
        async for each in js.streams()
        if name in [source.name for source in (each.config.mirror, *each.config.sources) if source]
    ]
    if copies:
        raise RenameError(
            f"streams that copy from stream {name} would lose their position: {', '.join(copies)}"
        )


async def stop(js: JetStream, info: StreamInfo, to: str) -> Stream:
    """Let the stream take no messages, and its consumers pause. What that changes is written before."""
    stream = await js.stream(info.config.name)
    if TO in info.config.metadata:  # begun before
        active: tuple[str, ...] = _texts(info, PAUSED)
    else:
        active = tuple([each.name async for each in stream.consumers() if not each.paused])
        marks = {TO: to, SUBJECTS: json.dumps(info.config.subjects), PAUSED: json.dumps(active)}
        await stream.update(
            subjects=(_PARKED + info.config.name,), metadata={**info.config.metadata, **marks}
        )
    for name in active:
        await (await stream.consumer(name)).pause(_PAUSE_S)
    return stream


async def settle(stream: Stream, within_s: float) -> int:
    """Wait for the acknowledgements of what the consumers have delivered; how many are missing."""
    ends = time.monotonic() + within_s
    while True:
        missing = 0
        async for each in stream.consumers():
            missing += each.num_ack_pending
        if not missing or time.monotonic() >= ends:
            return missing
        await asyncio.sleep(_LOOK_S)


async def move(
    stream: Stream, js: JetStream, progress: Callable[[TransferProgress], object] | None
) -> StreamInfo:
    """Make the stream of the new name: all of it, or nothing."""
    info = await stream.info()
    metadata = {key: value for key, value in info.config.metadata.items() if key != TO}
    changes: dict[str, object] = {
        "name": info.config.metadata[TO],
        "subjects": _texts(info, SUBJECTS),
        "metadata": {**metadata, FROM: info.config.name},
    }
    made = await transfer(stream, js, changes, progress=progress)
    return await made.info()


async def take_back(js: JetStream, name: str) -> None:
    """The stream takes messages again and its consumers go on, as if nothing had been."""
    stream = await js.stream(name)
    info = await stream.info()
    if TO not in info.config.metadata:
        return
    await _resume(stream, info)
    await stream.update(subjects=_texts(info, SUBJECTS), metadata=_unmarked(info))


async def finish(js: JetStream, found: RenamedStreams) -> StreamInfo:
    """Delete the old stream, if the new one holds all of it; let the consumers go on.

    Raises RenameError if it does not.
    """
    assert found.new is not None
    if found.old is not None:
        old, new = found.old.state, found.new.state
        if new.last_seq < old.last_seq:
            raise RenameError(
                f"stream {found.new.config.name} ends at {new.last_seq:,} and stream "
                f"{found.old.config.name} at {old.last_seq:,}: nothing was deleted"
            )
        await js.delete_stream(found.old.config.name)
    stream = await js.stream(found.new.config.name)
    await _resume(stream, found.new)
    await stream.update(metadata=_unmarked(found.new))
    return await stream.info()


async def _resume(stream: Stream, info: StreamInfo) -> None:
    paused = set(_texts(info, PAUSED))
    async for each in stream.consumers():
        if each.name in paused and each.paused:
            await (await stream.consumer(each.name)).resume()


def _unmarked(info: StreamInfo) -> dict[str, str]:
    return {key: value for key, value in info.config.metadata.items() if key not in MARKS}


def _texts(info: StreamInfo, mark: str) -> tuple[str, ...]:
    """What a mark holds. Raises RenameError: somebody has changed it."""
    raw = info.config.metadata.get(mark, "")
    try:
        return tuple(read_typed(raw, list[str]))
    except DocumentError as error:
        raise RenameError(
            f"metadata {mark} of stream {info.config.name} is damaged: {raw!r}"
        ) from error


_GO_ON = "headrace stream rename {old} {new}    goes on with it"


@online(
    STREAM,
    click.argument("new", metavar="NEW"),
    click.option(
        "--wait",
        "wait_s",
        metavar="SECONDS",
        type=click.FloatRange(0),
        default=10.0,
        help="how long to wait for acknowledgements of what is being handled (10)",
    ),
    destroys=True,
)
async def rename(session: Session, stream: str, new: str, wait_s: float) -> None:
    """Give a stream another name; it keeps its subjects, messages, sequences and consumers.

    \b
    headrace stream rename ORDERS SALES --dry-run
    headrace stream rename ORDERS SALES

    Meanwhile nothing can be published to it and its consumers pause: about as long as a backup and a restore
    of it take. All of it lies on the disk twice for that time. What the consumers have delivered and nobody
    has acknowledged in time is delivered again. Applications ask for the new name afterwards.

    Ctrl-C and failures take everything back. After a crash run it again: it goes on.
    """
    found = await look(session.js, stream, new)
    if found.old is not None and found.new is None:
        await refuse(session.js, found.old)
    if not may_go_on(session.output, _what(found, stream, new)):
        return
    if found.old is not None and found.new is None:
        found = await _move(session, stream, new, wait_s)
    info = await finish(session.js, found)
    session.output.show(
        {"stream": info.config.name, "was": stream, "messages": info.state.messages},
        f"stream {stream} is {info.config.name} now, with {counted(info.state.messages, 'message')} "
        f"and {counted(info.state.consumer_count, 'consumer')}",
    )


def _what(found: RenamedStreams, old: str, new: str) -> str:
    if found.old is None or found.new is not None:
        return f"finish the renaming of stream {old} to {new}"
    state = found.old.state
    return (
        f"rename stream {old} to {new}, with {counted(state.messages, 'message')} "
        f"({bytes_text(state.bytes)}) and {counted(state.consumer_count, 'consumer')}; "
        "nothing can be published to it meanwhile"
    )


async def _move(session: Session, old: str, new: str, wait_s: float) -> RenamedStreams:
    """Make the stream of the new name; if that fails, everything is as it was."""
    try:
        before = await look(session.js, old, new)
        assert before.old is not None
        stream = await stop(session.js, before.old, new)
        missing = await settle(stream, wait_s)
        if missing and session.output.is_text:
            handed_out = counted(missing, "delivered message")
            session.output.note(f"{handed_out} not acknowledged yet: delivered again, from {new}")
        made = await _transfer(session, stream, before.old.state.bytes)
        return RenamedStreams(await stream.info(), made)
    except BaseException:
        await _take_back(session, old, new)
        raise


async def _transfer(session: Session, stream: Stream, total: int) -> StreamInfo:
    with progress(session.output, stream.name, total, of_bytes=True) as advance:
        return await move(stream, session.js, telling(advance))


async def _take_back(session: Session, old: str, new: str) -> None:
    """Raises Failure if the stream of the new name was made all the same: it has the subjects."""
    found = await look(session.js, old, new)
    if found.new is not None:
        raise Failure(
            f"stream {new} is there; {old} is to be deleted yet", _GO_ON.format(old=old, new=new)
        )
    await take_back(session.js, old)
