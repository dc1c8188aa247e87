"""Counters: a stream whose subjects are numbers, and whose messages say by how much they change.

A message brings ``Nats-Incr`` and no body; stored is the new total, ``{"val":"…"}``, which is exact however
large. A stream that copies counters adds them up: a source's message says what the source has counted so far.
Stored is by how much that has grown since its message before, and the sum over all sources;
``Nats-Counter-Sources`` remembers what each had said. Source: distributed counters of the public server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from .....api.base import DocumentError, read_typed
from .....api.errors import Errors
from ..config.refused import Refused
from ..headers.published import header_value
from ..headers.statuses import with_headers
from ..headers.ttl import without_header

_INCREMENT: Final = b"Nats-Incr"
_SOURCES: Final = b"Nats-Counter-Sources"
_NUMBER: Final = re.compile(rb"[+-]?\d+")
_DIGITS_MAX: Final = 1000
"""Digits of an increment; a total beyond four times as many is refused, too."""
_EXCLUDED: Final = (
    b"Nats-Rollup",
    b"Nats-Expected-Stream",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
)

_SOURCE: Final = b"Nats-Stream-Source"
_SUBJECT: Final = 4  # where the source's header names the subject there
_encode: Final = msgspec.json.Encoder(order="deterministic").encode

_Said = dict[str, dict[str, str]]


class _Value(msgspec.Struct):
    val: str


def read_increment(found: Mapping[bytes, bytes], payload: bytes, *, allowed: bool) -> int | None:
    """By how much a message counts, None if it does not. Raises Refused."""
    text = found.get(_INCREMENT)
    if not text:
        return None
    if len(text) > _DIGITS_MAX or _NUMBER.fullmatch(text) is None:
        raise Refused(Errors.MESSAGE_INCR_INVALID)
    if not allowed:
        raise Refused(Errors.MESSAGE_INCR_DISABLED)
    if payload:
        raise Refused(Errors.MESSAGE_INCR_PAYLOAD)
    if any(found.get(name) for name in _EXCLUDED):
        raise Refused(Errors.MESSAGE_INCR_INVALID)
    return int(text)


def counted(
    increment: int, headers: bytes, before: tuple[bytes, bytes] | None
) -> tuple[bytes, bytes, bytes]:
    """Headers and body to store, and the new total.

    ``before`` are headers and body of the subject's last message. Raises Refused when that is no counter.
    """
    total = increment
    if _SOURCES in headers:  # whom to trust for the totals of others is not for a publisher to say
        headers = without_header(headers, _SOURCES)
    if before is not None:
        last_headers, body = before
        total += _read_total(body)
        sources = header_value(last_headers, _SOURCES)
        if sources:
            headers = with_headers(headers, b"%b: %b\r\n" % (_SOURCES, sources))
    if abs(total) >= 10 ** (4 * _DIGITS_MAX):
        raise Refused(Errors.MESSAGE_INCR_INVALID)
    value = b"%d" % total
    return headers, b'{"val":"%b"}' % value, value


def _read_total(body: bytes) -> int:
    """The number a stored message stands for. Raises Refused when it is no counter."""
    try:
        return _total(read_typed(body, _Value).val)
    except DocumentError as error:
        raise Refused(Errors.MESSAGE_COUNTER_BROKEN) from error


def _total(text: str) -> int:
    """The number of a stored total; what is none counts as 0, as by the public server."""
    raw = text.encode()
    if len(raw) > 4 * _DIGITS_MAX + 1 or _NUMBER.fullmatch(raw) is None:
        return 0
    return int(raw)


def counted_copy(
    headers: bytes, payload: bytes, before: tuple[bytes, bytes] | None
) -> tuple[bytes, bytes]:
    """Headers and body to store for a source's total.

    ``before`` are headers and body of the subject's last message here. Raises Refused when the message,
    or that one, is no counter.
    """
    if not header_value(headers, _INCREMENT):
        raise Refused(Errors.MESSAGE_INCR_MISSING)
    fields = header_value(headers, _SOURCE).decode(errors="replace").split(" ")
    origin, subject = fields[0], fields[_SUBJECT]
    total = 0
    said: _Said = {}
    if before is not None:
        total = _read_total(before[1])
        said = _read_sources(header_value(before[0], _SOURCES))
    value = _read_total(payload)
    known = said.setdefault(origin, {})
    try:
        growth = value - int(known.get(subject, "0"))
    except ValueError as error:
        raise Refused(Errors.MESSAGE_COUNTER_BROKEN) from error
    known[subject] = str(value)
    headers = _with(headers, _INCREMENT, b"%d" % growth)
    headers = _with(headers, _SOURCES, _encode(said))
    return headers, b'{"val":"%d"}' % (total + growth)


def _read_sources(text: bytes) -> _Said:
    if not text:
        return {}
    try:
        return read_typed(text, _Said)
    except DocumentError as error:
        raise Refused(Errors.MESSAGE_COUNTER_BROKEN) from error


def _with(headers: bytes, name: bytes, value: bytes) -> bytes:
    """The block with another value of a header, where it was or at the end."""
    line = b"%b: %b" % (name, value)
    lines = headers.split(b"\r\n")
    for index, there in enumerate(lines):
        if there.startswith(name + b":"):
            lines[index] = line
            return b"\r\n".join(lines)
    return with_headers(headers, line + b"\r\n")
