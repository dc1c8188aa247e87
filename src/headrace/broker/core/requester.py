"""``Nats-Request-Info``: who asks a service of another account, which only the server may say.

Whatever a client says under this name is taken away before the server says it, however it is written: in
capitals or not, twice, behind a bare line feed, folded. A service's client library may read what the wire
does not count as a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

__all__ = ["with_requester", "without_requester"]

_NAME: Final = b"Nats-Request-Info"
_MARK: Final = b"\r\n" + _NAME + b":"
_FORGED: Final = re.compile(
    rb"(?:\r\n|\r|\n)[ \t]*nats-request-info[ \t]*:[^\r\n]*(?:(?:\r\n|\r|\n)[ \t][^\r\n]*)*", re.I
)
_EMPTY_LINE: Final = re.compile(rb"\r\n\r\n|\n\r?\n|\r\r")
_VERSION: Final = b"NATS/1.0"


def with_requester(headers: bytes, who: Mapping[str, Any]) -> bytes:
    """The header block of a request with ``who`` asks, and nobody else who is said to.

    What stands behind an empty line, where readers stop, is cut off: the last line has to be seen.
    """
    end = _EMPTY_LINE.search(headers)
    block = (headers if end is None else headers[: end.start()]) or _VERSION
    if _NAME.lower() in block.lower():
        block = _FORGED.sub(b"", block)
    return b"%b\r\n%b: %b\r\n\r\n" % (block.rstrip(b"\r\n"), _NAME, msgspec.json.encode(who))


def without_requester(headers: bytes) -> bytes:
    """A block to be stored: ``b""`` if it says nothing else. Nobody asked who reads it later."""
    if _MARK not in headers:
        return headers
    kept = [line for line in headers.split(b"\r\n") if not line.startswith(_MARK[2:])]
    return b"" if kept[0] == _VERSION and not any(kept[1:]) else b"\r\n".join(kept)
