"""Headers that only the server may say: who asks a service, and where a message stands in its stream.

Whatever a client says under such a name is taken away before the server says it, however it is written: in
capitals or not, twice, behind a bare line feed, folded. A reader may take for a line what the wire does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

import msgspec

_REQUESTER: Final = b"Nats-Request-Info"
_MARK: Final = b"\r\n" + _REQUESTER + b":"
_FORGED: Final = (
    rb"(?:\r\n|\r|\n)[ \t]*((?:%b)[ \t]*:[^\r\n]*(?:(?:\r\n|\r|\n)[ \t][^\r\n]*)*)"  # and its folds
)
_NAME: Final = re.compile(rb"^([^:\r\n]+):", re.M)
_OURS: Final = b"nats-"
_EMPTY_LINE: Final = re.compile(rb"\r\n\r\n|\n\r?\n|\r\r")
_VERSION: Final = b"NATS/1.0"
_BARE: Final = _VERSION + b"\r\n"
_END: Final = b"\r\n\r\n"


def with_requester(headers: bytes, who: Mapping[str, Any]) -> bytes:
    """The header block of a request with ``who`` asks, and nobody else who is said to."""
    line = b"%b: %b\r\n" % (_REQUESTER, msgspec.json.encode(who))
    return _with(headers, line)


def without_requester(headers: bytes) -> bytes:
    """A block to be stored: ``b""`` if it says nothing else. Nobody asked who reads it later."""
    if _MARK not in headers:
        return headers
    kept = [line for line in headers.split(b"\r\n") if not line.startswith(_MARK[2:])]
    return b"" if kept[0] == _VERSION and not any(kept[1:]) else b"\r\n".join(kept)


def with_place(headers: bytes, lines: bytes, form: bytes = b"") -> bytes:
    """A stored message's block with what the stream says of it, and without what its publisher did.

    ``form`` has the names of ``lines`` where these differ each time, as a template does.
    """
    if not headers:
        return b"%b\r\n%b\r\n" % (_VERSION, lines)
    if _are_plain(headers, 1, form or lines) and headers[-4:] == _END != headers:
        return headers[:-2] + lines + b"\r\n"
    return _with(headers, lines)


def with_places(blocks: Sequence[bytes], lines: bytes) -> list[bytes]:
    """``with_place`` for many blocks and the same lines: looked at together, when all are plain."""
    if not _are_all_plain(blocks, lines):
        return [with_place(block, lines) for block in blocks]
    bare, end = with_place(b"", lines), lines + b"\r\n"
    return [block[:-2] + end if block else bare for block in blocks]


def with_own_places(blocks: Sequence[bytes], each: Sequence[bytes], form: bytes) -> list[bytes]:
    """``with_place`` for many blocks, each with lines of its own that have the names of ``form``."""
    pairs = zip(blocks, each, strict=True)
    if not _are_all_plain(blocks, form):
        return [with_place(block, lines, form) for block, lines in pairs]
    return [b"%b%b\r\n" % (block[:-2] or _BARE, lines) for block, lines in pairs]


def with_new_place(headers: bytes, lines: bytes) -> bytes:
    """The headers of a copy that goes on; what was said before becomes ``Was-…``.

    So streams that republish into each other end when the headers are full.
    """
    if not headers:
        return b"%b\r\n%b\r\n" % (_VERSION, lines)
    return _with(headers, lines, rb"\r\nWas-\1")


def _with(headers: bytes, lines: bytes, instead: bytes = b"") -> bytes:
    """The block with true lines at its end, and no others of their names.

    What stands behind an empty line, where readers stop, is cut off: the last lines have to be seen.
    """
    end = _EMPTY_LINE.search(headers)
    block = (headers if end is None else headers[: end.start()]) or _VERSION
    if _OURS in block.lower():
        block = _lines_named(tuple(_NAME.findall(lines))).sub(instead, block)
    return b"%b\r\n%b\r\n" % (block.rstrip(b"\r\n"), lines)


def _are_all_plain(blocks: Sequence[bytes], lines: bytes) -> bool:
    """Whether several blocks, all but the empty ones, are plain."""
    count = len(blocks) - blocks.count(b"")
    ends = [block[-4:] for block in blocks].count(_END)
    return (
        count > 1
        and ends == count
        and _END not in blocks
        and _are_plain(b"".join(blocks), count, lines)
    )


def _are_plain(text: bytes, count: int, lines: bytes) -> bool:
    """Whether blocks, one after the other, have no empty lines but ``count``, and say no name of ``lines``.

    Each that ends with one has no other then. One that says a name and a colon in a value is not plain
    either.
    """
    text = text.lower()
    if (
        text.count(b"\n\r\n") != count or b"\n\r\n\r\n" in text
    ):  # the count sees one of two in a row
        return False
    if b"\n\n" in text or b"\r\r" in text:
        return False
    # `Nats-Stream-Source:` does not say `Nats-Stream`.
    said = [name for name, before_colon in _names_in(lines) if name in text and before_colon(text)]
    return not said


@lru_cache(maxsize=64)  # a few at a time: one per pin
def _names_in(lines: bytes) -> list[tuple[bytes, Callable[[bytes], object]]]:
    """Each name in small letters, and what finds it before a colon."""
    names = [name.lower() for name in _NAME.findall(lines)]
    return [(name, re.compile(re.escape(name) + rb"[ \t]*:").search) for name in names]


@cache
def _lines_named(names: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """Finds the lines of a block with one of these names; there are few sets of them."""
    return re.compile(_FORGED % b"|".join(map(re.escape, names)), re.I)
