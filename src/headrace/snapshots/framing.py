"""The Snappy framing format with the S2 identifier: chunks with a checksum, compressed or not.

We write chunks as they are: compressing in Python would cost the loop more than the network saves.
Reading knows all of S2: repeated offsets, blocks of up to 4 MiB, indexes and padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .contents import SnapshotFormatError
from .crc32c import crc32c, masked
from .s2_block import BlockDecoder

IDENTIFIER: Final = b"\xff\x06\x00\x00S2sTwO"
FRAME_BYTES_MAX: Final = 4 << 20  # of data in one chunk

_NAMES: Final = (b"S2sTwO", b"sNaPpY")
_COMPRESSED: Final = 0x00
_PLAIN: Final = 0x01
_IDENTIFIER: Final = 0xFF
_SKIPPABLE: Final = 0x80
_BODY_MAX: Final = FRAME_BYTES_MAX + (FRAME_BYTES_MAX >> 3) + 64
"""More than S2 makes of any block of 4 MiB."""


def frame(data: bytes) -> bytes:
    """One chunk that holds ``data``, at most 4 MiB of it, as it is."""
    head = bytes((_PLAIN,)) + (len(data) + 4).to_bytes(3, "little")
    return b"".join((head, masked(crc32c(data)).to_bytes(4, "little"), data))


class FrameReader:
    """Reads frames from chunks of bytes cut anywhere, a bounded piece of work at a time.

    ``feed`` what came, then ask ``step`` until it returns None: more is needed. ``step`` returns the
    data it has decoded, or nothing yet, of the frame it is at. Raises SnapshotFormatError.
    """

    def __init__(self) -> None:
        self._input = bytearray()
        self._identified = False
        self._block: BlockDecoder | None = None
        self._crc = 0

    @property
    def buffered(self) -> int:
        """How many bytes it holds that it has not decoded."""
        return len(self._input)

    @property
    def at_end(self) -> bool:
        """Whether the input so far ends where a frame does."""
        return self._identified and not self._input and self._block is None

    def feed(self, chunk: bytes) -> None:
        self._input += chunk

    def step(self) -> bytes | None:
        """Decode some; ``b""`` when there is nothing yet, None when it needs more input."""
        if self._block is not None:
            return self._unpack_some(self._block)
        taken = self._take_chunk()
        if taken is None:
            return None
        kind, body = taken
        if kind == _IDENTIFIER:
            if body not in _NAMES:
                raise SnapshotFormatError("the frames are neither of S2 nor of Snappy")
            self._identified = True
        elif kind == _PLAIN:
            return self._checked(body[4:], int.from_bytes(body[:4], "little"))
        elif kind == _COMPRESSED:
            self._crc = int.from_bytes(body[:4], "little")
            self._block = BlockDecoder(body[4:], FRAME_BYTES_MAX)
        elif kind < _SKIPPABLE:
            raise SnapshotFormatError(f"a frame of the unknown kind {kind:#x}")
        return b""

    def drain(self) -> Iterator[bytes]:
        """``step`` until more input is needed; the data alone."""
        while (data := self.step()) is not None:
            if data:
                yield data

    def _take_chunk(self) -> tuple[int, bytes] | None:
        waiting = self._input
        if len(waiting) < 4:
            return None
        kind, size = waiting[0], int.from_bytes(waiting[1:4], "little")
        if not self._identified and kind != _IDENTIFIER:
            raise SnapshotFormatError("the data does not begin as S2 or Snappy frames do")
        if kind in (_COMPRESSED, _PLAIN) and not 4 <= size <= _BODY_MAX:
            raise SnapshotFormatError(f"a frame of {size} bytes")
        if len(waiting) < 4 + size:
            return None
        body = bytes(memoryview(waiting)[4 : 4 + size])
        del waiting[: 4 + size]
        return kind, body

    def _unpack_some(self, block: BlockDecoder) -> bytes:
        if not block.run():
            return b""
        self._block = None
        return self._checked(bytes(block.output), self._crc)

    def _checked(self, data: bytes, expected: int) -> bytes:
        if len(data) > FRAME_BYTES_MAX:
            raise SnapshotFormatError(f"a frame holds {len(data)} bytes")
        if masked(crc32c(data)) != expected:
            raise SnapshotFormatError("a frame's checksum is wrong")
        return data
