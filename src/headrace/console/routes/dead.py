"""Dead letters of a stream: listed, counted, looked at, and sent again; the words are the command's.

A stream may hold letters among other messages, so each answer looks at a bounded part of it, and says
where to go on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request

from ...client.jetstream.stored_message import StreamMessage
from ...client.jetstream.stream import Stream
from ...client.seam import send_again
from ...errors import HeadraceError
from ...handling.dead_letter_headers import Letter, letter_of
from ...subjects import is_literal
from .. import payloads
from ..answers import RefusedError, body_of, confirm, number_of, query_number, text_of
from ..sources import Sources
from .messages import SEQUENCE_MAX, Reader, filter_of, row_of, sequence_of

LISTED_MAX: Final = 200
RESENT_MAX: Final = 200  # by one request; the page asks again
MESSAGES_MAX: Final = 20_000  # looked at for one answer
ASKED_MAX: Final = 1_000  # the same, where each is a question of its own
BYTES_MAX: Final = 32 * 1024 * 1024
_AT_ONCE: Final = 500
_NAMED_MAX: Final = 3  # subjects that an answer names


@dataclass
class _Part:
    """What one answer has looked at; ``next`` is where to go on, 0 at the end."""

    letters: list[tuple[StreamMessage, Letter]] = field(default_factory=list)
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
    if target and not is_literal(target.encode("utf-8", "replace")):
        raise RefusedError(
            400, "not_accepted", f"to: not a subject without wildcards: {target[:200]!r}"
        )
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
    """Up to ``most`` letters from ``begin`` up to ``until``."""
    info = await stream.info()
    direct = info.config.allow_direct
    until = min(until, info.state.last_seq)
    reader = Reader(stream, filter_of(subject), direct=direct)
    looks = MESSAGES_MAX if direct else ASKED_MAX
    part, nbytes = _Part(next=max(begin, info.state.first_seq, 1)), 0
    while part.next:
        got = await reader.after(part.next, _AT_ONCE)
        if not got:
            part.next = 0
        for each in got:
            if each.sequence > until:
                part.next = 0
                break
            if part.looked == looks or nbytes >= BYTES_MAX or len(part.letters) == most:
                return part
            part.next = each.sequence + 1
            part.looked += 1
            nbytes += len(each.payload)
            letter = letter_of(each)
            if letter is not None and consumer in ("", letter.by):
                part.letters.append((each, letter))
    return part


async def _letter(stream: Stream, sequence: int) -> tuple[StreamMessage, Letter]:
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
