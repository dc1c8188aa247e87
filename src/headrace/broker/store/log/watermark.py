"""The watermark: a hint how far a log was durable, rewritten in place and never synced for itself.

After a crash of the process it is exact; after a power cut it may be some seconds old, never too high
in ``sync = "always"``. With it recovery tells a torn write, which nobody was told about, from the loss
of acknowledged messages, and does not use their sequences again.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

from ..io.files import FileSystem, read_around

__all__ = ["Watermark", "read_watermark"]

_LAYOUT = struct.Struct("<QQQ")
_U32 = struct.Struct("<I")


class Watermark(NamedTuple):
    """Durable up to a sequence, and in the file numbered ``serial`` up to an offset."""

    sequence: int
    serial: int
    end: int

    def encode(self) -> bytes:
        body = _LAYOUT.pack(*self)
        return body + _U32.pack(crc32(body))


def read_watermark(fs: FileSystem, path: str) -> tuple[Watermark, bool]:
    """The watermark in a file, zeros if there is none; and whether the file is damaged."""
    nothing = Watermark(0, 0, 0)
    if not fs.exists(path):
        return nothing, False
    handle = fs.open(path)
    try:
        data = read_around(fs, handle, _LAYOUT.size + 4, 0)
    finally:
        fs.close(handle)
    if not data.strip(b"\0"):
        return nothing, False
    body = data[: _LAYOUT.size]
    if len(data) != _LAYOUT.size + 4 or _U32.unpack(data[_LAYOUT.size :])[0] != crc32(body):
        return nothing, True
    return Watermark(*_LAYOUT.unpack(body)), False
