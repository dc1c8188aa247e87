"""A block's records are checked and decoded together, as they are one by one."""

from __future__ import annotations

import random
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.format.record import U32, encode_message
from headrace.broker.store.log import file_log, reader
from headrace.broker.store.log.file_log import FileLog
from headrace.broker.store.log.memory_log import MemoryLog
from headrace.message import StoredRow

MESSAGES = st.tuples(
    st.sampled_from([b"a", b"a.b", b"c" * 30]),
    st.sampled_from([b"", b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
    st.integers(0, 300).map(lambda size: b"x" * size),
)


def opened(fs: FaultFS) -> FileStorage:
    return FileStorage("/s", fs=fs, threaded=False, segment_bytes=16384, salts=random.Random(3))


def on_disk(messages: list[tuple[bytes, bytes, bytes]]) -> FaultFS:
    fs = FaultFS()
    storage = opened(fs)
    log = storage.create_stream("S")
    for number, message in enumerate(messages, 1):
        log.append(*message, 1000 + number)
    storage.flush(lambda error: None)
    storage.close()
    return fs


def read_all(log: FileLog | MemoryLog, rows_max: int, bytes_max: int) -> list[list[StoredRow]]:
    """Reads that begin where the one before ended; a damaged message is in none."""
    found: list[list[StoredRow]] = []
    start = 1
    while rows := log.rows(start, None, rows_max, bytes_max, log.last_seq):
        found.append(rows)
        start = rows[-1][0] + 1
    return found


def both_ways(
    messages: list[tuple[bytes, bytes, bytes]],
    rows_max: int,
    bytes_max: int,
    bits: tuple[int, ...] = (),
) -> tuple[list[list[StoredRow]], int, list[str]]:
    """What is read, the same with and without reading together, how many were, and what is reported.

    ``bits`` of the first file are flipped once it is open.
    """
    plain = reader._sound_records
    together = 0

    def counted(*args: Any) -> list[bytes]:
        nonlocal together
        records = plain(*args)
        together += len(records)
        return records

    ways: list[tuple[list[list[StoredRow]], list[str]]] = []
    for way in (counted, lambda *args: []):
        fs = on_disk(messages)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader, "_sound_records", way)
            storage = opened(fs)
            log = storage.open_stream("S")
            for bit in bits:
                fs.flip_bit("/s/streams/S/0000000001.seg", bit)
            rows = read_all(log, rows_max, bytes_max)
            ways.append((rows, [str(finding) for finding in storage.report]))
            storage.close()
    assert ways[0] == ways[1]
    return ways[0][0], together, ways[0][1]


@given(st.lists(MESSAGES, min_size=20, max_size=120), st.integers(1, 200), st.integers(0, 20_000))
@settings(deadline=None)
def test_records_read_together_are_those_read_one_by_one(
    messages: list[tuple[bytes, bytes, bytes]], rows_max: int, bytes_max: int
) -> None:
    rows, _, reported = both_ways(messages, rows_max, bytes_max)
    assert [row[1:4] for each in rows for row in each] == messages
    assert not reported


def test_blocks_without_damage_are_read_together() -> None:
    rows, together, _ = both_ways([(b"a", b"", b"x" * (n % 50)) for n in range(300)], 100, 1 << 20)
    assert [len(each) for each in rows] == [100, 100, 100]
    assert together == 300


@pytest.mark.parametrize("place", [5000, 7000, 14000])
def test_a_record_damaged_while_the_stream_is_open_is_found_and_named(place: int) -> None:
    messages = [(b"a", b"", b"%03d" % n * 20) for n in range(300)]
    rows, together, reported = both_ways(messages, 70, 1 << 20, (8 * place,))
    got = [row[0] for each in rows for row in each]
    lost = set(range(1, 301)) - set(got)
    assert len(lost) == 1
    assert got == sorted(got)
    assert len(reported) == 1
    assert str(lost.pop()) in reported[0]
    assert 0 < together < 300


@given(st.binary(max_size=60), st.integers(0, 2**32 - 1), st.integers(0, 600))
def test_the_checksum_of_a_record_and_its_checksum_tells_whether_it_is_sound(
    payload: bytes, salt: int, bit: int
) -> None:
    record = encode_message(1, b"s", b"", payload, 2, salt)
    assert {crc32(record, salt)} == reader._SOUND
    assert crc32(record[:-4], salt) == U32.unpack(record[-4:])[0]
    bit %= 8 * len(record)
    flipped = bytearray(record)
    flipped[bit // 8] ^= 1 << bit % 8
    assert {crc32(flipped, salt)} != reader._SOUND


def kept(
    messages: list[tuple[bytes, bytes, bytes]], gone: set[int], recent_bytes: int
) -> tuple[FileStorage, FileLog]:
    """A log that has about so many bytes of records in memory, in small chunks, the others on disk."""
    storage = opened(FaultFS())
    log = storage.create_stream("S")
    assert isinstance(log, FileLog)
    log._cache.recent._limit = recent_bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_log, "_CHUNK_BYTES", 700)
        for number, message in enumerate(messages, 1):
            log.append(*message, 1000 + number)
            if number % 20 == 0:
                storage.flush(lambda error: None)
        log.remove(gone)
        storage.flush(lambda error: None)
    return storage, log


IN_MEMORY, IN_PART, ON_DISK = 1 << 20, 2000, 0


@given(
    st.lists(MESSAGES, min_size=20, max_size=120),
    st.lists(st.integers(1, 120), min_size=1, max_size=60),
    st.sets(st.integers(1, 120), max_size=9),
    st.integers(0, 20_000),
    st.sampled_from([IN_MEMORY, IN_PART, ON_DISK]),
)
@settings(deadline=None)
def test_messages_here_and_there_are_those_read_one_by_one(
    messages: list[tuple[bytes, bytes, bytes]],
    asked: list[int],
    gone: set[int],
    bytes_max: int,
    recent_bytes: int,
) -> None:
    storage, log = kept(messages, gone, recent_bytes)
    found = log.rows_at(asked, bytes_max)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_TOGETHER", 1 << 30)
        assert log.rows_at(asked, bytes_max) == found
    one_by_one = {row.sequence: tuple(row) for row in map(log.get, sorted(set(asked))) if row}
    assert [*found.items()] == [*one_by_one.items()][: len(found)]
    assert len(found) >= min(len(one_by_one), 1)
    storage.close()


@pytest.mark.parametrize("recent_bytes", [IN_MEMORY, ON_DISK])
def test_messages_here_and_there_are_made_together(
    recent_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, log = kept([(b"a", b"", b"x")] * 120, set(), recent_bytes)
    add, added = reader.RecordReader._add_rows, []

    def counted(*args: Any) -> int:
        added.append(len(args[2]))
        return add(*args)

    monkeypatch.setattr(reader.RecordReader, "_add_rows", counted)
    assert [*log.rows_at(range(2, 120, 3), 1 << 20)] == [*range(2, 120, 3)]
    assert sum(added) >= 36  # a few stand alone in their chunk
    storage.close()
