"""The version of a store's format: which this program reads, and the file that says it.

The number of the store's format is one for the whole directory and each file in it. It moves with each
change after which a program that knows only the number before would misread something, or write what is
misread later. What such a program passes over without harm does not move it. The file ``format`` in the
store's directory has it twice, each line with a CRC-32 of its words. A store without that file was written
before there was one: its number is 1.

Number 2 was a store's whose acknowledged messages lay in part in a commit log, from its first use until
the store was closed; then it had number 1 again, with a word about that log, which says nothing any more.
There is no such log now, and number 2 is not given again.

With number 3 a stream has a directory from its first message on. A program that knows only number 1 takes
one without for deleted, and forgets it.
"""

from __future__ import annotations

import re
from typing import Final
from zlib import crc32

from ....errors import StoreFormatError

STORE_FORMAT: Final = 3
"""What this version writes; it reads this and all before, but for that of a log."""
LOGGED_FORMAT: Final = 2
FIRST_FORMAT: Final = 1
FORMAT_BYTES_MAX: Final = 256
_LINE: Final = re.compile(
    rb"(headrace store, format (\d{1,9})(?:, log [0-9a-f]{16})?) ([0-9a-f]{8})", re.ASCII
)


def is_known(number: int) -> bool:
    """Whether this version reads what has this number."""
    return FIRST_FORMAT <= number <= STORE_FORMAT and number != LOGGED_FORMAT


def encode_format(number: int) -> bytes:
    """The content of the file ``format``."""
    words = b"headrace store, format %d" % number
    return (words + b" %08x\n" % crc32(words)) * 2


def decode_format(data: bytes) -> tuple[int, bool]:
    """The number, 0 if there is none to be read; and whether the file is damaged."""
    lines = data.splitlines()
    found = [match for match in map(_LINE.fullmatch, lines) if match is not None]
    whole = [match for match in found if int(match[3], 16) == crc32(match[1])]
    number = max([int(match[2]) for match in whole], default=0)
    return number, bool(data) and (len(whole) < 2 or data != (whole[0][0] + b"\n") * 2)


def refused(path: str, number: int) -> StoreFormatError:
    """The error for what was written by a newer version."""
    return StoreFormatError(
        f"{path} has store format {number}, of a newer Headrace; this version reads formats up to "
        f"{STORE_FORMAT}. Start the newer version, or restore a backup with this one"
    )


def refused_log(root: str) -> StoreFormatError:
    """The error for a store of which a commit log has messages that the other files lack."""
    return StoreFormatError(
        f"{root} was not stopped by the version that used it, and messages of it are only in its "
        f"commit-log, which this version does not read. Start that version once more and stop it with "
        f"SIGTERM: then this one opens the store"
    )
