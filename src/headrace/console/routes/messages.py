"""The messages of a stream, page by page, forwards and backwards; and those that a search finds.

Pages are read without a consumer. Where a stream allows direct gets, many messages come in one answer;
otherwise each is asked for, a page's worth at most.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ...api.base import DocumentError, read_json
from ...api.times import format_time
from ...client.jetstream.stored_message import StreamMessage, if_found, is_marker
from ...client.jetstream.stream import Stream
from ...subjects import is_valid_pattern
from .. import payloads
from ..answers import RefusedError, attachment, query_number
from ..sources import Sources

PAGE: Final = 100
PAGE_MAX: Final = 500
PAGE_BYTES: Final = 8 * 1024 * 1024
SINGLE_MAX: Final = 50  # messages a page, where each is a question of its own
BACK_TRIES: Final = 24  # doubling windows: 100 × 2²⁴ sequences
MARKER_TRIES: Final = 100  # answers in a row with nothing but markers
SEQUENCE_MAX: Final = (1 << 63) - 1
MESSAGES_MAX: Final = 20_000  # looked at for one answer
ASKED_MAX: Final = 1_000  # looked at for one answer where each is a question of its own
BYTES_MAX: Final = 32 * 1024 * 1024
_AT_ONCE: Final = 500


def row_of(
    sequence: int, subject: str, timestamp_ns: int, payload: bytes, headers: int
) -> dict[str, Any]:
    """A message as a line of the table."""
    return {
        "seq": sequence,
        "subject": subject,
        "time": format_time(timestamp_ns),
        "bytes": len(payload),
        "headers": headers,
        "preview": payloads.preview(payload),
    }


def _row(message: StreamMessage) -> dict[str, Any]:
    return row_of(
        message.sequence,
        message.subject,
        message.timestamp_ns,
        message.payload,
        len(message.headers),
    )


async def page(sources: Sources, request: Request) -> Any:
    """A page of messages, in the order of the stream.

    Query: ``from`` a sequence, ``time`` (RFC 3339), ``before`` a sequence (backwards), or ``newest``;
    ``subject`` a filter, ``count``, ``markers``: also those that sinks of Spark keep in the stream.
    """
    stream = await sources.js.stream(request.path_params["stream"])
    subject = filter_of(request.query_params.get("subject", ""))
    count = query_number(request, "count", PAGE, PAGE_MAX) or PAGE
    info = await stream.info()
    first, last = info.state.first_seq, info.state.last_seq
    asked = request.query_params
    direct, markers = info.config.allow_direct, bool(asked.get("markers"))
    reader = Reader(stream, subject, direct=direct, markers=markers)
    if "before" in asked or "newest" in asked:
        before = query_number(request, "before", last + 1, SEQUENCE_MAX)
        found = await reader.before(min(before, last + 1), first, count)
    elif asked.get("time"):
        found = await reader.after(1, count, time_of(asked["time"]))
    else:
        begin = max(query_number(request, "from", 1, SEQUENCE_MAX), first, 1)
        found = await reader.after(begin, count)
    return {
        "first_seq": first,
        "last_seq": last,
        "total": info.state.messages,
        "messages": [_row(each) for each in found],
    }


async def one(sources: Sources, request: Request) -> Any:
    """One message: headers, and the payload as text and hexadecimal."""
    message = await _message(sources, request)
    return {
        **row_of(message.sequence, message.subject, message.timestamp_ns, message.payload, 0),
        "headers": [[name, value] for name, value in message.headers.items()],
        "payload": payloads.shown(message.payload),
    }


async def payload(sources: Sources, request: Request) -> Any:
    """The payload of one message as a file: no browser shows it."""
    message = await _message(sources, request)
    name = f"{request.path_params['stream']}-{message.sequence}"
    return Response(
        message.payload,
        headers={
            "cache-control": "no-store",
            "content-disposition": attachment(name),
        },
        media_type="application/octet-stream",
    )


async def _message(sources: Sources, request: Request) -> StreamMessage:
    sequence = sequence_of(request)
    stream = await sources.js.stream(request.path_params["stream"])
    return await stream.get_message(sequence)


def sequence_of(request: Request) -> int:
    """The sequence in a path. Raises RefusedError."""
    text: str = request.path_params["sequence"]
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise RefusedError(400, "not_accepted", "a sequence is a whole number")
    return int(text)


class Reader:
    """Reads pages of one stream, with one filter."""

    def __init__(
        self, stream: Stream, subject: str, *, direct: bool, markers: bool = False
    ) -> None:
        self._stream, self._subject = stream, subject
        self.direct, self._markers = direct, markers

    async def after(
        self, begin: int, count: int, start: datetime | None = None
    ) -> list[StreamMessage]:
        """Read up to ``count`` messages at or after ``begin``, or stored at or after ``start``; fewer where
        an answer is large. None only if there are no more.
        """
        found: list[StreamMessage] = []
        for _ in range(MARKER_TRIES):
            got = await self._get(begin, count, start)
            found = got if self._markers else [each for each in got if not is_marker(each)]
            if found or not got:
                break
            begin, start = got[-1].sequence + 1, None
        return found

    async def _get(self, begin: int, count: int, start: datetime | None) -> list[StreamMessage]:
        if self.direct:
            batch = await self._stream.get_batch(
                count, subject=self._subject, sequence=begin, start_time=start, max_bytes=PAGE_BYTES
            )
            return list(batch.messages)
        found: list[StreamMessage] = []
        while len(found) < min(count, SINGLE_MAX):
            message = await if_found(
                self._stream.get_next_message(
                    self._subject or ">", begin, start_time=start if not found else None
                )
            )
            if message is None:
                break
            found.append(message)
            begin = message.sequence + 1
        return found

    async def before(self, end: int, first: int, count: int) -> list[StreamMessage]:
        """The last ``count`` messages before ``end``: in windows that double until there are enough."""
        count = count if self.direct else min(count, SINGLE_MAX)
        found: list[StreamMessage] = []
        width = count
        for _ in range(BACK_TRIES):
            begin = max(first, end - width, 1)
            part = await self._window(begin, end, count)
            found = (part + found)[-count:] if len(part) + len(found) > count else part + found
            if len(found) >= count or begin <= max(first, 1):
                break
            end, width = begin, width * 2
        return found

    async def _window(self, begin: int, end: int, count: int) -> list[StreamMessage]:
        """The last ``count`` messages from ``begin`` up to ``end``."""
        kept: list[StreamMessage] = []
        while begin < end:
            part = await self.after(begin, PAGE_MAX if self.direct else SINGLE_MAX)
            kept = [*kept, *(each for each in part if each.sequence < end)][-count:]
            if not part or part[-1].sequence >= end - 1:
                break
            begin = part[-1].sequence + 1
        return kept


class Scan:
    """Goes through a stream in its order, as far as one answer may look.

    Args:
        reader: reads the messages.
        begin: the first sequence to look at.
        start: look at nothing stored before.

    Attributes:
        is_full: set by whoever has found enough: the scan ends before the next message.
        looked: how many messages it has looked at.
        next: where to go on, 0 at the end.
    """

    def __init__(self, reader: Reader, begin: int, start: datetime | None = None) -> None:
        self._reader = reader
        self._start = start
        self.is_full = False
        self.looked = 0
        self.next = begin

    async def messages(
        self, is_behind: Callable[[StreamMessage], bool]
    ) -> AsyncIterator[StreamMessage]:
        """The messages, up to the first one that is behind what is looked for."""
        most, nbytes = MESSAGES_MAX if self._reader.direct else ASKED_MAX, 0
        while self.next:
            part = await self._reader.after(self.next, _AT_ONCE, self._start)
            self._start = None
            if not part:
                self.next = 0
            for each in part:
                if is_behind(each):
                    self.next = 0
                    return
                if self.is_full or self.looked >= most or nbytes >= BYTES_MAX:
                    return
                self.next = each.sequence + 1
                self.looked += 1
                nbytes += len(each.payload)
                yield each


def filter_of(subject: str) -> str:
    """A subject or pattern, "" for all. Raises RefusedError."""
    if subject and not is_valid_pattern(subject.encode()):
        raise RefusedError(400, "not_accepted", f"not a subject or pattern: {subject[:200]!r}")
    return subject


def time_of(text: str) -> datetime:
    """A time of a query; without a zone it is UTC. Raises RefusedError."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            return moment.replace(tzinfo=UTC)
        return moment.astimezone(
            UTC
        )  # which the first and the last hours of all years have none of
    except (ValueError, OverflowError) as error:
        raise RefusedError(400, "not_accepted", f"not a time: {text[:40]!r}") from error


FOUND_MAX: Final = 200
JSON_BYTES_MAX: Final = 1024 * 1024  # a longer payload is not read as JSON
_TEXT_MAX: Final = 1000
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
    scan, found = Scan(reader, begin, start), list[dict[str, Any]]()
    # Times rise with the sequences.
    async for each in scan.messages(lambda each: 0 < until_ns < each.timestamp_ns):
        if test(each):
            found.append(_row(each))
            scan.is_full = len(found) == FOUND_MAX
    return {"messages": found, "looked": scan.looked, "next": scan.next}


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


ROUTES: Final = (
    ("GET", "/api/streams/{stream}/messages", page),
    ("GET", "/api/streams/{stream}/messages/{sequence}", one),
    ("GET", "/api/streams/{stream}/messages/{sequence}/payload", payload),
    ("GET", "/api/streams/{stream}/search", search),
)
