"""Segments that cannot be read, or are not there: the stream opens, says what is missing, loses nothing."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.format.record import REMOVAL, scan
from headrace.broker.store.format.segment import HEADER_BYTES, decode_header
from headrace.broker.store.storage.layout import directory_name
from headrace.subjects import SubjectFilter

BIG = 1 << 40
COUNT = 300


@dataclass
class Store:
    """One stream, and what should be in it."""

    fs: FaultFS
    name: str = "S"
    there: set[int] = field(default_factory=set)

    def open(self) -> None:
        self.storage = FileStorage(
            "/s",
            fs=self.fs,
            threaded=False,
            segment_bytes=8192,
            cache_bytes=0,
            salts=random.Random(1),
        )
        self.log = self.storage.open_stream(self.name)

    def fill(self) -> None:
        self.storage = FileStorage("/s", fs=self.fs, threaded=False, segment_bytes=8192)
        self.log = self.storage.create_stream(self.name)
        for number in range(1, COUNT + 1):
            self.log.append(b"s.%d" % (number % 3), b"", b"x" * 90, number)
            self.there.add(number)
        self.flush()

    def flush(self) -> None:
        outcome: list[Exception | None] = []
        self.storage.flush(outcome.append)
        assert outcome == [None]

    def remove(self, sequences: set[int]) -> None:
        assert self.log.remove(sorted(sequences)) == len(sequences)
        self.there -= sequences
        self.flush()

    def append(self) -> int:
        sequence = self.log.append(b"new", b"", b"new", 1)
        self.there.add(sequence)
        self.flush()
        return sequence

    def reopen(self, *, clean: bool = True) -> None:
        if clean:
            self.storage.close()
        self.fs = self.fs.kill()
        self.open()

    def shown(self) -> set[int]:
        found = {message.sequence for message in self.log.read(1, None, BIG, BIG, BIG)}
        assert self.log.messages == len(found)
        assert self.log.count(SubjectFilter([b"s.*", b"new"]), 1) == len(found)
        return found

    def segments(self) -> list[str]:
        return [path for path in self.fs.files() if path.endswith(".seg")]

    def range_of(self, path: str) -> tuple[int, int]:
        """The sequences a segment is for: from its base to the next one's."""
        bases = [header.base for header in map(self.header, self.segments())] + [COUNT + 1]
        at = self.segments().index(path)
        return bases[at], bases[at + 1] - 1

    def header(self, path: str) -> Any:
        header, _ = decode_header(self.fs.content(path), path)
        assert header is not None
        return header

    def lost(self) -> list[tuple[int, int]]:
        return [finding.lost for finding in self.storage.report if finding.lost is not None]


def made() -> Store:
    store = Store(FaultFS())
    store.fill()
    assert len(store.segments()) > 4
    return store


@pytest.mark.parametrize("at", [0, 2, -1])
@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("clean", [True, False])
def test_a_segment_that_cannot_be_opened_is_put_back_when_it_can(
    at: int, error: int, clean: bool
) -> None:
    store = made()
    path = store.segments()[at]
    low, high = store.range_of(path)
    missing = set(range(low, high + 1))
    if clean:
        store.storage.close()
    store.fs = store.fs.kill()
    store.fs.bar(path, error)
    store.open()
    assert store.shown() == store.there - missing
    said = [finding.what for finding in store.storage.report]
    assert any("cannot be read now, and stays as it is" in text for text in said)
    assert any(f"messages {low} to " in text and "none is removed" in text for text in said)
    assert not store.lost()
    # Nothing that leaves by itself takes them along: acknowledged one by one, or as the oldest.
    gone = {s for s in store.there - missing if s <= high + 10}
    store.remove(gone)
    left = sorted(store.there - missing)
    assert store.log.trim(max_messages=max(1, len(left) - 5)) == len(left[:-1][:5])
    store.there -= set(left[:-1][:5])
    store.flush()
    fresh = store.append()
    assert fresh > COUNT
    assert store.shown() == store.there - missing
    store.reopen(clean=clean)
    assert path in store.fs.files()
    assert store.shown() == store.there
    assert store.append() == fresh + 1
    store.reopen()
    assert store.shown() == store.there


def test_compaction_and_removal_of_segments_leave_a_missing_one_alone() -> None:
    store = made()
    path = store.segments()[2]
    low, high = store.range_of(path)
    store.remove({low + 1, low + 2})  # recorded in a later segment, which will have to go
    for _ in range(80):
        store.append()
    store.storage.close()
    store.fs = store.fs.kill()
    store.fs.bar(path)
    store.open()
    missing = set(range(low, high + 1)) - {low + 1, low + 2}
    store.remove({s for s in store.there - missing if s % 40})
    for _ in range(80):
        store.append()
    store.remove({s for s in store.there - missing if s > high})
    for _ in range(3):
        store.append()
    store.reopen()
    assert store.shown() == store.there
    assert store.there >= missing


def test_too_few_handles_at_a_start_refuse_it_instead_of_going_on_without() -> None:
    store = made()
    store.storage.close()
    store.fs = store.fs.kill()
    store.fs.bar(store.segments()[1], errno.ENFILE)
    with pytest.raises(Exception, match="opening stream 'S'"):
        store.open()


@pytest.mark.parametrize("at", [0, 2, 3])
@pytest.mark.parametrize("clean", [True, False])
def test_a_deleted_segment_is_reported_with_its_messages(at: int, clean: bool) -> None:
    store = made()
    store.remove({s for s in store.there if s % 7 == 0})
    path = store.segments()[at]
    low, high = store.range_of(path)
    if clean:
        store.storage.close()
    store.fs = store.fs.kill()
    store.fs.unlink(path)
    store.open()
    lost = {s for a, b in store.lost() for s in range(a, b + 1)}
    assert lost >= store.there & set(range(low, high + 1))
    assert lost <= set(range(low, high + 1))
    assert store.shown() == store.there - set(range(low, high + 1))


