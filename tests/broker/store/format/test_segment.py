"""Headers and footers come back whole, or say that they are not."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from headrace.broker.store.format.segment import (
    HEADER_BYTES,
    TRAILER_BYTES,
    Header,
    decode_arrays,
    decode_header,
    decode_summary,
    decode_trailer,
    encode_footer,
    encode_header,
)
from headrace.errors import StoreFormatError

HEADER = Header("Aufträge", 0xABCDEF01, 7, 1001, 1_700_000_000_000_000_000, jump=True)
NAMES = [b"a", b"unused", b"b.c"]


def footer(rel: array[int] | None = None) -> bytes:
    arrays = (
        array("I", [4096, 4200, 4300]),
        array("I", [104, 100, 90]),
        array("I", [0, 2, 0]),
        array("q", [5, 9, 7]),
        rel,
    )
    return encode_footer(4400, 1010, arrays, NAMES, [(1, 5), (9, 9)])


def parts(data: bytes) -> tuple[Any, bytes, bytes]:
    size = 4400 + len(data)
    found = decode_trailer(data[-TRAILER_BYTES:], size)
    assert found is not None
    at = found.summary_at - 4400
    return found, data[:at], data[at : at + found.summary_len]


def test_a_header_comes_back_and_fits_its_space() -> None:
    data = encode_header(HEADER)
    assert len(data) == HEADER_BYTES
    assert decode_header(data, "f") == (HEADER, False)
    longest = HEADER._replace(name="ä" * 500)
    assert decode_header(encode_header(longest), "f") == (longest, False)


@pytest.mark.parametrize("place", [0, 9, 12, 30, 2048, 2060])
def test_one_damaged_copy_of_the_header_is_survived_and_noticed(place: Any) -> None:
    data = bytearray(encode_header(HEADER))
    data[place] ^= 4
    assert decode_header(bytes(data), "f") == (HEADER, True)


def test_a_header_without_a_whole_copy_is_none() -> None:
    assert decode_header(bytes(HEADER_BYTES), "f") == (None, True)
    assert decode_header(b"", "f") == (None, True)
    data = bytearray(encode_header(HEADER))
    data[20] ^= 1
    data[2048 + 20] ^= 1
    assert decode_header(bytes(data), "f") == (None, True)


def test_a_newer_format_is_refused_by_name_and_version() -> None:
    data = bytearray(encode_header(HEADER))
    data[8] = data[2048 + 8] = 9
    with pytest.raises(
        StoreFormatError, match=r"some/file has store format 9, .* formats up to 3\."
    ):
        decode_header(bytes(data), "some/file")


@pytest.mark.parametrize("rel", [None, array("I", [0, 4, 9])])
def test_a_footer_comes_back(rel: Any) -> None:
    found, block, raw = parts(footer(rel))
    assert found.data_end == 4400
    summary = decode_summary(raw, found)
    assert summary is not None
    assert (summary.messages, summary.last_seq, summary.nbytes) == (3, 1010, 294)
    assert (summary.last_ns, summary.max_ns) == (7, 9)
    assert summary.removals == [(1, 5), (9, 9)]
    last = 2 if rel is None else 9
    middle = 1 if rel is None else 4
    assert summary.end_rel == last
    assert sorted(summary.subjects) == [(b"a", 2, 0, last), (b"b.c", 1, middle, middle)]
    arrays = decode_arrays(block, found, summary.messages, summary.sparse)
    assert arrays is not None
    offsets, sizes, local, stamps, places = arrays
    assert (list(offsets), list(sizes), list(stamps)) == (
        [4096, 4200, 4300],
        [104, 100, 90],
        [5, 9, 7],
    )
    assert [summary.subjects[number][0] for number in local] == [b"a", b"b.c", b"a"]
    assert places == rel


def test_an_empty_segment_has_a_footer_too() -> None:
    empty = (array("I"), array("I"), array("I"), array("q"), None)
    found, _, raw = parts(encode_footer(4400, 12, empty, [], []))
    summary = decode_summary(raw, found)
    assert summary is not None
    assert (summary.messages, summary.end_rel, summary.subjects) == (0, -1, [])


def test_damage_anywhere_in_a_footer_is_noticed() -> None:
    good = footer()
    for place in range(len(good)):
        data = bytearray(good)
        data[place] ^= 16
        found = decode_trailer(bytes(data[-TRAILER_BYTES:]), 4400 + len(data))
        if found is None:
            continue
        at = found.summary_at - 4400
        summary = decode_summary(bytes(data[at : at + found.summary_len]), found)
        if summary is not None:
            assert decode_arrays(bytes(data[:at]), found, 3, summary.sparse) is None
