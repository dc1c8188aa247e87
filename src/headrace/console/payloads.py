"""How a payload is shown: as JSON, as text or as hexadecimal, with a preview of one line. Pure.

Browsers only ever get text: nothing of a payload is markup, and nothing of it is run.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from ..api.base import DocumentError, read_json

Kind = Literal["empty", "json", "text", "binary"]

PREVIEW_CHARACTERS: Final = 160
SHOWN_BYTES: Final = 256 * 1024  # more is cut, and said to be
_PRINTABLE_SHARE: Final = 0.95


def kind_of(payload: bytes) -> Kind:
    """What a payload seems to be. Long ones are judged by their beginning."""
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
    return {
        "kind": kind,
        "text": text,
        # Made readable here, not in the browser, whose numbers lose digits.
        "pretty": msgspec.json.format(begin).decode() if kind == "json" else "",
        "hex": _hex_lines(begin[: SHOWN_BYTES // 16]),
        "bytes": len(payload),
        "cut": len(payload) > SHOWN_BYTES,
    }


def _hex_lines(data: bytes) -> str:
    """Sixteen bytes a line: offset, hexadecimal, characters."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        characters = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {characters}")
    return "\n".join(lines)
