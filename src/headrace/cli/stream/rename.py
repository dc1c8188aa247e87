"""``headrace stream rename OLD NEW``."""

from __future__ import annotations

import click

from ...api.streams import StreamInfo
from ...client import Stream
from ..shared.asking import may_go_on
from ..shared.errors import Failure
from ..shared.names import STREAM
from ..shared.progress import progress, telling
from ..shared.units import bytes_text, counted
from ..shared.verbs import Session, online
from .renaming import RenamedStreams, finish, look, move, refuse, settle, stop, take_back

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
    click.option("--progress/--no-progress", "bar", default=True, help="draw a bar (yes)"),
    destroys=True,
)
async def rename(session: Session, stream: str, new: str, wait_s: float, bar: bool) -> None:
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
        found = await _move(session, stream, new, wait_s, bar)
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


async def _move(session: Session, old: str, new: str, wait_s: float, bar: bool) -> RenamedStreams:
    """Make the stream of the new name; if that fails, everything is as it was."""
    try:
        before = await look(session.js, old, new)
        assert before.old is not None
        stream = await stop(session.js, before.old, new)
        missing = await settle(stream, wait_s)
        if missing and session.output.is_text:
            handed_out = counted(missing, "delivered message")
            session.output.note(f"{handed_out} not acknowledged yet: delivered again, from {new}")
        made = await _transfer(session, stream, before.old.state.bytes, bar)
        return RenamedStreams(await stream.info(), made)
    except BaseException:
        await _take_back(session, old, new)
        raise


async def _transfer(session: Session, stream: Stream, total: int, bar: bool) -> StreamInfo:
    with progress(session.output, stream.name, total, of_bytes=True, wanted=bar) as advance:
        return await move(stream, session.js, telling(advance))


async def _take_back(session: Session, old: str, new: str) -> None:
    """Raises Failure if the stream of the new name was made all the same: it has the subjects."""
    found = await look(session.js, old, new)
    if found.new is not None:
        raise Failure(
            f"stream {new} is there; {old} is to be deleted yet", _GO_ON.format(old=old, new=new)
        )
    await take_back(session.js, old)
