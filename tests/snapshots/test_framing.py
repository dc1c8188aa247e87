"""Frames and the blocks in them, written and read; what is damaged is refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.snapshots.consumer_state import read_uvarint, read_varint, uvarint, varint
from headrace.snapshots.contents import SnapshotFormatError
from headrace.snapshots.framing import IDENTIFIER, BlockDecoder, FrameReader, crc32c, frame, masked


def plainly(data: bytes) -> int:
    """CRC-32C bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


SIZES = [0, 1, 3, 4, 5, 31, 846, 847, 855, 856, 3001, 3002, 3003, 11277, 11278, 11279, 11281, 11282]


@pytest.mark.parametrize("size", SIZES)
def test_the_checksum_of_every_kind_of_size(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc32c(data) == plainly(data)


def test_the_known_checksum_and_one_of_much() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    data = random.Random(1).randbytes(40_000)
    assert crc32c(data) == plainly(data)
    assert crc32c(bytes(40_000)) == plainly(bytes(40_000))
    assert masked(0) == 0xA282EAD8


@given(st.integers(0, 1 << 64), st.integers(-(1 << 62), 1 << 62))
def test_numbers_of_any_size(one: int, other: int) -> None:
    data = uvarint(one) + varint(other)
    value, at = read_uvarint(data, 0)
    assert value == one
    assert read_varint(data, at) == (other, len(data))


def decoded(data: bytes, size: int = 1) -> bytes:
    reader, found = FrameReader(), b""
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
        found += b"".join(reader.drain())
    assert reader.at_end
    return found


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_frames_cut_anywhere(size: int) -> None:
    frames = [b"x" * 300, b"", random.Random(2).randbytes(900)]
    padding = b"\xfe\x03\0\0abc"
    index = b"\x99\x02\0\0zz"
    data = IDENTIFIER + frame(frames[0]) + padding + frame(frames[1]) + index + frame(frames[2])
    assert decoded(data, size) == b"".join(frames)


def block(*elements: bytes, size: int) -> bytes:
    return uvarint(size) + b"".join(elements)


def literal(data: bytes) -> bytes:
    size = len(data) - 1
    if size < 60:
        return bytes((size << 2,)) + data
    if size < 256:
        return bytes((60 << 2, size)) + data
    return bytes((61 << 2,)) + size.to_bytes(2, "little") + data


def unblock(data: bytes, elements: int = 1) -> bytes:
    decoder = BlockDecoder(data, 1 << 20)
    while not decoder.run(elements):
        continue
    return bytes(decoder.output)


HELLO = literal(b"hello world")
GOOD = {
    "a long literal": (block(literal(b"ab" * 40), size=80), b"ab" * 40),
    "a longer literal": (block(literal(b"ab" * 300), size=600), b"ab" * 300),
    "a near copy": (block(HELLO, b"\x05\x0b", size=16), b"hello worldhello"),
    "a copy": (block(HELLO, b"\x12\x05\x00", size=16), b"hello worldworld"),
    "a far copy": (block(HELLO, b"\x13\x05\x00\x00\x00", size=16), b"hello worldworld"),
    "a copy over itself": (block(literal(b"ab"), b"\x16\x02\x00", size=8), b"abababab"),
    "the last offset again": (
        block(HELLO, b"\x12\x05\x00", b"\x01\x00", size=20),
        b"hello worldworldworl",
    ),
    "the last offset, longer": (
        block(HELLO, b"\x12\x05\x00", b"\x15\x00\x01", size=25),
        b"hello worldworldworldworl",
    ),
    "the last offset, much longer": (
        block(literal(b"a"), b"\x02\x01\x00", b"\x19\x00\x00\x00", size=2 + 260),
        b"a" * 262,
    ),
    "the last offset, very long": (
        block(literal(b"a"), b"\x02\x01\x00", b"\x1d\x00\x00\x00\x00", size=2 + 65540),
        b"a" * 65542,
    ),
}


@pytest.mark.parametrize("what", GOOD)
def test_blocks(what: str) -> None:
    data, expected = GOOD[what]
    assert unblock(data) == expected
    body = masked(crc32c(expected)).to_bytes(4, "little") + data
    assert decoded(IDENTIFIER + b"\0" + len(body).to_bytes(3, "little") + body, 11) == expected


BAD = {
    "nothing": b"",
    "no size": b"\xff\xff\xff\xff\xff",
    "shorter than it says": block(HELLO, size=12),
    "longer than it says": block(HELLO, size=10),
    "a copy from before": block(HELLO, b"\x12\x0c\x00", size=16),
    "a repeat of nothing": block(HELLO, b"\x01\x00", size=15),
    "a cut literal": block(HELLO[:-1], size=11),
    "a cut copy": block(HELLO, b"\x12\x05", size=16),
    "a cut repeat": block(HELLO, b"\x12\x05\x00", b"\x1d\x00\x00", size=20),
    "a copy without end": block(literal(b"a"), b"\x02\x01\x00", b"\x1d\x00\xff\xff\xff", size=9),
    "too large": block(literal(b"a"), size=2 << 20),
}


@pytest.mark.parametrize("what", BAD)
def test_blocks_that_are_damaged(what: str) -> None:
    with pytest.raises(SnapshotFormatError):
        unblock(BAD[what])


DAMAGED = {
    "not frames": b"hello world, how are you",
    "of somebody else": b"\xff\x06\0\0abcdef",
    "a wrong checksum": IDENTIFIER + frame(b"x")[:-1] + b"y",
    "an unknown kind": IDENTIFIER + b"\x42\x01\0\0a",
    "without a checksum": IDENTIFIER + b"\x01\x03\0\0abc",
    "too large": IDENTIFIER + b"\x01\xff\xff\xff",
}


@pytest.mark.parametrize("what", DAMAGED)
def test_frames_that_are_damaged(what: str) -> None:
    with pytest.raises(SnapshotFormatError):
        decoded(DAMAGED[what])


@given(st.binary(max_size=200), st.randoms())
def test_nothing_but_a_refusal_comes_of_noise(noise: bytes, chance: random.Random) -> None:
    body = bytearray(IDENTIFIER + b"\0" + (len(noise) + 4).to_bytes(3, "little") + b"1234" + noise)
    reader = FrameReader()
    for at in range(0, len(body), 50):
        reader.feed(bytes(body[at : at + 50]))
        try:
            for _ in reader.drain():
                pass
        except SnapshotFormatError:
            return
