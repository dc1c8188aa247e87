"""The footer of a large segment is made and written in pieces, between which others commit."""

from __future__ import annotations

from array import array
from typing import Any, cast

from headrace.broker.store.format.segment import TRAILER_BYTES, decode_trailer, encode_footer
from headrace.broker.store.index.index import Segment
from headrace.broker.store.log.chores import seal_chore

MESSAGES = 100_000
DATA_END = 4096 + 50 * MESSAGES
NAMES = [b"a", b"b"]


class File:
    """A file of a segment, and all of a writer that a footer needs."""

    def __init__(self) -> None:
        self.data = b""  # behind the records
        self.written: list[int] = []
        self.is_there = True
        self.handles = self
        self.fs = self

    def get(self, path: str) -> int:
        return 7

    def exists(self, path: str) -> bool:
        return self.is_there

    def pwrite(self, handle: int, data: bytes, offset: int) -> int:
        assert offset == DATA_END + len(self.data)
        self.data += data
        self.written.append(len(data))
        return len(data)

    def truncate(self, handle: int, size: int) -> None:
        self.data = self.data[: size - DATA_END]

    def fdatasync(self, handle: int) -> None: ...

    def forget(self, path: str) -> None: ...


def large_segment() -> Segment:
    segment = Segment(1, 1, path="s")
    segment.offsets = array("I", range(4096, DATA_END, 50))
    segment.sizes = array("I", [50]) * MESSAGES
    segment.sids = array("I", [0, 1]) * (MESSAGES // 2)
    segment.stamps = array("q", range(MESSAGES))
    segment.data_end, segment.final_seq = DATA_END, MESSAGES
    return segment


def test_a_footer_is_written_in_pieces_of_at_most_a_mebibyte() -> None:
    file, segment = File(), large_segment()
    seal = seal_chore(segment, NAMES)
    steps = 1
    while seal(cast(Any, file)):
        steps += 1
    assert steps > 20
    assert max(file.written) <= 1 << 20
    arrays = (segment.offsets, segment.sizes, segment.sids, segment.stamps, None)
    assert file.data == encode_footer(DATA_END, MESSAGES, arrays, NAMES, [])
    assert decode_trailer(file.data[-TRAILER_BYTES:], DATA_END + len(file.data)) is not None


def test_a_segment_that_is_appended_to_again_gets_no_footer() -> None:
    """What followed it was taken back, because the disk refused it, while the footer was being made."""
    file, final = File(), [True]
    seal = seal_chore(large_segment(), NAMES, lambda: final[0])
    while not file.written:
        assert seal(cast(Any, file))
    begun = len(file.data)
    final[0] = False
    assert not seal(cast(Any, file))
    assert len(file.data) == begun  # the next append cuts it off


def test_a_stream_that_was_deleted_meanwhile_is_left_alone() -> None:
    file = File()
    seal = seal_chore(large_segment(), NAMES)
    assert seal(cast(Any, file))
    file.is_there = False
    assert not seal(cast(Any, file))
    assert not file.data
