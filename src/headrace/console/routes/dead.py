"""Dead letters of a stream: listed, counted, looked at, and sent again; the words are the command's.

A stream may hold letters among other messages, so each answer looks at a bounded part of it, and says
where to go on.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from ...client.jetstream.stored_message import StreamMessage
from ...client.jetstream.stream import Stream
from ...client.seam import send_again
from ...errors import HeadraceError
from ...handling.dead_letter_headers import Letter, letter_of
from .. import payloads
from ..answers import (
    RefusedError,
    body_of,
    check_literal,
    confirm,
    number_of,
    query_number,
    text_of,
)
from ..sources import Sources
from .messages import MESSAGES_MAX, SEQUENCE_MAX, Reader, Scan, filter_of, row_of, sequence_of

LISTED_MAX: Final = 200
RESENT_MAX: Final = 200  # by one request; the page asks again
_NAMED_MAX: Final = 3  # subjects that an answer names


_Letter = tuple[StreamMessage, Letter]


class _Part(NamedTuple):
    """Letters that one answer has found; ``next`` is where to go on, 0 at the end."""

    letters: list[_Letter]
    looked: int = 0
    next: int = 0


async def listed(sources: Sources, request: Request) -> Any:
    """Letters in the order of the stream. Query: ``subject`` a pattern, ``consumer`` or group, ``from``."""
    asked = request.query_params
    stream = await sources.js.stream(request.path_params["stream"])
    begin = query_number(request, "from", 1, SEQUENCE_MAX)
    part = await _part(
        stream, asked.get("subject", ""), asked.get("consumer", ""), begin, LISTED_MAX
    )
    return {
        "letters": [_row(message, letter) for message, letter in part.letters],
        "looked": part.looked,
        "next": part.next,
    }


async def count(sources: Sources, request: Request) -> Any:
    """Letters by who gave them up, and by the error; ``next`` is where the count has stopped, or 0."""
    asked = request.query_params
    stream = await sources.js.stream(request.path_params["stream"])
    part = await _part(stream, asked.get("subject", ""), asked.get("consumer", ""), 1, MESSAGES_MAX)
    counts = Counter((letter.by, letter.error) for _, letter in part.letters)
    return {
        "counts": [
            {"from": by, "error": error, "letters": number}
            for (by, error), number in counts.most_common(LISTED_MAX)
        ],
        "letters": counts.total(),
        "looked": part.looked,
        "next": part.next,
    }


async def one(sources: Sources, request: Request) -> Any:
    """One letter with the headers and the payload of its message."""
    stream = await sources.js.stream(request.path_params["stream"])
    message, letter = await _letter(stream, sequence_of(request))
    return {
        **_row(message, letter),
        "headers": [[name, value] for name, all_ in letter.headers.items() for value in all_],
        "payload": payloads.shown(message.payload),
    }


async def resend(sources: Sources, request: Request) -> Any:
    """Publish letters again to the subjects they come from, or to ``to``, and remove them.

    Body: ``seq``, one letter; or ``confirm``, the stream's name, for those of ``subject`` and ``consumer``
    from ``from`` up to ``until``. Of many a part is sent; ``next`` and ``until`` of the answer go on. What
    fails again meanwhile is behind ``until``.
    """
    said = await body_of(request)
    target = text_of(said, "to")
    if target:
        check_literal(target, "to: ")
    stream = await sources.js.stream(request.path_params["stream"])
    if "seq" in said:
        part = _Part([await _letter(stream, number_of(said, "seq"))])
        until = 0
    else:
        confirm(said, stream.name)
        until = number_of(said, "until") or (await stream.info()).state.last_seq
        part = await _part(
            stream, text_of(said, "subject"), text_of(said, "consumer"), number_of(said, "from", 1),
            RESENT_MAX, until,
        )  # fmt: skip
    sent: Counter[str] = Counter()
    for message, letter in part.letters:
        where = target or letter.subject
        if not where and "seq" in said:
            raise RefusedError(
                409, "no_subject", "this letter does not say whence it comes; give a subject"
            )
        if not where:
            continue
        try:
            await send_again(sources.js, stream, message, letter, target)
        except HeadraceError as error:
            text = f"letter {message.sequence}, to {where}: {error}; sent before it: {sent.total()}"
            raise RefusedError(409, "not_sent", text) from error
        sent[where] += 1
    return {
        "resent": sent.total(),
        "to": [where for where, _ in sent.most_common(_NAMED_MAX)],
        "next": part.next,
        "until": until,
    }


async def _part(
    stream: Stream, subject: str, consumer: str, begin: int, most: int, until: int = SEQUENCE_MAX
) -> _Part:
    """Find up to ``most`` letters from ``begin`` up to ``until``."""
    info = await stream.info()
    until = min(until, info.state.last_seq)
    reader = Reader(stream, filter_of(subject), direct=info.config.allow_direct)
    scan, letters = Scan(reader, max(begin, info.state.first_seq, 1)), list[_Letter]()
    async for each in scan.messages(lambda each: each.sequence > until):
        letter = letter_of(each)
        if letter is not None and consumer in ("", letter.by):
            letters.append((each, letter))
            scan.is_full = len(letters) == most
    return _Part(letters, scan.looked, scan.next)


async def _letter(stream: Stream, sequence: int) -> _Letter:
    message = await stream.get_message(sequence)
    letter = letter_of(message)
    if letter is None:
        raise RefusedError(404, "no_letter", f"message {sequence} is no dead letter")
    return message, letter


def _row(message: StreamMessage, letter: Letter) -> dict[str, Any]:
    return {
        **row_of(message.sequence, letter.subject, message.timestamp_ns, message.payload, 0),
        "from": f"{letter.stream} {letter.by}".strip(),
        "stream": letter.stream,
        "by": letter.by,
        "origin_sequence": letter.sequence,
        "attempts": letter.attempts,
        "reason": letter.reason,
    }


_ALL: Final = "/api/streams/{stream}/dead"

ROUTES: Final = (
    ("GET", _ALL, listed),
    ("GET", f"{_ALL}/count", count),
    ("POST", f"{_ALL}/resend", resend),
    ("GET", f"{_ALL}/letters/{{sequence}}", one),
)
