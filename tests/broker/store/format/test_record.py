"""Records survive their own encoding, and damage to one costs no other."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.format.record import (
    COMMIT,
    FLAG_EXPIRES,
    FLAG_OPEN,
    HEAD_BYTES,
    MESSAGE,
    REMOVAL,
    SKIP,
    U64,
    encode_commit,
    encode_message,
    encode_removals,
    encode_skip,
    flagged,
    ranges_of,
    scan,
    try_decode,
)
from headrace.broker.store.format.segment import HEADER_BYTES, decode_header

SALT = 0xC0FFEE

messages = st.tuples(
    st.binary(min_size=1, max_size=20), st.binary(max_size=20), st.binary(max_size=60)
)


def log_of(contents: list[tuple[bytes, bytes, bytes]], salt: int = SALT) -> tuple[bytes, list[int]]:
    """The records of messages 1, 2, 3… one after the other, and where each begins."""
    data, offsets = b"", []
    for sequence, (subject, headers, payload) in enumerate(contents, 1):
        offsets.append(len(data))
        data += encode_message(sequence, subject, headers, payload, sequence * 7, salt)
    return data, offsets


@given(st.lists(messages, max_size=8))
def test_a_scan_finds_every_record_where_it_is(contents: Any) -> None:
    data, offsets = log_of(contents)
    found = list(scan(data + bytes(100), 0, len(data) + 100, SALT))
    assert [item.offset for item in found] == offsets
    assert [item.sequence for item in found] == list(range(1, len(contents) + 1))
    assert all(item.kind == MESSAGE for item in found)
    for item, (subject, headers, payload) in zip(found, contents, strict=True):
        at = item.offset + HEAD_BYTES + (4 if item.flags else 0)
        assert data[at : at + item.subject_len] == subject
        assert data[at + len(subject) : item.offset + item.size - 4] == headers + payload
        assert item.timestamp_ns == item.sequence * 7


@given(messages)
def test_a_record_is_as_long_as_the_message_is_accounted(content: Any) -> None:
    subject, headers, payload = content
    record = encode_message(1, subject, headers, payload, 0, SALT)
    accounted = 22 + len(subject) + (4 + len(headers) if headers else 0) + len(payload) + 8
    assert len(record) == accounted


@given(st.lists(messages, min_size=1, max_size=6), st.data())
def test_a_flipped_bit_costs_one_record_and_is_noticed(contents: Any, data: Any) -> None:
    log, offsets = log_of(contents)
    bit = data.draw(st.integers(0, 8 * len(log) - 1))
    damaged = bytearray(log)
    damaged[bit // 8] ^= 1 << bit % 8
    hit = max(n for n, offset in enumerate(offsets) if offset <= bit // 8)
    found = list(scan(bytes(damaged), 0, len(damaged), SALT))
    assert [item.sequence for item in found if item.kind] == [
        n + 1 for n in range(len(contents)) if n != hit
    ]
    (bad,) = [item for item in found if item.kind == 0]
    assert bad.offset == offsets[hit]


def test_a_record_inside_a_payload_is_not_taken_for_one() -> None:
    inner = encode_message(7, b"in", b"", b"x", 0, SALT + 1)
    outer = encode_message(1, b"out", b"", inner, 0, SALT)
    broken = b"\xff" + outer[1:]
    assert [item.kind for item in scan(broken, 0, len(broken), SALT)] == [0]


def test_records_of_another_file_do_not_validate() -> None:
    data, _ = log_of([(b"a", b"", b"x")], salt=1)
    assert try_decode(data, 0, len(data), 1) is not None
    assert try_decode(data, 0, len(data), 2) is None


def test_every_truncation_leaves_the_whole_records_before_it() -> None:
    data, offsets = log_of([(b"s", b"h", b"p" * n) for n in range(5)])
    ends = [*offsets[1:], len(data)]
    for length in range(len(data) + 1):
        found = [item.sequence for item in scan(data[:length], 0, length, SALT) if item.kind]
        assert found == [n for n, end in enumerate(ends, 1) if end <= length]


def test_space_that_was_never_written_is_the_end_and_not_damage() -> None:
    assert list(scan(bytes(1000), 0, 1000, SALT)) == []


def test_statements_about_messages_are_records_too() -> None:
    ranges = [(n, n + 1) for n in range(0, 200_000, 4)]
    records = encode_removals(9, ranges, SALT)
    assert len(records) > 1
    data = b"".join(records) + encode_skip(77, SALT) + encode_commit(5, 4096, SALT)
    found = list(scan(data, 0, len(data), SALT))
    removals = [item for item in found if item.kind == REMOVAL]
    assert [pair for item in removals for pair in ranges_of(data, item)] == ranges
    skip, commit = found[-2:]
    assert (skip.kind, skip.sequence) == (SKIP, 77)
    assert (commit.kind, commit.sequence) == (COMMIT, 5)
    assert U64.unpack_from(data, commit.offset + HEAD_BYTES)[0] == 4096


def test_the_bytes_of_every_kind_of_record_stay_as_they_are() -> None:
    """What earlier versions have written must be read, and what this one writes is read by them."""
    headers = b"NATS/1.0\r\nK: v\r\n\r\n"
    plain = encode_message(7, b"orders.new", b"", b"payload", 1_700_000_000_000_000_000, SALT)
    headed = encode_message(8, b"a", headers, b"p", -1, SALT)
    assert plain.hex() == (
        "2f0000005ac30100070000000000000000002a36fe9c97170a00"
        "6f72646572732e6e65777061796c6f6164da0d74db"
    )
    assert headed.hex() == (
        "360000005ac301010800000000000000ffffffffffffffff010012000000"
        "614e4154532f312e300d0a4b3a20760d0a0d0a70471f9a09"
    )
    assert flagged(encode_message(7, b"a", b"", b"", 0, 1), FLAG_OPEN, 1).hex() == (
        "1f0000005ac3010407000000000000000000000000000000010061256ae7cf"
    )
    assert encode_skip(9, SALT).hex() == (
        "1e0000005ac3030009000000000000000000000000000000000077d83875"
    )
    assert encode_commit(8, 5000, SALT).hex() == (
        "260000005ac3040008000000000000000000000000000000000088130000000000005108c526"
    )
    (removals,) = encode_removals(8, [(1, 3), (5, 5)], SALT)
    assert removals.hex() == (
        "3e0000005ac30200080000000000000000000000000000000000"
        "0100000000000000030000000000000005000000000000000500000000000000"
        "72c0e758"
    )


def test_the_store_writes_these_records_and_no_others() -> None:
    fs = FaultFS()
    storage = FileStorage("/s", fs=fs, threaded=False)
    log = storage.create_stream("S")
    headers = b"NATS/1.0\r\nK: v\r\n\r\n"
    log.append(b"a", b"", b"one", 1)
    log.append(b"a", headers, b"two", 2)
    log.append_many([b"b"], [b"three", b"four"], 3)
    log.append_many([b"b"], [b"five"], 4, [headers])
    log.append_expiring(b"c", headers, b"six", 5, 6)
    log.append_together([(b"d", b"", b"seven", 7, 0), (b"d", headers, b"eight", 8, 9)])
    storage.flush(lambda error: None)
    (path,) = [path for path in fs.files() if path.endswith(".seg")]
    data = fs.content(path)
    header = decode_header(data, path)[0]
    assert header is not None
    salt = header.salt
    written = [
        encode_message(1, b"a", b"", b"one", 1, salt),
        encode_message(2, b"a", headers, b"two", 2, salt),
        encode_message(3, b"b", b"", b"three", 3, salt),
        encode_message(4, b"b", b"", b"four", 3, salt),
        encode_message(5, b"b", headers, b"five", 4, salt),
        flagged(encode_message(6, b"c", headers, b"six", 5, salt), FLAG_EXPIRES, salt),
        flagged(encode_message(7, b"d", b"", b"seven", 7, salt), FLAG_OPEN, salt),
        flagged(encode_message(8, b"d", headers, b"eight", 8, salt), FLAG_EXPIRES, salt),
    ]
    expected = b"".join(written)
    assert data[HEADER_BYTES:][: len(expected)] == expected
    assert not data[HEADER_BYTES + len(expected) :].strip(b"\0")
