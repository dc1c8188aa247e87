"""Backups of streams: read to the end or refused, however they are cut, and never anything else."""

from __future__ import annotations

import json
import random
from hashlib import sha256

from headrace.snapshots import tar
from headrace.snapshots.archive import (
    END,
    MAGIC,
    ArchiveReader,
    consumer_entry,
    message_entry,
    state_entry,
)
from headrace.snapshots.consumer_state import decode_state, encode_state
from headrace.snapshots.contents import (
    ConsumerState,
    Content,
    Delivery,
    SnapshotFormatError,
)
from headrace.snapshots.framing import IDENTIFIER, BlockDecoder, FrameReader, frame
from headrace.snapshots.records import HighwayHash, block_hash, encode_record
from headrace.snapshots.store_files import FilesReader
from mutation import Target

NOW = 1_700_000_000_000_000_000
BLOCK_MAX = 1 << 16
PLACE = ConsumerState((9, 8), (4, 3), {5: Delivery(6, NOW), 8: Delivery(9, NOW)}, {5: 2})


def _described(folder: str, key: str, **config: object) -> bytes:
    body = json.dumps({"name": "S", **config}).encode()
    digest = HighwayHash(sha256(key.encode()).digest()).digest(body).hex().encode()
    return _file(f"{folder}meta.inf", body) + _file(f"{folder}meta.sum", digest)


def _file(name: str, body: bytes) -> bytes:
    return tar.header(name, len(body), 0) + body + bytes(tar.padding(len(body)))


_HASHES = block_hash("S", 1)
_ARCHIVE = b"".join(
    (
        MAGIC,
        state_entry({"first_seq": 1, "last_seq": 3, "consumer_count": 1}, NOW),
        consumer_entry("C", {"name": "C"}, PLACE, NOW),
        message_entry(1, b"s.1", b"", b"payload", NOW),
        message_entry(3, b"s.1", b"NATS/1.0\r\nA: b\r\n\r\n", b"", NOW),
        END,
    )
)
_RECORDS = encode_record(_HASHES, 1, b"s", b"NATS/1.0\r\n\r\n", b"x", NOW)
_FILES = b"".join(
    (
        _described("", "S"),
        _file("msgs/1.blk", _RECORDS + encode_record(_HASHES, 2, b"s", b"", b"y", NOW)),
        _described("obs/C/", "S/C", Name="C"),
        _file("obs/C/o.dat", encode_state(PLACE, NOW)),
        tar.END,
    )
)
_FRAMES = IDENTIFIER + frame(b"abc") + b"\xfe\x01\0\0x" + frame(b"defgh" * 20)
_BLOCK = b"\x20" + b"\x1cabcdefgh" + b"\x12\x08\x00" + b"\x01\x00" + b"\x05\x04" + b"\x15\x08\x00"

CORPUS = [_ARCHIVE, _FILES, _FRAMES, _BLOCK, encode_state(PLACE, NOW)]
TOKENS = [MAGIC, END, IDENTIFIER, b"\0" * 8, b"\xff" * 8, b"\x80\x80\x01", tar.END, b"state.json"]


def _read(
    reader: ArchiveReader | FilesReader, data: bytes, size: int
) -> tuple[list[Content], bool]:
    """What it says, and whether it was refused."""
    found: list[Content] = []
    try:
        for at in range(0, len(data), size):
            reader.feed(data[at : at + size])
            while (contents := reader.step()) is not None:
                found += contents
    except SnapshotFormatError:
        return found, True
    return found, False


def check(data: bytes, rng: random.Random) -> None:
    """Raise if a reader raises what it must not, or reads differently what is cut otherwise."""
    size = rng.randint(1, 40)
    for kind in (ArchiveReader, lambda: FilesReader("S")):
        whole, refused = _read(kind(), data, max(1, len(data)))
        cut, refused_cut = _read(kind(), data, size)
        if not (refused or refused_cut):
            assert whole == cut, "another reading of the same data, cut"
    frames = FrameReader()
    try:
        for at in range(0, len(data), size):
            frames.feed(data[at : at + size])
            list(frames.drain())
    except SnapshotFormatError:
        pass  # the documented answer
    try:
        block = BlockDecoder(data, BLOCK_MAX)
        while not block.run(rng.randint(1, 50)):
            assert len(block.output) <= BLOCK_MAX
        assert len(block.output) == block.size
    except SnapshotFormatError:
        pass
    try:
        decode_state(data)
    except SnapshotFormatError:
        pass


TARGET = Target("snapshots", CORPUS, TOKENS, check, joined_max=1)
