"""The number of the store's format: one for the whole directory and each file in it.

It moves with each change after which a program that knows only the number before would misread something,
or write what is misread later. What such a program passes over without harm does not move it. The file
``format`` in the store's directory has it twice, each line with a CRC-32 of its words. A store without that
file was written before there was one: its number is 1.

The files of streams and of metadata have number 1. The directory has 2 while a commit log is in use
(``batch.py``), of which a program that knows only 1 would not take what the other files lack. A store that
was closed has no log, and number 1 again. Which log it is, or was, stands there, too: another one, as of an
older copy of the store, is not to be read, and one that is not there is missed.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from zlib import crc32

from ....errors import StoreFormatError

STORE_FORMAT: Final = 2
"""The newest there is of a directory: this version reads it and all before."""
FILE_FORMAT: Final = 1
"""What the header of a file says."""
LOG_FORMAT: Final = 2
"""What the header of a commit log's file says."""
FIRST_FORMAT: Final = 1
FORMAT_BYTES_MAX: Final = 256
_LINE: Final = re.compile(
    rb"(headrace store, format (\d{1,9})(?:, log ([0-9a-f]{16}))?) ([0-9a-f]{8})", re.ASCII
)


def is_known(number: int) -> bool:
    """Whether this version reads a file whose header has this number."""
    return FIRST_FORMAT <= number <= FILE_FORMAT


class Format(NamedTuple):
    """The number, 0 if there is none to be read; and the commit log that was made last, 0 for none."""

    number: int
    log: int = 0


def encode_format(said: Format) -> bytes:
    """The content of the file ``format``."""
    words = b"headrace store, format %d" % said.number
    if said.log:
        words += b", log %016x" % said.log
    return (words + b" %08x\n" % crc32(words)) * 2


def decode_format(data: bytes) -> tuple[Format, bool]:
    """What the file says; and whether it is damaged."""
    lines = data.splitlines()
    found = [match for match in map(_LINE.fullmatch, lines) if match is not None]
    formats = [
        Format(int(match[2]), int(match[3] or b"0", 16))
        for match in found
        if int(match[4], 16) == crc32(match[1])
    ]
    said = max(formats, default=Format(0))
    return said, bool(data) and data != encode_format(said)


def refused(path: str, number: int, known: int) -> StoreFormatError:
    """The error for what was written by a newer version, where this one knows formats up to ``known``."""
    return StoreFormatError(
        f"{path} has store format {number}, of a newer Headrace; this version reads formats up to "
        f"{known}. Start the newer version, or restore a backup with this one"
    )
