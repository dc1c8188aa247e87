"""Shows payloads: as JSON, as text or as hexadecimal, with a preview of one line. Pure.

Browsers only ever get text: nothing of a payload is markup, and nothing of it is run.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from ..api.base import DocumentError, read_json

Kind = Literal["empty", "json", "text", "binary"]

PREVIEW_CHARACTERS: Final = 160
SHOWN_BYTES: Final = 256 * 1024  # more is cut, and said to be
PRETTY_BYTES_MAX: Final = 4 * 1024 * 1024
_NESTING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]+|[\]}]+')
_ESCAPED: Final = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|[^u])"
)
_PRINTABLE_SHARE: Final = 0.95


def kind_of(payload: bytes) -> Kind:
    """Guess what a payload is. Long ones are judged by their beginning."""
    if not payload:
        return "empty"
    begin = payload[:SHOWN_BYTES]
    try:
        text = begin.decode()
    except UnicodeDecodeError as error:
        # A character may have been cut in two by the limit, nowhere else.
        if len(payload) <= SHOWN_BYTES or error.start < len(begin) - 4:
            return "binary"
        text = begin[: error.start].decode()
    if len(payload) <= SHOWN_BYTES and text.lstrip()[:1] in ("{", "["):
        try:
            read_json(begin)
        except DocumentError:
            pass
        else:
            return "json"
    readable = sum(each.isprintable() or each in "\r\n\t" for each in text)
    return "text" if readable >= _PRINTABLE_SHARE * len(text) else "binary"


def preview(payload: bytes) -> str:
    """One line about a payload: its beginning, spaces and control characters drawn together."""
    if kind_of(payload) == "binary":
        shown = payload[:32].hex(" ")
        return shown + (" …" if len(payload) > 32 else "")
    text = payload[: PREVIEW_CHARACTERS * 4].decode("utf-8", "replace")
    line = "".join(each if each.isprintable() else " " for each in " ".join(text.split()))
    return line[:PREVIEW_CHARACTERS] + ("…" if len(line) > PREVIEW_CHARACTERS else "")


def shown(payload: bytes) -> dict[str, Any]:
    """A payload for the page of one message: ``kind``, ``text`` (empty for binary), ``pretty`` (JSON
    only), ``hex``, ``bytes``, ``cut``."""
    kind = kind_of(payload)
    begin = payload[:SHOWN_BYTES]
    text = "" if kind == "binary" else begin.decode("utf-8", "replace")
    pretty = _pretty(begin) if kind == "json" else ""
    return {
        "kind": "text" if kind == "json" and not pretty else kind,
        "text": text,
        "pretty": pretty,
        "hex": _hex_lines(begin[: SHOWN_BYTES // 16]),
        "bytes": len(payload),
        "cut": len(payload) > SHOWN_BYTES,
    }


def _pretty(data: bytes) -> str:
    """JSON on lines of its own, here and not in the browser, whose numbers lose digits.

    Empty where indentation alone would take ``PRETTY_BYTES_MAX``: it grows with the square of what a
    stranger nests.
    """
    opened = data.count(b"[") + data.count(b"{")
    lines = 2 * opened + data.count(b",")
    if 2 * lines * opened > PRETTY_BYTES_MAX and 2 * lines * _depth(data) > PRETTY_BYTES_MAX:
        return ""
    return _ESCAPED.sub(_character, msgspec.json.format(data).decode())


def _character(escaped: re.Match[str]) -> str:
    """Resolve an escape of JSON, if what it stands for can be seen and means itself."""
    high, low, single = escaped.groups()
    if high:
        code = 0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00
    elif single:
        code = int(single, 16)
    else:
        return escaped[0]
    found = chr(code)
    return found if found.isprintable() and found not in '"\\' else escaped[0]


def _depth(data: bytes) -> int:
    """Depth of JSON at its deepest place."""
    depth = deepest = 0
    for found in _NESTING.finditer(data):
        run = found[0]
        if run[0] in b"[{":
            depth += len(run)
            deepest = max(deepest, depth)
        elif run[0] in b"]}":
            depth -= len(run)
    return deepest


def _hex_lines(data: bytes) -> str:
    """Sixteen bytes a line: offset, hexadecimal, characters."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        characters = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {characters}")
    return "\n".join(lines)
