"""Payloads alone: the messages of one subscription, read without a frame for any of them.

Who wants nothing but payloads has no use for the fields of the lines before them. One expression reads a
window of messages in one call, and gives only what is wanted. It accepts what the parser would accept, in
the usual form; a window with anything else in it is left to the parser as a whole.

As in ``repeats`` and ``varied``, messages of one size may contain anything, and messages that differ in size
no carriage return: then a payload ends where the next message begins, and the size that the line says is
compared with that of what was found.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

_WINDOW_BYTES: Final = 64 * 1024
_SIZE_DIGITS_MAX: Final = 9
_CRLF: Final = b"\r\n"
# The parser accepts control characters in a token, too; such a message just does not match.
_TOKEN: Final = rb" [!-\xff]{1,4000}+"
_FIELDS: Final = 4  # subject, sid, reply, size; one more with headers
_PATTERNS_MAX: Final = 256


class Payloads(NamedTuple):
    """What was read: the payloads, where the messages end, the reply of the last one, and whether any has
    headers.
    """

    each: list[bytes]
    end: int
    last_reply: bytes
    has_headers: bool = False


class _Message(NamedTuple):
    """One message: its verb and its sizes as written, these sizes in bytes, and where it ends."""

    verb: bytes
    sizes: bytes
    headers: int
    payload: int
    end: int


class PayloadReader:
    """Reads messages of one subscription, each of which has a reply.

    Args:
        sid: of the subscription.
        shapes_max: for so many pairs of sizes there are expressions at most; messages of others are read as
            if they differed.
    """

    MESSAGE_BYTES_MAX: Final = 8192  # header block and payload; above this, copying them dominates

    def __init__(self, sid: bytes, shapes_max: int = 32) -> None:
        self._sid = sid
        self._shapes_max = shapes_max
        self._shapes: set[tuple[bytes, bytes]] = set()

    def read(self, buf: bytes) -> Payloads:
        """The messages at the start of ``buf``, possibly none."""
        payloads: list[bytes] = []
        pos, reply, has_headers = 0, b"", False
        while (first := _message(buf, pos, self._sid)) is not None:
            stop = _boundary(buf, pos, first, self._sid)
            found = self._window(buf, pos, stop, first)
            if not found:
                break
            # No line has a line feed in it, so the last one begins after the last before its end.
            line_end = stop - 2 * len(_CRLF) - first.headers - len(found[-1])
            reply = buf[max(pos, buf.rfind(b"\n", pos, line_end) + 1) : line_end].split(b" ")[3]
            payloads += found
            has_headers = has_headers or first.headers > 0
            pos = stop
        return Payloads(payloads, pos, reply, has_headers)

    def _window(self, buf: bytes, pos: int, stop: int, first: _Message) -> list[bytes]:
        """The payloads of all messages from ``pos`` to ``stop``; none if one of them is not as expected."""
        if first.payload and self._is_shape(buf, first):
            pattern = _same_size(first.verb, self._sid, first.sizes, first.headers, first.payload)
            same: list[bytes] = pattern.findall(buf, pos, stop)
            if same[-1]:
                return same
        if first.headers:
            return []
        return _agreeing(_any_size(self._sid).findall(buf, pos, stop))

    def _is_shape(self, buf: bytes, first: _Message) -> bool:
        """Whether messages of these sizes are looked for: two in a row have them, or had them before."""
        key = first.verb, first.sizes
        if key in self._shapes:
            return True
        second = _message(buf, first.end, self._sid)
        if len(self._shapes) >= self._shapes_max or second is None or second[:2] != key:
            return False
        self._shapes.add(key)
        return True


def _message(buf: bytes, pos: int, sid: bytes) -> _Message | None:
    """The message at ``pos``; None if it is not there as a whole, or is not one to be read here."""
    eol = buf.find(_CRLF, pos)
    if eol < 0:
        return None
    verb, *fields = buf[pos:eol].split(b" ")
    with_headers = verb == b"HMSG"
    if len(fields) != _FIELDS + with_headers or not (with_headers or verb == b"MSG"):
        return None
    sizes = fields[3:]
    if fields[1] != sid or not all(s.isdigit() and len(s) <= _SIZE_DIGITS_MAX for s in sizes):
        return None
    total, headers = int(sizes[-1]), int(sizes[0]) if with_headers else 0
    end = eol + 2 * len(_CRLF) + total
    if headers > total or total > PayloadReader.MESSAGE_BYTES_MAX or end > len(buf):
        return None
    return _Message(verb, b" ".join(sizes), headers, total - headers, end)


def _boundary(buf: bytes, pos: int, first: _Message, sid: bytes) -> int:
    """Where a window of whole messages probably ends that begins with ``first``."""
    limit = min(pos + _WINDOW_BYTES, len(buf))
    last = buf.rfind(b"%b%b " % (_CRLF, first.verb), first.end - len(_CRLF), limit) + len(_CRLF)
    if last < first.end:
        return first.end
    whole = _message(buf, last, sid) if limit == len(buf) else None
    return last if whole is None else whole.end


def _agreeing(found: list[tuple[bytes, bytes]]) -> list[bytes]:
    """The payloads, if each has the size that its line says."""
    if not found[-1][0]:
        return []
    payloads = [payload for size, payload in found if int(size) == len(payload)]
    return payloads if len(payloads) == len(found) else []


# Both match all the rest where no such message starts, with empty groups.


@lru_cache(maxsize=_PATTERNS_MAX)
def _same_size(
    verb: bytes, sid: bytes, sizes: bytes, headers: int, payload: int
) -> re.Pattern[bytes]:
    """The expression for messages of one size, whatever is in them: the payload."""
    line = verb + _TOKEN + b" " + re.escape(sid) + _TOKEN + b" " + sizes + rb"\r\n"
    return re.compile(rb"%b.{%d}(.{%d})\r\n|.+" % (line, headers, payload), re.DOTALL)


@lru_cache(maxsize=_PATTERNS_MAX)
def _any_size(sid: bytes) -> re.Pattern[bytes]:
    """The expression for messages without headers, of any size: the size and the payload."""
    line = b"MSG" + _TOKEN + b" " + re.escape(sid) + _TOKEN
    return re.compile(rb"%b ([0-9]{1,9}+)\r\n([^\r]*+)\r\n|.+" % line, re.DOTALL)
