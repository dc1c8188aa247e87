"""The commit log's batches: what is written is read again, and no damage makes bytes of its own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.store.format.batch import (
    EMPTY_BYTES,
    HEADER_BYTES,
    FoundBatch,
    LogHeader,
    Share,
    batches,
    decode_log_header,
    encode_batch,
    encode_log_header,
)
from headrace.broker.store.format.watermark import WATERMARK_BYTES, Watermark
from headrace.errors import StoreFormatError
from portions import portion

SALT = 0xABCD
PATHS = st.sampled_from(
    ["streams/A/0000000001.seg", "streams/%24KV/0000000012.3.seg", "meta/journal-00000007"]
)
MARKS = st.just(b"") | st.builds(
    lambda sequence, end: Watermark(sequence, 1, end).encode(),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 32),
)
SHARES = st.builds(
    Share,
    PATHS,
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 1 << 31),
    MARKS,
    st.binary(max_size=300),
)


def file_of(every: list[list[Share]], salt: int = SALT, first: int = 1) -> bytes:
    """A file with a batch of each of these."""
    parts = [encode_log_header(LogHeader(salt, first, 7))]
    parts += [encode_batch(n, n - 1, shares, salt) for n, shares in enumerate(every, first)]
    return b"".join(parts) + bytes(500)


def read(data: bytes) -> list[FoundBatch]:
    header = decode_log_header(data[:HEADER_BYTES], "some/file")
    return [] if header is None else list(batches(data, header))


@given(st.lists(st.lists(SHARES, max_size=4), max_size=4))
def test_what_is_written_is_read_again(every: list[list[Share]]) -> None:
    found = read(file_of(every))
    assert [batch.shares for batch in found] == every
    assert [(batch.number, batch.settled) for batch in found] == [
        (n, n - 1) for n in range(1, len(every) + 1)
    ]
    assert all(batch.whole for batch in found)


@settings(max_examples=portion(150, 50))
@given(st.lists(st.lists(SHARES, min_size=1, max_size=3), min_size=2, max_size=4), st.data())
def test_a_flipped_bit_costs_at_most_one_batch_and_changes_no_other(
    every: list[list[Share]], data: st.DataObject
) -> None:
    content = bytearray(file_of(every))
    bit = data.draw(st.integers(0, 8 * (len(content) - 500) - 1))
    content[bit // 8] ^= 1 << bit % 8
    whole = [batch for batch in read(bytes(content)) if batch.whole]
    assert len(whole) >= len(every) - 1
    for batch in whole:
        assert batch.shares == every[batch.number - 1]


@settings(max_examples=portion(100, 50))
@given(st.lists(st.lists(SHARES, min_size=1, max_size=3), min_size=1, max_size=3), st.data())
def test_a_file_that_ends_anywhere_has_the_batches_before_that(
    every: list[list[Share]], data: st.DataObject
) -> None:
    content = file_of(every)
    stop = data.draw(st.integers(HEADER_BYTES, len(content)))
    found = [batch for batch in read(content[:stop]) if batch.whole]
    ends = [HEADER_BYTES]
    for n, shares in enumerate(every, 1):
        ends.append(ends[-1] + len(encode_batch(n, 0, shares, SALT)))
    assert len(found) == sum(end <= stop for end in ends[1:])


@given(st.binary(max_size=2000))
def test_arbitrary_bytes_behind_a_header_are_no_batch(content: bytes) -> None:
    assert read(encode_log_header(LogHeader(SALT, 1, 7)) + content) == []


def test_what_an_earlier_life_of_the_file_has_left_is_no_batch() -> None:
    share = Share("streams/A/0000000001.seg", 1, 4096, b"", b"x" * 100)
    old = file_of([[share]] * 5)
    new = file_of([[share]], salt=SALT + 1, first=6)
    mixed = new[: len(new) - 500] + old[len(new) - 500 :]
    assert [batch.number for batch in read(mixed)] == [6]


@pytest.mark.parametrize(
    "path",
    ["../x.seg", "streams/../0000000001.seg", "streams/A/B/1.seg", "/etc/passwd", "meta/watermark"],
)
def test_a_place_that_no_store_writes_to_is_refused(path: str) -> None:
    assert read(file_of([[Share(path, 1, 0, b"", b"x")]])) == []


def test_an_offset_beyond_all_files_is_refused() -> None:
    share = Share("streams/A/0000000001.seg", 1, 1 << 50, b"", b"x")
    assert read(file_of([[share]])) == []


def test_a_newer_file_is_refused_by_name_and_version() -> None:
    data = bytearray(encode_log_header(LogHeader(SALT, 1, 7)))
    data[8] = data[HEADER_BYTES // 2 + 8] = 9
    with pytest.raises(StoreFormatError, match=r"some/file has store format 9, .* up to 2\."):
        decode_log_header(bytes(data), "some/file")


def test_one_whole_copy_of_the_header_is_enough() -> None:
    header = LogHeader(SALT, 12, 7)
    data = bytearray(encode_log_header(header))
    data[3] ^= 1
    assert decode_log_header(bytes(data), "f") == header
    data[HEADER_BYTES // 2 + 12] ^= 1
    assert decode_log_header(bytes(data), "f") is None


def test_an_empty_batch_has_the_size_that_is_kept_free_for_it() -> None:
    assert len(encode_batch(1, 0, (), SALT)) == EMPTY_BYTES
    assert len(Watermark(0, 0, 0).encode()) == WATERMARK_BYTES
