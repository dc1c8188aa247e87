"""``headrace stream rm``, ``purge``, ``rmm`` and ``seal``: what cannot be undone."""

from __future__ import annotations

import click

from ..shared.asking import may_go_on
from ..shared.names import STREAM
from ..shared.units import bytes_text, counted
from ..shared.verbs import Session, online


@online(STREAM, destroys=True)
async def rm(session: Session, stream: str) -> None:
    """Delete a stream with all its messages and consumers."""
    info = await (await session.js.stream(stream)).info()
    state = info.state
    what = (
        f"delete stream {stream} with {counted(state.messages, 'message')} "
        f"({bytes_text(state.bytes)}) and {counted(state.consumer_count, 'consumer')}"
    )
    if may_go_on(session.output, what):
        await session.js.delete_stream(stream)
        session.output.show({"deleted": stream}, f"deleted stream {stream}")


@online(
    STREAM,
    click.option("--subject", metavar="PATTERN", default="", help="only those of these subjects"),
    click.option(
        "--seq", type=click.IntRange(1), default=None, help="only those below this sequence"
    ),
    click.option(
        "--keep", type=click.IntRange(0), default=None, help="how many of the newest to keep"
    ),
    destroys=True,
)
async def purge(
    session: Session, stream: str, subject: str, seq: int | None, keep: int | None
) -> None:
    """Remove messages of a stream: all, those of a subject, or the older ones."""
    found = await session.js.stream(stream)
    info = await found.info(subjects=subject)
    count = sum(info.state.subjects.values()) if subject else info.state.messages
    what = f"remove messages of stream {stream}"
    what += f" with subject {subject}" if subject else ""
    what += f", below sequence {seq:,}" if seq else ""
    what += f", but the newest {keep:,}" if keep else ""
    if not (seq or keep):
        what = what.replace("messages", counted(count, "message"), 1)
    if may_go_on(session.output, what):
        purged = await found.purge(subject=subject, below=seq or 0, keep=keep or 0)
        session.output.show(
            {"stream": stream, "purged": purged},
            f"removed {counted(purged, 'message')} of stream {stream}",
        )


@online(STREAM, click.argument("sequence", metavar="ID", type=click.IntRange(1)), destroys=True)
async def rmm(session: Session, stream: str, sequence: int) -> None:
    """Remove one message; its bytes are overwritten."""
    found = await session.js.stream(stream)
    message = await found.get_message(sequence)
    what = f"remove message {sequence:,} of stream {stream} ({message.subject})"
    if may_go_on(session.output, what):
        await found.delete_message(sequence)
        document = {"stream": stream, "removed": sequence}
        session.output.show(document, f"removed message {sequence:,} of stream {stream}")


@online(STREAM, destroys=True)
async def seal(session: Session, stream: str) -> None:
    """Make a stream read-only; nothing opens it again."""
    found = await session.js.stream(stream)
    if may_go_on(session.output, f"seal stream {stream} for good"):
        await found.update(sealed=True)
        session.output.show({"sealed": stream}, f"sealed stream {stream}")
