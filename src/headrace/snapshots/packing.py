"""Writing a backup of the older form, a tar of files, which every nats-server reads.

Messages go into files of some megabytes, gaps between them stay gaps. The end has a record for the last
sequence if its message is no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from . import tar
from .consumer_state import encode_state
from .contents import (
    Began,
    ConsumerContent,
    Content,
    Ended,
    MessageContent,
    SnapshotFormatError,
)
from .framing import IDENTIFIER, frame
from .records import HighwayHash, block_hash, encode_erased, encode_record

_BLOCK_BYTES: Final = 4 << 20
_FRAME_BYTES: Final = 256 << 10
_NS: Final = 1_000_000_000


class FilesPacker:
    """Turns what a backup says into the bytes of a tar, in frames: ``add`` everything, in order."""

    def __init__(self, config: Mapping[str, Any], now_ns: int) -> None:
        """``config`` is the document of the stream's configuration."""
        self._config = config
        self._stream = str(config["name"])
        self._now_ns = now_ns
        self._out = bytearray()
        self._block = bytearray()
        self._number = 1
        self._hashes = block_hash(self._stream, 1)
        self._last = 0
        self._consumers: list[ConsumerContent] = []
        self._begun = False

    def add(self, content: Content) -> Iterator[bytes]:
        """Take in one thing; yields frames that are ready."""
        if isinstance(content, MessageContent):
            self._message(content)
        elif isinstance(content, ConsumerContent):
            self._consumers.append(content)
        elif isinstance(content, Began):
            self._begin(content)
        else:
            self._end(content)
        while len(self._out) >= _FRAME_BYTES or (isinstance(content, Ended) and self._out):
            data = bytes(self._out[:_FRAME_BYTES])
            del self._out[:_FRAME_BYTES]
            yield (b"" if self._begun else IDENTIFIER) + frame(data)
            self._begun = True

    def _begin(self, began: Began) -> None:
        meta = {"Created": began.created or _ZERO, **self._config}
        self._described("", json.dumps(meta).encode(), self._stream)
        self._last = max(began.first_seq - 1, 0)

    def _message(self, message: MessageContent) -> None:
        if message.sequence <= self._last:
            raise SnapshotFormatError(f"message {message.sequence} comes after {self._last}")
        self._last = message.sequence
        self._block += encode_record(self._hashes, *message)
        if len(self._block) >= _BLOCK_BYTES:
            self._end_block()

    def _end(self, ended: Ended) -> None:
        if ended.removed:
            raise SnapshotFormatError("a backup of the older form is not written anew")
        last_seq = max(ended.last_seq, ended.first_seq - 1)
        if last_seq > self._last or (not self._block and self._number == 1 and last_seq):
            self._block += encode_erased(self._hashes, last_seq, self._now_ns)
        if self._block:
            self._end_block()
        for consumer in self._consumers:
            folder = f"obs/{consumer.name}/"
            created = {"Created": consumer.created or _ZERO, "Name": consumer.name}
            body = json.dumps({**created, **consumer.config}).encode()
            self._described(folder, body, f"{self._stream}/{consumer.name}")
            self._file(folder + "o.dat", encode_state(consumer.state, self._now_ns))
        self._out += tar.END

    def _end_block(self) -> None:
        self._file(f"msgs/{self._number}.blk", bytes(self._block))
        self._block.clear()
        self._number += 1
        self._hashes = block_hash(self._stream, self._number)

    def _described(self, folder: str, body: bytes, key: str) -> None:
        """A configuration and its checksum."""
        digest = HighwayHash(sha256(key.encode()).digest()).digest(body)
        self._file(folder + "meta.inf", body)
        self._file(folder + "meta.sum", digest.hex().encode())

    def _file(self, name: str, body: bytes) -> None:
        self._out += tar.header(name, len(body), self._now_ns // _NS)
        self._out += body
        self._out += bytes(tar.padding(len(body)))


_ZERO: Final = "0001-01-01T00:00:00Z"
