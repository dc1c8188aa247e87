"""What a stream looks at in the header block of a published message.

Header names are compared as the public server compares its own: exactly. The first of repeated headers
counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from ..config.ranges import read_number

MARK: Final = b"\r\nNats-"
"""What a header of the server's own begins with, in a block."""
_MSG_ID: Final = b"\r\nNats-Msg-Id:"
_VERSION: Final = b"NATS/1.0"
_BEGIN, _END = b"NATS/1.0\r\nNats-Msg-Id: ", b"\r\n\r\n"  # of a block that has nothing else
_BETWEEN: Final = b"\0"
_EXPECTED: Final = (
    rb"NATS/1\.0(?:\r\n(?!Nats-)[^\r]*)*\r\nNats-Expected-Last-%bSequence: ([0-9]{1,18})\r\n"
)
_expectation: Final = re.compile(_EXPECTED % b"Subject-").match
_expected_place: Final = re.compile(_EXPECTED % b"").match


def is_block(headers: bytes) -> bool:
    """Whether it is a header block: the version in front, an empty line at the end."""
    return headers.startswith(_VERSION) and headers.endswith(_END)


def read_headers(block: bytes) -> dict[bytes, bytes]:
    """The ``Nats-…`` headers of a raw header block; values without the spaces in front, as from the public
    server: what else is around them belongs to them."""
    if MARK not in block:
        return {}
    found: dict[bytes, bytes] = {}
    for line in block.split(b"\r\n"):
        if line.startswith(b"Nats-"):
            name, colon, value = line.partition(b":")
            if colon and name not in found:
                found[name] = value.lstrip(b" ")
    return found


def message_id(block: bytes) -> bytes:
    """The value of ``Nats-Msg-Id``, or ``b""``."""
    start = block.find(_MSG_ID)
    if start < 0:
        return b""
    return _line(block, start + len(_MSG_ID))


def sole_message_ids(blocks: Sequence[bytes]) -> list[bytes] | None:
    """The ``Nats-Msg-Id`` of each block: all have one, or none has, and the list is empty.

    None if one has anything else of the server's own, or what is not usual enough to be told from it at a
    glance.
    """
    # A mark cannot stand across a border of two blocks.
    text = _BETWEEN.join(blocks)
    if text.startswith(_BEGIN) and text.endswith(_END):
        found = text[len(_BEGIN) : -len(_END)].split(_END + _BETWEEN + _BEGIN)
        names = _BETWEEN.join(found)
        if (
            len(found)
            == len(blocks)
            == names.count(_BETWEEN) + 1  # the borders are the blocks' own
            and names.split() == [names]
            and b"" not in found
        ):
            return found
    marks = text.count(MARK)
    if not marks:
        return []
    if not marks == text.count(_MSG_ID) == len(blocks):
        return None
    found = list(map(message_id, blocks))
    return None if b"" in found else found


def sole_expectations(blocks: Sequence[bytes]) -> list[int] | None:
    """The last sequence of its subject that each of these expects; None if one says anything else.

    "Anything else" is of the server's own, or not usual enough to be told from it at a glance.
    """
    return _sole_numbers(blocks, _expectation)


def sole_places(blocks: Sequence[bytes]) -> list[int] | None:
    """The last sequence of the stream that each of these expects; otherwise as ``sole_expectations``."""
    return _sole_numbers(blocks, _expected_place)


def _sole_numbers(
    blocks: Sequence[bytes], number_of: Callable[[bytes], re.Match[bytes] | None]
) -> list[int] | None:
    if number_of(blocks[0]) is None:
        return None
    # A mark cannot stand across a border of two blocks. Each has one: so it has no other.
    if _BETWEEN.join(blocks).count(MARK) != len(blocks):
        return None
    found = list(map(number_of, blocks))
    return None if None in found else [int(each[1]) for each in found if each]


def header_value(block: bytes, name: bytes) -> bytes:
    """The value of the first header of this name, or ``b""``."""
    start = block.find(b"\r\n%b:" % name)
    if start < 0:
        return b""
    return _line(block, start + len(name) + 3)


def _line(block: bytes, start: int) -> bytes:
    """The rest of a line, without the spaces in front; of the last one if its end is missing."""
    end = block.find(b"\r\n", start)
    return block[start : end if end >= 0 else len(block)].lstrip(b" ")


_LEVEL: Final = b"Nats-Required-Api-Level"


def required_level_too_high(headers: bytes, level: int) -> bool:
    """Whether a request demands a higher level than ours."""
    if _LEVEL not in headers:
        return False
    wanted = read_number(read_headers(headers).get(_LEVEL, b""))
    return wanted is None or wanted > level
