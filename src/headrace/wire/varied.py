"""Runs of messages that differ in size, read by one regular expression.

Documents and lines of text vary in length, so ``repeats`` does not apply to them. But few of them contain a
carriage return; then a payload ends where the next one is, and the sizes in the lines need only be compared
with what was found. What does not agree is left to the general way.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from .frames import Frame

RUN_MIN: Final = 4  # a run of fewer was not worth it
_PATTERNS_MAX: Final = 64
_MSG_GROUPS: Final = 6
_FIRST_WINDOW_BYTES: Final = 2 * 1024
_WINDOW_GROWTH: Final = 4
_WINDOW_BYTES_MAX: Final = 64 * 1024


@lru_cache(maxsize=_PATTERNS_MAX)
def varied_pattern(verb: bytes, fields: int, has_reply: bool, token_max: int) -> re.Pattern[bytes]:
    """The expression for messages without headers, of any size: the fields of a line, the size, the payload.

    ``fields`` counts the tokens between the verb and the size without the optional reply. Where no such
    message starts, the expression matches all the rest, as a payload whose other fields are empty.
    """
    token = rb" ([!-\xff]{1,%d}+)" % token_max
    head = b"(%b)%b" % (verb[:1], verb[1:]) + token * fields + (token if has_reply else b"()")
    line = head + rb" ([0-9]{1,9}+)\r\n"
    return re.compile(rb"(?:%b|)((?(1)[^\r]*+|.+))(?(1)\r\n)" % line, re.DOTALL)


def read_varied(
    pattern: re.Pattern[bytes],
    buf: bytes,
    pos: int,
    max_payload: int,
    frames: list[Frame],
) -> int:
    """Append the messages at ``pos`` that ``pattern`` reads to ``frames``; return where they end."""
    end, window = len(buf), _FIRST_WINDOW_BYTES
    while pos < end:
        stop = min(pos + window, end)
        found = pattern.findall(buf, pos, stop)
        is_whole = bool(found[-1][0])
        rest = b"" if is_whole else found.pop()[-1]
        read = _agreeing(found, max_payload)
        frames += read
        if len(read) < len(found):
            return stop - len(rest) - sum(map(_length, found[len(read) :]))
        pos = stop - len(rest)
        if rest and (stop == end or not read):
            return pos
        window = min(window * _WINDOW_GROWTH, _WINDOW_BYTES_MAX)
    return pos


def _agreeing(found: list[tuple[bytes, ...]], max_payload: int) -> list[Frame]:
    """The frames up to the first whose size is not that of its payload."""
    read: list[Frame]
    if found and len(found[0]) == _MSG_GROUPS:
        read = [
            (op, subject, sid, reply, b"", payload)
            for op, subject, sid, reply, size, payload in found
            if int(size) == len(payload) <= max_payload
        ]
    else:
        read = [
            (op, subject, reply, b"", payload)
            for op, subject, reply, size, payload in found
            if int(size) == len(payload) <= max_payload
        ]
    if len(read) == len(found):
        return read
    wrong = next(
        at for at, one in enumerate(found) if not int(one[-2]) == len(one[-1]) <= max_payload
    )
    return read[:wrong]


def _length(found: tuple[bytes, ...]) -> int:
    """How many bytes a message was: its verb of three letters, what is in it, and what separates that."""
    tokens = [len(token) for token in found[1:-1] if token]
    return 3 + sum(tokens) + len(tokens) + 2 + len(found[-1]) + 2
