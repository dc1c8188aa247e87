"""Repeats: consecutive messages of one shape, read by one regular expression.

Traffic is often repetitive: acknowledgements, fixed-size records, answers of the same length. When two
consecutive messages have the same verb, the same fields and the same sizes, the parser tries the next ones
with an expression made for exactly that shape. The expression reads many frames in one call, each of them
several times as fast as the general way. It accepts only what the general way would accept, and stops at
the first byte that differs.
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
