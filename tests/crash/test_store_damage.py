"""Damaged bytes: at most one record is lost to each, it is reported, and nothing is deleted."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from typing import Any

import pytest

from disks import disk_of
from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.format.record import MESSAGE, ScannedRecord, scan
from headrace.broker.store.format.segment import HEADER_BYTES, decode_header
from headrace.errors import StoreReadError
from headrace.message import StoredMessage
from portions import portion, some

BIG = 1 << 40
FLIPS = portion(300, 50)
TAIL = 2000  # so many bytes at the end are tried one by one


@dataclass
class Known:
    """A store's files and what is in them."""

    fs: FaultFS
    messages: dict[int, StoredMessage]
    removed: set[int]
    meta: dict[str, tuple[bytes, list[bytes]]]
    last: int

    def copy(self) -> FaultFS:
        twin = self.fs.kill()
        self.fs._off = False
        return twin


def everything(storage: FileStorage) -> dict[int, StoredMessage]:
    store = storage.open_stream("S")
    found: dict[Any, Any] = {}
    while messages := store.read(max(found, default=0) + 1, None, BIG, BIG, BIG):
        found |= {message.sequence: message for message in messages}
    return found


def open_store(fs: FaultFS, segment_bytes: int = 16_384) -> FileStorage:
    return FileStorage(
        "/s",
        fs=fs,
        threaded=False,
        segment_bytes=segment_bytes,
        cache_bytes=0,
    )


def made(count: int, *, clean: bool, segment_bytes: int = 16_384) -> Known:
    rng, fs = random.Random(5), FaultFS()
    storage = open_store(fs, segment_bytes)
    store = storage.create_stream("S")
    for number in range(1, count + 1):
        headers = b"H" * (number % 3)
        store.append(b"s.%d" % (number % 5), headers, rng.randbytes(rng.randrange(150)), number)
        if number % 7 == 0:
            storage.meta.put(f"k{number % 11}", rng.randbytes(20))
        if number % 5 == 0:
            storage.meta.append(f"k{number % 11}", rng.randbytes(20))
        if number % 31 == 0:
            store.remove([number - 3, number - 9])
        if number % 13 == 0:
            storage.flush(lambda error: None)
    store.trim(max_messages=count - 20)
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    assert outcome == [None]
    messages = everything(storage)
    meta = {key: (value, list(deltas)) for key, (value, deltas) in storage.meta.load().items()}
    if clean:
        storage.close()
    return Known(fs.kill(), messages, set(range(1, count + 1)) - set(messages), meta, count)


def check_goes_on(storage: FileStorage, known: Known) -> None:
    """Sequences are not used again, and what can be read now can be read after a restart."""
    shown = everything(storage)
    store = storage.open_stream("S")
    assert store.append(b"next", b"", b"", 1) > known.last
    storage.flush(lambda error: None)
    again = everything(open_store(disk_of(storage).kill()))
    assert {s: m for s, m in again.items() if s <= known.last} == shown
    assert len(again) == len(shown) + 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_flipped_bit_in_any_file_costs_at_most_one_record_and_is_reported(clean: bool) -> None:
    known = made(300, clean=clean)
    rng = random.Random(9)
    used_files = [path for path in known.fs.files() if known.fs.content(path).strip(b"\0")]
    paths = [path for path in used_files if "lock" not in path]
    for _ in range(FLIPS):
        path = rng.choice(paths)
        fs = known.copy()
        used = len(fs.content(path).rstrip(b"\0"))
        fs.flip_bit(path, rng.randrange(8 * used))
        storage = open_store(fs)
        assert storage.streams() == ["S"]
        shown = everything(storage)
        assert all(known.messages.get(s, m) == m for s, m in shown.items())
        lost = set(known.messages) - set(shown)
        back = set(shown) - set(known.messages)  # a removal was the record that was lost
        assert back <= known.removed
        meta = storage.meta.load()
        changed = [key for key in known.meta if meta.get(key) != known.meta[key]]
        assert len(lost) + len(changed) + bool(back) <= 1
        if lost or changed or back:
            assert storage.report
        assert all(finding.path == path for finding in storage.report)
        if rng.random() < 0.2:
            check_goes_on(storage, known)


@pytest.mark.parametrize("mode", ["cut", "zeros", "garbage"])
def test_whatever_becomes_of_the_tail_the_records_before_it_stay(mode: str) -> None:
    known = made(150, clean=False)
    tail = [path for path in known.fs.files() if path.endswith(".seg")][-1]
    content = known.fs.content(tail)
    header, _ = decode_header(content, tail)
    assert header is not None
    records = [
        r for r in scan(content, HEADER_BYTES, len(content), header.salt) if r.kind == MESSAGE
    ]
    used = len(content.rstrip(b"\0"))
    rng = random.Random(3)
    step = 1 if mode == "cut" else 3
    places = range(max(HEADER_BYTES, used - TAIL), used, step)
    for turn, at in enumerate(some(places, 11)):
        rest = {
            "cut": b"",
            "zeros": bytes(len(content) - at),
            "garbage": rng.randbytes(used - at),
        }[mode]
        fs = known.copy()
        fs.overwrite(tail, content[:at] + rest)
        storage = open_store(fs)
        check_tail(storage, known, records, at)
        if turn % 12 == 0:
            check_goes_on(storage, known)


