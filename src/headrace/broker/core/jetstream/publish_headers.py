"""What a stream looks at in the header block of a published message.

Header names are compared as the public server compares its own: exactly. The first of repeated headers
counts.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MARK", "header_value", "message_id", "read_headers"]

MARK: Final = b"\r\nNats-"
"""What a header of the server's own begins with, in a block."""
_MSG_ID: Final = b"\r\nNats-Msg-Id:"


def read_headers(block: bytes) -> dict[bytes, bytes]:
    """The ``Nats-…`` headers of a raw header block; values without surrounding blanks."""
    if MARK not in block:
        return {}
    found: dict[bytes, bytes] = {}
    for line in block.split(b"\r\n"):
        if line.startswith(b"Nats-"):
            name, colon, value = line.partition(b":")
            if colon and name not in found:
                found[name] = value.strip()
    return found


def message_id(block: bytes) -> bytes:
    """The value of ``Nats-Msg-Id``, or ``b""``."""
    start = block.find(_MSG_ID)
    if start < 0:
        return b""
    start += len(_MSG_ID)
    return block[start : block.index(b"\r\n", start)].strip()


def header_value(block: bytes, name: bytes) -> bytes:
    """The value of the first header of this name, or ``b""``."""
    start = block.find(b"\r\n%b:" % name)
    if start < 0:
        return b""
    start += len(name) + 3
    return block[start : block.index(b"\r\n", start)].strip()
