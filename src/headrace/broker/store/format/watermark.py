"""The watermark: a hint how far a log was durable, rewritten in place and never synced for itself.

After a crash of the process it is exact; after a power cut it may be some seconds old, never too high
in ``sync = "always"``. With it recovery tells a torn write, which nobody was told about, from the loss
of acknowledged messages, and does not use their sequences again.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from zlib import crc32

_LAYOUT: Final = struct.Struct("<QQQ")
_U32: Final = struct.Struct("<I")
WATERMARK_BYTES: Final = _LAYOUT.size + _U32.size


class Watermark(NamedTuple):
    """Durable up to a sequence, and in the file numbered ``serial`` up to an offset."""

    sequence: int
    serial: int
    end: int

    def encode(self) -> bytes:
        body = _LAYOUT.pack(*self)
        return body + _U32.pack(crc32(body))


def decode_watermark(data: bytes) -> tuple[Watermark, bool]:
    """The watermark in the bytes of its file, zeros if there is none; and whether it is damaged."""
    nothing = Watermark(0, 0, 0)
    if not data.strip(b"\0"):
        return nothing, False
    body = data[: _LAYOUT.size]
    if len(data) != WATERMARK_BYTES or _U32.unpack(data[_LAYOUT.size :])[0] != crc32(body):
        return nothing, True
    return Watermark(*_LAYOUT.unpack(body)), False