def check_tail(storage: FileStorage, known: Known, records: list[ScannedRecord], at: int) -> None:
    shown = everything(storage)
    hit = {record.sequence for record in records if record.offset + record.size > at}
    assert all(known.messages.get(s, m) == m for s, m in shown.items())
    assert set(known.messages) - hit <= set(shown)
    assert set(shown) - set(known.messages) <= known.removed
    assert storage.open_stream("S").last_seq == known.last
    if hit - set(shown):
        assert any(finding.lost is not None for finding in storage.report)


def test_damage_is_reported_at_every_start_and_kept_in_quarantine() -> None:
    known = made(300, clean=False)
    tail = [path for path in known.fs.files() if path.endswith(".seg")][-1]
    fs = known.copy()
    fs.flip_bit(tail, 8 * (HEADER_BYTES + 500))
    reports = []
    for _ in range(3):
        storage = open_store(fs)
        everything(storage)
        reports.append({finding for finding in storage.report if finding.lost})
        storage.open_stream("S").append(b"a", b"", b"x" * 3000, 1)
        storage.flush(lambda error: None)
        fs = disk_of(storage).kill()
    assert reports[0]
    assert reports[0] == reports[1] == reports[2]
    assert any(path.startswith("/s/quarantine/streams~S~") for path in fs.files())


@pytest.mark.parametrize("what", ["header", "alien", "other stream", "not a directory", "leftover"])
def test_files_that_do_not_belong_are_put_aside_or_left_alone_and_not_deleted(what: str) -> None:
    known = made(300, clean=True)
    fs = known.copy()
    first = "/s/streams/S/0000000001.seg"
    content = fs.content(first)
    if what == "header":
        path = first
        fs.overwrite(first, bytes(100) + content[100:2048] + bytes(100) + content[2148:])
    else:
        path = {
            "alien": "/s/streams/S/notes.txt",
            "other stream": "/s/streams/S/0000000099.seg",
            "not a directory": "/s/streams/T",
            "leftover": "/s/streams/S/0000000088.seg.tmp",
        }[what]
        fs.fdatasync(handle := fs.open(path, create=True))
        fs.close(handle)
        fs.overwrite(path, content if what == "other stream" else b"something")
    expected = fs.content(path)
    storage = open_store(fs)
    shown = everything(storage)
    if what in ("alien", "not a directory"):
        assert fs.content(path) == expected
        assert [finding.path for finding in storage.report] == [path]
        assert not [path for path in fs.files() if path.startswith("/s/quarantine/")]
    else:
        assert path not in fs.files()
        (kept,) = [path for path in fs.files() if path.startswith("/s/quarantine/")]
        assert fs.content(kept) == expected
    assert set(known.messages) - set(shown) == (
        {s for s in known.messages if s < min(shown)} if what == "header" else set()
    )
    check_goes_on(storage, known)


def test_a_missing_watermark_costs_nothing() -> None:
    known = made(100, clean=False)
    fs = known.copy()
    fs.unlink("/s/streams/S/watermark")
    fs.unlink("/s/meta/watermark")
    storage = open_store(fs)
    assert everything(storage) == known.messages
    assert storage.report == []
    check_goes_on(storage, known)


def test_damage_in_the_middle_of_a_long_tail_is_skipped_even_after_a_power_cut() -> None:
    """The watermark file may be old then; the log itself tells what had become durable."""
    fs = FaultFS()
    storage = FileStorage("/s", fs=fs, threaded=False)
    store = storage.create_stream("S")
    for number in range(1, 151):
        store.append(b"more", b"", b"x" * 400, number)
        storage.flush(lambda error: None)
    for place in range(HEADER_BYTES + 100, HEADER_BYTES + 50_000, 997):
        cut = fs.kill()
        cut.unlink("/s/streams/S/watermark")
        cut.flip_bit("/s/streams/S/0000000001.seg", 8 * place)
        assert len(everything(open_store(cut))) >= 149


def what_is_readable(storage: FileStorage) -> dict[int, StoredMessage]:
    store = storage.open_stream("S")
    found: dict[Any, Any] = {}
    for sequence in range(1, store.last_seq + 1):
        with contextlib.suppress(StoreReadError):
            message = store.get(sequence)
            if message is not None:
                found[sequence] = message
    return found


def test_a_place_the_disk_cannot_read_now_costs_nothing() -> None:
    known = made(300, clean=True)
    fs = known.copy()
    storage = open_store(fs)
    store = storage.open_stream("S")
    path = next(path for path in fs.files() if path.endswith(".seg"))
    fs.spoil(path, 6000, 6010)
    with pytest.raises(StoreReadError, match=path):
        everything(storage)
    assert len(what_is_readable(storage)) == len(known.messages) - 1
    assert store.messages == len(known.messages)
    fs.spoil(path, 0, 0)
    assert everything(storage) == known.messages
    assert storage.report == []


@pytest.mark.parametrize("clean", [True, False])
def test_places_the_disk_cannot_read_do_not_keep_a_store_from_opening(clean: bool) -> None:
    known = made(300, clean=clean)
    for path in known.fs.files():
        if "lock" in path:
            continue
        size = len(known.fs.content(path).rstrip(b"\0"))
        for start in range(0, size, max(1, size // 7)):
            fs = known.copy()
            fs.spoil(path, start, start + 10)
            storage = open_store(fs)
            shown = what_is_readable(storage)
            assert all(known.messages.get(s, m) == m for s, m in shown.items())
            assert len(set(known.messages) - set(shown)) < 60
            assert storage.open_stream("S").last_seq >= known.last
