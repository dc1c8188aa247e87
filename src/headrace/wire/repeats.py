"""Runs of messages of one shape, of messages that differ in size, and of SUB lines, each read by one
regular expression.

Traffic is often repetitive: acknowledgements, fixed-size records, answers of the same length. When two
consecutive messages have the same verb, the same fields and the same sizes, the parser tries the next ones
with an expression made for exactly that shape. The expression reads many frames in one call, each of them
several times as fast as the general way. It accepts only what the general way would accept, and stops at
the first byte that differs.

Documents and lines of text vary in length. But few of them contain a carriage return; then a payload ends
where the next one is, and the sizes in the lines need only be compared with what was found.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from .frames import Frame

REPEATED_PAYLOAD_BYTES_MAX: Final = 8192  # above this, copying the payload dominates
_PATTERNS_MAX: Final = 1024
_LINE_BYTES_USUAL: Final = 128
_WINDOW_FRAMES: Final = 4  # the first window has this many frames; each next one has
_WINDOW_GROWTH: Final = 4  # this many times the bytes, as long as everything matches
_WINDOW_BYTES_MAX: Final = 64 * 1024


@lru_cache(maxsize=_PATTERNS_MAX)
def repeat_pattern(
    verb: bytes,
    fields: int,
    has_reply: bool,
    sizes: tuple[bytes, ...],
    headers: int,
    payload: int,
    token_max: int,
) -> re.Pattern[bytes]:
    """The expression for messages of one shape: its groups are the fields of the frame.

    ``fields`` counts the tokens between the verb and the sizes without the optional reply. ``sizes`` are
    the sizes as written in the line, the last one with everything before the line feed; ``headers`` and
    ``payload`` are their values in bytes. Where no such message starts, the expression matches all the
    rest, as the payload of a frame whose other fields are empty.
    """
    # A range is compared faster than a list of exceptions. It excludes control characters, which the
    # general way accepts in a token: such a message just does not match.
    token = rb" ([!-\xff]{1,%d}+)" % token_max
    # A frame's op is the first letter of its verb, after the H of a message with headers: so the expression
    # finds that, too.
    before, op, rest = verb[: len(sizes) - 1], verb[len(sizes) - 1 :][:1], verb[len(sizes) :]
    head = b"%b(%b)%b" % (before, op, rest) + token * fields + (token if has_reply else b"()")
    line = head + b"".join([b" " + re.escape(size) for size in sizes]) + b"\n"
    block = b"((?(1).{%d}))" % headers if headers else b"()"
    body = b"((?(1).{%d}|.+))" % payload
    return re.compile(rb"(?:%b|)%b%b(?(1)\r\n)" % (line, block, body), re.DOTALL)


def read_repeats(
    pattern: re.Pattern[bytes], buf: bytes, pos: int, size: int, frames: list[Frame]
) -> int:
    """Append the messages at ``pos`` that ``pattern`` reads to ``frames``; return where they end.

    It reads in windows, because the part that does not match is copied once more.
    """
    end, window = len(buf), _WINDOW_FRAMES * (size + _LINE_BYTES_USUAL)
    while pos < end:
        stop = min(pos + window, end)
        found = pattern.findall(buf, pos, stop)
        if found[-1][0]:
            pos = stop
        else:
            rest = found.pop()[-1]
            pos = stop - len(rest)
            if stop == end or not found:
                frames += found
                return pos
        frames += found
        window = min(window * _WINDOW_GROWTH, _WINDOW_BYTES_MAX)
    return pos


_SUB_PATTERNS_MAX: Final = 64
SUB_START: Final = b"SUB "


@lru_cache(maxsize=_SUB_PATTERNS_MAX)
def sub_pattern(token_max: int) -> re.Pattern[bytes]:
    """The expression for SUB lines in their usual form: its groups are the fields of the frame.

    Where no such line starts it matches all the rest, as the last field of a frame whose others are empty.
    So ``read_repeats`` reads with it.
    """
    token = rb"[!-\xff]{1,%d}+" % token_max  # without control characters: those go the general way
    line = rb"(?:(S)UB (%b) (?:(%b) )?|)" % (token, token)
    return re.compile(rb"%b((?(1)%b|.+))(?(1)\r\n)" % (line, token), re.DOTALL)


RUN_MIN: Final = 4  # a run of fewer was not worth it
_VARIED_PATTERNS_MAX: Final = 64
_MSG_GROUPS: Final = 6
_FIRST_WINDOW_BYTES: Final = 2 * 1024


@lru_cache(maxsize=_VARIED_PATTERNS_MAX)
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
