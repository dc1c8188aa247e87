"""The second place of a segment's removals: a file beside it that says them again.

A damaged block, or a file that was cut off, takes messages with it, which can be told; and it takes the
records of removals, after which others would come back. So each removal is also recorded in
``0000000001.removed``, written once the batch is on disk, and not synced for itself. It holds REMOVAL
records behind a header. Their sequence, the last one of the stream at the time, was durable by then.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .entries import FILE_HEADER_BYTES, decode_file_header, encode_file_header
from .record import REMOVAL, ranges_of, scan

_MAGIC: Final = b"HRREMOVD"
NAME_END: Final = ".removed"


class RemovalCopy(NamedTuple):
    """What such a file says: the ranges, up to which sequence all was durable, and where it ends."""

    ranges: list[tuple[int, int]]
    last_seq: int
    end: int


def copy_path(directory: str, serial: int) -> str:
    """Where the copy of a segment's removals lies."""
    return f"{directory}/{serial:010d}{NAME_END}"


def encode_start(serial: int, salt: int) -> bytes:
    """What the file begins with."""
    return encode_file_header(_MAGIC, salt, serial)


def decode_copy(data: bytes, path: str, serial: int, salt: int | None) -> RemovalCopy:
    """What can be read of it; ``salt`` is the segment's, where that is known.

    Raises StoreFormatError when the file was written by a version this one cannot read.
    """
    header = decode_file_header(_MAGIC, data, path)
    if header is not None and header[0] == serial:
        salt = header[1]
    ranges: list[tuple[int, int]] = []
    last_seq = 0
    for found in scan(data, FILE_HEADER_BYTES, len(data), salt) if salt is not None else ():
        if found.kind == REMOVAL:
            ranges += ranges_of(data, found)
            last_seq = max(last_seq, found.sequence)
    return RemovalCopy(ranges, last_seq, len(data))
