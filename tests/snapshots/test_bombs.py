"""Backups that are short and say much: refused after some work, and without filling the memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from hashlib import sha256

import pytest

from headrace.snapshots import records, store_files, tar
from headrace.snapshots.archive import Unpacker
from headrace.snapshots.consumer_state import uvarint
from headrace.snapshots.contents import SnapshotFormatError
from headrace.snapshots.framing import FRAME_BYTES_MAX, IDENTIFIER, crc32c, frame, masked
from headrace.snapshots.records import HighwayHash, block_hash, encode_erased, encode_record

FRAMES = 100  # of up to 4 MiB each
MEMORY_MAX = 48 << 20
HUGE = 1 << 40
HASHES = block_hash("S", 1)
DOCUMENT = b'{"name":"S"}'
SUM = HighwayHash(sha256(b"S").digest()).digest(DOCUMENT).hex().encode()
RECORD = encode_record(HASHES, 5, b"s.5", b"", b"message", 1)
ERASED = encode_erased(HASHES, 5, 1)
DELETED = encode_record(HASHES, 5 | 1 << 62, b"", b"", b"", 1)


def file(name: str, body: bytes, size: int | None = None) -> bytes:
    """A file, of which more may follow."""
    head = tar.header(name, len(body) if size is None else size, 0)
    return head + body + (bytes(tar.padding(len(body))) if size is None else b"")


def extended() -> bytes:
    """An extended header that says nothing."""
    block = bytearray(tar.header("x", 0, 0))
    block[156] = ord(tar.EXTENDED)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def repeated(unit: bytes) -> bytes:
    """A frame that is a little longer than ``unit`` and decodes to some 4 MiB of it again and again."""
    size = FRAME_BYTES_MAX // len(unit) * len(unit)
    length = len(unit) - 1
    block = uvarint(size) + bytes((61 << 2,)) + length.to_bytes(2, "little") + unit
    block += bytes((3 << 2 | 3,)) + len(unit).to_bytes(4, "little")  # the first four bytes again
    left = size - len(unit) - 4
    while left:
        some = min(left, 1 << 20)
        if some >= (1 << 16) + 4:
            block += b"\x1d\x00" + (some - (1 << 16) - 4).to_bytes(3, "little")
        else:
            some = min(left, 64)
            block += bytes((some - 1 << 2 | 3,)) + len(unit).to_bytes(4, "little")
        left -= some
    data = unit * (size // len(unit))
    body = masked(crc32c(data)).to_bytes(4, "little") + block
    return b"\x00" + len(body).to_bytes(3, "little") + body


BEGUN = file("meta.inf", DOCUMENT) + file("meta.sum", SUM)
OPEN = BEGUN + file("msgs/1.blk", b"", HUGE)
BOMBS: dict[str, tuple[bytes, bytes, str]] = {
    "extended headers of extended headers": (BEGUN, extended(), "describes another one"),
    "one file again and again": (BEGUN, file("msgs/index.db", b"x"), "is there twice"),
    "one consumer again and again": (BEGUN, file("obs/C/meta.inf", DOCUMENT), "is there twice"),
    "message files with nothing in them": (BEGUN, file("msgs/1.blk", b""), "comes after"),
    "one message again and again": (OPEN, RECORD, "repeat what is known"),
    "one erased message again and again": (OPEN, ERASED, "repeat what is known"),
    "one deletion again and again": (OPEN, DELETED, "repeat what is known"),
    "padding without end": (BEGUN + tar.END, bytes(512), "behind the end"),
    "something behind the end": (BEGUN + tar.END, b"x" * 512, "behind the end"),
    "a document without end": (BEGUN + file("obs/C/meta.inf", b"", HUGE), b" " * 99, "has"),
    "a record that is not there": (OPEN, b"\xff\xff\xff\x7f" * 8, "a record of"),
    "a size that is none": (BEGUN, b"\xff" * 512, "header is"),
}


def frames(name: str) -> Iterator[bytes]:
    head, unit, _ = BOMBS[name]
    yield IDENTIFIER + frame(head)
    again = repeated(unit)
    assert len(again) < len(unit) + 1_000
    for _ in range(FRAMES):
        yield again


@pytest.mark.parametrize("name", BOMBS)
def test_it_is_refused_soon_and_nothing_of_it_is_kept(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_files, "_PASSED_MAX", 100)
    unpacker, sent = Unpacker("S"), 0
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotFormatError, match=BOMBS[name][2]):
            for chunk in frames(name):
                sent += 1
                unpacker.feed(chunk)
                while unpacker.step() is not None:
                    pass
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()
    assert sent <= 2


def test_what_is_deleted_is_counted_while_a_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "DELETED_MAX", 100)
    gone = [encode_record(HASHES, number | 1 << 62, b"", b"", b"", 1) for number in range(1, 200)]
    unpacker = Unpacker("S")
    unpacker.feed(IDENTIFIER + frame(OPEN + b"".join(gone)))
    with pytest.raises(SnapshotFormatError, match="more than 100 messages are deleted"):
        while unpacker.step() is not None:
            pass


@pytest.mark.parametrize("right", [True, False])
def test_a_large_message_is_checked_in_many_steps(right: bool) -> None:
    payload = bytes(range(256)) * 2_048
    record = encode_record(HASHES, 1, b"s.1", b"NATS/1.0\r\n\r\n", payload, 1)
    unpacker = Unpacker("S")
    body = record if right else record[:-1] + bytes((record[-1] ^ 1,))
    unpacker.feed(IDENTIFIER + frame(BEGUN + file("msgs/1.blk", body) + tar.END))
    found, steps = [], 0
    try:
        while (contents := unpacker.step()) is not None:
            found += contents
            steps += 1
    except SnapshotFormatError as error:
        assert str(error) == "the checksum of message 1 is wrong"
        assert not right
    else:
        assert right
        assert found[1][3] == payload  # type: ignore[index]
    assert steps > len(payload) // 32 // 150


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 63, 64, 1_000, 4_096])
@pytest.mark.parametrize("step", [1, 2, 7, 1_000])
def test_a_hash_in_steps_is_the_hash_in_one(size: int, step: int) -> None:
    data = bytes(number * 7 & 255 for number in range(size))
    partial = HASHES.begin(data)
    while (digest := partial.run(step)) is None:
        pass
    assert digest == HASHES.digest(data)
