"""Search in the messages of a stream: a part of it at a time, with a bound on the work of each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.requests import Request

from ...api.base import DocumentError, read_json
from ...client.jetstream.stored_message import StreamMessage
from ..answers import RefusedError, query_number
from ..sources import Sources
from .messages import SEQUENCE_MAX, Reader, filter_of, row_of, time_of

MESSAGES_MAX: Final = 20_000  # looked at for one answer
ASKED_MAX: Final = 1_000  # the same, where each is a question of its own
BYTES_MAX: Final = 32 * 1024 * 1024
FOUND_MAX: Final = 200
JSON_BYTES_MAX: Final = 1024 * 1024  # a longer payload is not read as JSON
_TEXT_MAX: Final = 1000
_AT_ONCE: Final = 500
_WORDS: Final = {True: "true", False: "false", None: "null"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Test = Callable[[StreamMessage], bool]


async def search(sources: Sources, request: Request) -> Any:
    """The messages that match, from a sequence or a time on, in the order of the stream.

    Query: ``subject`` a pattern; ``text`` in the payload; ``path`` of JSON (``customer.name``, ``items.0``),
    whose value has to be ``text``, or be there; ``header`` a name, or ``Name: value``; ``from``, ``time``,
    ``until`` (RFC 3339). ``next`` of the answer is where to go on, 0 at the end.
    """
    asked = request.query_params
    stream = await sources.js.stream(request.path_params["stream"])
    info = await stream.info()
    reader = Reader(stream, filter_of(asked.get("subject", "")), direct=info.config.allow_direct)
    test = _test(asked.get("text", ""), asked.get("path", ""), asked.get("header", ""))
    start = time_of(asked["time"]) if asked.get("time") else None
    until_ns = _last_ns(time_of(asked["until"])) if asked.get("until") else 0
    begin = max(
        query_number(request, "from", 1, SEQUENCE_MAX), 1 if start else info.state.first_seq
    )
    most = MESSAGES_MAX if info.config.allow_direct else min(ASKED_MAX, MESSAGES_MAX)
    found: list[dict[str, Any]] = []
    looked = nbytes = 0
    while looked < most and nbytes < BYTES_MAX and len(found) < FOUND_MAX:
        part = await reader.after(begin, _AT_ONCE, start)
        start = None
        if not part:
            begin = 0
            break
        for each in part:
            begin = each.sequence + 1
            if until_ns and each.timestamp_ns > until_ns:
                begin = 0  # times rise with the sequences
                break
            looked += 1
            nbytes += len(each.payload)
            if test(each):
                size = len(each.headers)
                found.append(
                    row_of(each.sequence, each.subject, each.timestamp_ns, each.payload, size)
                )
                if len(found) == FOUND_MAX:
                    break
        if not begin:
            break
    return {"messages": found, "looked": looked, "next": begin}


def _last_ns(moment: datetime) -> int:
    """The last nanosecond of this microsecond: times are typed no finer."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000 + 999


def _test(text: str, path: str, header: str) -> Test:
    """Whether a message is meant. Raises RefusedError."""
    for what, given in (("text", text), ("path", path), ("header", header)):
        if len(given) > _TEXT_MAX:
            raise RefusedError(400, "not_accepted", f"{what}: at most {_TEXT_MAX} characters")
    if not (text or path or header):
        raise RefusedError(400, "not_accepted", "give text, a JSON path or a header to look for")
    tests: list[Test] = []
    if header:
        name, colon, value = (part.strip() for part in header.partition(":"))
        tests.append(lambda each: _has_header(each, name, value if colon else None))
    if path:
        steps = path.split(".")
        tests.append(lambda each: _at(each.payload, steps, text))
    elif text:
        wanted = text.encode("utf-8", "surrogatepass")
        tests.append(lambda each: wanted in each.payload)
    return lambda each: all(test(each) for test in tests)


def _has_header(message: StreamMessage, name: str, value: str | None) -> bool:
    return any(
        key.lower() == name.lower() and (value is None or value == given)
        for key, given in message.headers.items()
    )


def _at(payload: bytes, steps: list[str], text: str) -> bool:
    """Whether the JSON of a payload has something at a path, which is ``text`` if that is given."""
    if len(payload) > JSON_BYTES_MAX or payload.lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        value = read_json(payload)
    except DocumentError:
        return False
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif (
            isinstance(value, list) and step.isdigit() and len(step) < 10 and int(step) < len(value)
        ):
            value = value[int(step)]
        else:
            return False
    if not text:
        return True
    if isinstance(value, dict | list):
        return False  # a text is no list and no object
    return text == (_WORDS[value] if isinstance(value, bool | None) else str(value))


ROUTES: Final = (("GET", "/api/streams/{stream}/search", search),)