def test_segments_that_were_removed_are_not_reported() -> None:
    store, rng = made(), random.Random(8)
    for round_number in range(6):
        some = sorted(store.there)
        store.remove(set(rng.sample(some, len(some) // 2)))
        for _ in range(50):
            store.append()
        if round_number % 2:
            store.log.purge(SubjectFilter([b"s.1"]))
            store.there = store.shown()
            store.flush()
        start = rng.choice(sorted(store.there))
        store.remove({s for s in store.there if start <= s < start + 90})
        store.reopen(clean=round_number % 3 == 0)
        assert store.storage.report == []
        assert store.shown() == store.there
    store.log.purge(None)
    store.flush()
    store.log.reset_first(5000)
    store.flush()
    store.there = set()
    assert store.append() == 5000
    store.reopen()
    assert store.storage.report == []
    assert store.shown() == {5000}


def test_gaps_of_a_store_that_did_not_record_them_are_taken_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headrace.broker.store.format.segment import encode_header as encode
    from headrace.broker.store.log import file_log as filestore

    monkeypatch.setattr(filestore, "encode_header", lambda h: encode(h._replace(tells=False)))
    monkeypatch.setattr(filestore, "emptied_range", lambda segments, dead: (dead.base, dead.base))
    store = made()
    low, high = store.range_of(store.segments()[2])
    store.remove({s for s in store.there if low <= s <= high})
    for _ in range(80):
        store.append()
    assert not any(decoded.tells for decoded in map(store.header, store.segments()))
    monkeypatch.undo()
    store.reopen()
    assert store.storage.report == []
    for _ in range(80):
        store.append()
    assert any(decoded.tells for decoded in map(store.header, store.segments()))
    store.reopen()
    assert store.storage.report == []
    assert store.shown() == store.there


def test_a_damaged_removal_record_brings_nothing_back() -> None:
    store = made()
    store.remove({150, 160, 299})
    store.log.trim(max_messages=200)
    store.there = store.shown()
    store.flush()
    tail = store.segments()[-1]
    content = store.fs.content(tail)
    salt = store.header(tail).salt
    records = [r for r in scan(content, HEADER_BYTES, len(content), salt) if r.kind == REMOVAL]
    assert len(records) >= 4
    for record in records:
        for bit in range(8 * record.offset, 8 * (record.offset + record.size), 13):
            again = Store(store.fs.kill(), there=store.there)
            store.fs._off = False
            again.fs.flip_bit(tail, bit)
            again.open()
            assert again.shown() == store.there
            assert again.storage.report  # the bytes are not as they should be


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [b"", bytes(4096)])
def test_a_long_name_is_known_by_its_directory_when_no_file_says_it(
    clean: bool, content: Any
) -> None:
    store = Store(FaultFS(), name="N" * 240)
    store.storage = FileStorage("/s", fs=store.fs, threaded=False, segment_bytes=8192)
    store.log = store.storage.create_stream(store.name)
    store.append()
    if clean:
        store.storage.close()
    store.fs = store.fs.kill()
    (path,) = store.segments()
    assert directory_name(store.name) in path
    store.fs.overwrite(path, content)
    store.open()
    assert store.lost() == [(1, 1)]
    assert store.shown() == set()
    assert store.log.append(b"new", b"", b"", 2) == 2
    store.flush()
    store.there = {2}
    store.reopen()
    assert store.shown() == {2}


@pytest.mark.parametrize("watermark", ["lost", "emptied", "whole"])
@pytest.mark.parametrize("gone", [True, False], ids=["its successors gone", "all there"])
def test_what_is_left_of_a_torn_write_is_not_the_end_once_the_store_has_gone_on(
    watermark: str, gone: bool
) -> None:
    store = Store(FaultFS())
    store.fill()
    mark, tail = "/s/streams/S/watermark", store.storage.sealed_files()
    path = max(path for path in store.fs.files() if path.endswith(".seg"))
    assert path not in {file.path for file in tail}
    before, end = store.fs.content(mark), len(store.fs.content(path).rstrip(b"\0"))
    for _ in range(3):
        store.append()
    store.storage.close()
    store.fs.overwrite(mark, before)  # the power went in the middle of that write
    raw = bytearray(store.fs.content(path))
    first_record = raw.index(b"new", end)
    raw[first_record] ^= 1
    store.fs.overwrite(path, bytes(raw))
    store.there -= set(range(COUNT + 1, COUNT + 4))

    store.open()
    assert [finding.what for finding in store.storage.report] == [
        "a torn write at the end was ignored"
    ]
    later = {store.log.append(b"s.1", b"", b"y" * 90, 1) for _ in range(COUNT)}
    store.there |= later
    store.flush()
    if gone:
        store.remove(set(sorted(later)[: COUNT - 50]))
    assert store.log.last_seq == 2 * COUNT
    store.storage.close()
    if watermark == "lost":
        store.fs.unlink(mark)
    elif watermark == "emptied":
        store.fs.overwrite(mark, b"")

    store.open()
    assert store.log.last_seq == 2 * COUNT
    found = store.log.read(1, None, BIG, BIG, store.log.last_seq)
    assert {message.sequence for message in found} == store.there
    assert all(message.payload != b"new" for message in found)
    assert [finding for finding in store.storage.report if finding.lost] == []
