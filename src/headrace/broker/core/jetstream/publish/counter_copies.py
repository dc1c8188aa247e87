"""Counters that add up others: what a counting stream makes of a total it copies from a source.

The source's message says what the source has counted so far. Stored is by how much that has grown since
its message before, and the sum over all sources; ``Nats-Counter-Sources`` remembers what each had said.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .....api.errors import Errors
from ..config.refused import Refused
from ..headers.published import header_value
from ..headers.statuses import with_headers
from .counters import INCREMENT, SOURCES, read_total

__all__ = ["counted_copy"]

_SOURCE: Final = b"Nats-Stream-Source"
_SUBJECT: Final = 4  # where the source's header names the subject there
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def counted_copy(
    headers: bytes, payload: bytes, before: tuple[bytes, bytes] | None
) -> tuple[bytes, bytes]:
    """Headers and body to store for a source's total.

    ``before`` are headers and body of the subject's last message here. Raises Refused when the message,
    or that one, is no counter.
    """
    if not header_value(headers, INCREMENT):
        raise Refused(Errors.MESSAGE_INCR_MISSING)
    fields = header_value(headers, _SOURCE).decode(errors="replace").split(" ")
    origin, subject = fields[0], fields[_SUBJECT]
    total = 0
    said: _Said = {}
    if before is not None:
        total = read_total(before[1])
        said = _read_sources(header_value(before[0], SOURCES))
    value = read_total(payload)
    known = said.setdefault(origin, {})
    try:
        growth = value - int(known.get(subject, "0"))
    except ValueError as error:
        raise Refused(Errors.MESSAGE_COUNTER_BROKEN) from error
    known[subject] = str(value)
    headers = _with(headers, INCREMENT, b"%d" % growth)
    headers = _with(headers, SOURCES, _encode(said))
    return headers, b'{"val":"%d"}' % (total + growth)


_Said = dict[str, dict[str, str]]


def _read_sources(text: bytes) -> _Said:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=_Said)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
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
