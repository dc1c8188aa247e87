"""What a stream looks at in the header block of a published message.

Header names are compared as the public server compares its own: exactly. The first of repeated headers
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["MARK", "header_value", "message_id", "message_ids", "read_headers"]

MARK: Final = b"\r\nNats-"
"""What a header of the server's own begins with, in a block."""
_MSG_ID: Final = b"\r\nNats-Msg-Id:"
_BEGIN, _END = b"NATS/1.0\r\nNats-Msg-Id: ", b"\r\n\r\n"  # of a block that has nothing else
_BETWEEN: Final = b"\0"


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


def message_ids(blocks: Sequence[bytes]) -> list[bytes]:
    """The ``Nats-Msg-Id`` of each, if none has anything else; else nothing.

    Of ids with blanks in them, and of everything else that is not usual, nothing is known, either: it has
    to be looked at block by block.
    """
    text = _BETWEEN.join(blocks)
    if not (text.startswith(_BEGIN) and text.endswith(_END)):
        return []
    found = text[len(_BEGIN) : -len(_END)].split(_END + _BETWEEN + _BEGIN)
    # Where a block ends is sure only if no block has what was put between them.
    ids = _BETWEEN.join(found)
    is_usual = (
        len(found) == len(blocks) == ids.count(_BETWEEN) + 1
        and len(ids.split()) == 1
        and b"" not in found
    )
    return found if is_usual else []


def header_value(block: bytes, name: bytes) -> bytes:
    """The value of the first header of this name, or ``b""``."""
    start = block.find(b"\r\n%b:" % name)
    if start < 0:
        return b""
    start += len(name) + 3
    return block[start : block.index(b"\r\n", start)].strip()
