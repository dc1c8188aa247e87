"""``headrace dead ls``, ``count`` and ``resend``."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import click

from ..client import StreamMessage
from ..client.seam import send_again
from ..handling.dead_letter_headers import Letter, letter_of
from .shared.asking import may_go_on
from .shared.messages import time_of
from .shared.names import STREAM
from .shared.output import Table
from .shared.units import counted
from .shared.verbs import Session, online
from .stream.view import stored_messages

_SUBJECT = click.option(
    "--subject", metavar="PATTERN", default="", help="only letters of these subjects"
)
_CONSUMER = click.option(
    "--consumer",
    "--from",
    "consumer",
    metavar="NAME",
    default="",
    help="only those of this consumer or group, as count tells them",
)
_ERROR = click.option(
    "--error", metavar="TEXT", default="", help="only those of this error, as count tells them"
)


@online(
    STREAM,
    _SUBJECT,
    _CONSUMER,
    _ERROR,
    click.option(
        "--limit", type=click.IntRange(1), default=100, help="how many to show at most (100)"
    ),
)
async def ls(
    session: Session, stream: str, subject: str, consumer: str, error: str, limit: int
) -> None:
    """List the dead letters of a stream: what could not be handled, whence it comes, and why."""
    table = Table(
        ["Seq", "Time", "From", "Subject", "Attempts", "Reason"],
        title=f"Dead letters of stream {stream}",
        right=frozenset({"Seq", "Attempts"}),
        empty=f"stream {stream} has no such dead letter",
    )
    documents: list[dict[str, Any]] = []
    async for message, letter in _letters(session, stream, subject, consumer, error):
        if len(documents) == limit:
            session.output.note(f"there are more: --limit, or headrace dead count {stream}")
            break
        documents.append(
            {
                **letter._asdict(),
                "error": letter.error,
                "origin_sequence": letter.sequence,
                "sequence": message.sequence,
            }
        )
        table.rows.append([
            str(message.sequence), time_of(message.timestamp_ns), f"{letter.stream} {letter.by}".strip(),
            letter.subject, str(letter.attempts or ""), letter.reason,
        ])  # fmt: skip
    session.output.show(documents, table)


@online(STREAM, _SUBJECT, _CONSUMER, _ERROR)
async def count(session: Session, stream: str, subject: str, consumer: str, error: str) -> None:
    """Count the dead letters of a stream by who gave them up, and by the error."""
    counts: Counter[tuple[str, str]] = Counter()
    async for _, letter in _letters(session, stream, subject, consumer, error):
        counts[letter.by, letter.error] += 1
    table = Table(
        ["From", "Error", "Letters"],
        right=frozenset({"Letters"}),
        title=f"{counted(counts.total(), 'dead letter')} of stream {stream}",
        empty=f"stream {stream} has no such dead letter",
    )
    rows = [(by, what, number) for (by, what), number in counts.most_common()]
    table.rows += [[by, what, f"{number:,}"] for by, what, number in rows]
    documents = [{"from": by, "error": what, "letters": number} for by, what, number in rows]
    session.output.show(documents, table)


@online(
    STREAM,
    _SUBJECT,
    _CONSUMER,
    _ERROR,
    click.option("--seq", type=click.IntRange(1), default=None, help="only this one"),
    click.option(
        "--to", "target", metavar="SUBJECT", default="", help="there, not whence they come"
    ),
    destroys=True,
)
async def resend(
    session: Session,
    stream: str,
    subject: str,
    consumer: str,
    error: str,
    seq: int | None,
    target: str,
) -> None:
    """Publish dead letters again to the subjects they come from, and remove them from the stream.

    \b
    headrace dead resend DEAD --dry-run
    headrace dead resend DEAD --consumer billing --error ValueError
    headrace dead resend DEAD --seq 17 --to orders.again

    Every consumer of that subject gets them, as new messages with their own headers. A letter is removed
    when its message is stored. Where that fails the command ends, and says where; begin again. Within the
    duplicate window of their stream none is stored twice.
    """
    found = [
        (message, letter)
        async for message, letter in _letters(session, stream, subject, consumer, error)
        if (seq is None or message.sequence == seq) and (target or letter.subject)
    ]
    subjects = sorted({target or letter.subject for _, letter in found})
    where = ", ".join(subjects[:3]) + (f" and {len(subjects) - 3} more" if subjects[3:] else "")
    if not found:
        session.output.show({"resent": 0}, f"stream {stream} has no such dead letter")
        return
    what = f"publish {counted(len(found), 'dead letter')} of stream {stream} again to {where}"
    if not may_go_on(session.output, f"{what}, and remove them", {"letters": len(found)}):
        return
    letters = await session.js.stream(stream)
    for message, letter in found:
        await send_again(session.js, letters, message, letter, target)
    session.output.show(
        {"resent": len(found), "to": subjects},
        f"published {counted(len(found), 'message')} again to {where}",
    )


async def _letters(
    session: Session, stream: str, subject: str, consumer: str, error: str
) -> AsyncIterator[tuple[StreamMessage, Letter]]:
    """Those that there are now."""
    found = await session.js.stream(stream)
    last = (await found.info()).state.last_seq
    async for message in stored_messages(found, subject, 1, None):
        if message.sequence > last:
            return
        letter = letter_of(message)
        if letter is not None and consumer in ("", letter.by) and error in ("", letter.error):
            yield message, letter
