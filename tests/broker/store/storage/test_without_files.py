"""A stream has neither a directory nor a file until something is stored in it, and is there all the same."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from disks import disk_of
from faultfs import FaultFS, PowerCut
from headrace.broker.store import FileStorage
from headrace.broker.store.format.entries import (
    FILE_HEADER_BYTES,
    SPARE_MAGIC,
    decode_file_header,
)
from headrace.broker.store.format.record import scan
from headrace.errors import StoreError, StoreFullError

JOURNAL = "/s/meta/journal-00000001"
COPY = "/s/meta/spare"


def open_store(fs: FaultFS, **options: object) -> FileStorage:
    return FileStorage("/s", fs=fs, threaded=False, **options)  # type: ignore[arg-type]


def flush(storage: FileStorage) -> Exception | None:
    outcomes: list[Exception | None] = []
    storage.flush(outcomes.append)
    (outcome,) = outcomes
    return outcome


def made(*names: str) -> FileStorage:
    """A store with these streams, all without a message."""
    storage = open_store(FaultFS())
    for name in names:
        storage.create_stream(name)
    assert flush(storage) is None
    return storage


def in_streams(fs: FaultFS) -> list[str]:
    return fs.listdir("/s/streams")


def test_an_empty_stream_has_no_directory_and_outlives_kill_and_power_cut() -> None:
    for end in (FaultFS.kill, lambda fs: fs.power_cut(random.Random(1))):
        storage = made("A", "B")
        assert in_streams(disk_of(storage)) == []
        again = open_store(end(disk_of(storage)))
        assert again.streams() == ["A", "B"]
        assert again.report == []
        log = again.open_stream("A")
        assert (log.messages, log.last_seq) == (0, 0)
        assert log.append(b"a", b"", b"x", 1) == 1
        assert flush(again) is None
        assert in_streams(disk_of(again)) == ["A"]


def test_a_thousand_empty_streams_hold_no_descriptor(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "s", threaded=False)
    for name in ("first", "second"):  # the file for all of them is open by then
        storage.create_stream(name)
        assert flush(storage) is None
    before = len(os.listdir("/proc/self/fd"))
    for number in range(1_000):
        storage.create_stream(f"S{number}")
    assert flush(storage) is None
    assert len(os.listdir("/proc/self/fd")) == before
    assert not list((tmp_path / "s" / "streams").iterdir())
    storage.close()
    again = FileStorage(tmp_path / "s", threaded=False)
    assert len(again.streams()) == 1_002
    again.close()


def test_a_first_sequence_is_kept_which_takes_a_file() -> None:
    storage = open_store(FaultFS())
    storage.create_stream("A").reset_first(50)
    assert flush(storage) is None
    again = open_store(disk_of(storage).kill())
    assert again.open_stream("A").append(b"a", b"", b"x", 1) == 50


def test_the_power_may_go_at_any_call_of_the_first_message() -> None:
    whole = made("A")
    before = disk_of(whole).operations
    whole.open_stream("A").append(b"a", b"", b"x", 1)
    assert flush(whole) is None
    calls = disk_of(whole).operations - before
    assert calls > 8
    for number in range(1, calls + 1):
        for seed in range(2):
            storage = made("A")
            fs = disk_of(storage)
            fs.fail(fs.operations + number, "crash")
            told: list[Exception | None] = []
            storage.open_stream("A").append(b"a", b"", b"x", 1)
            with pytest.raises(PowerCut):
                storage.flush(told.append)
            again = open_store(fs.power_cut(random.Random(seed)))
            assert again.streams() == ["A"]
            log = again.open_stream("A")
            assert log.messages == 1 or not told, number
            assert not any(finding.lost for finding in again.report)
            expected = log.last_seq + 1
            assert log.append(b"a", b"", b"y", 2) == expected
            assert flush(again) is None
            once_more = open_store(disk_of(again).kill())
            assert once_more.open_stream("A").last_seq == expected


def test_a_first_message_that_finds_no_room_leaves_the_stream_as_it_was() -> None:
    storage = made("A")
    fs = disk_of(storage)
    fs.capacity = sum(len(fs.content(path)) for path in fs.files()) + 100
    log = storage.open_stream("A")
    for _ in range(2):
        log.append(b"a", b"", b"x", 1)
        assert isinstance(flush(storage), StoreFullError)
        assert in_streams(fs) == []
        assert (log.messages, log.last_seq) == (0, 0)
    assert open_store(fs.kill()).streams() == ["A"]
    fs._off = False
    fs.capacity = None
    assert log.append(b"a", b"", b"x", 1) == 1
    assert flush(storage) is None
    assert open_store(fs.kill()).open_stream("A").messages == 1


def test_a_refused_first_message_leaves_the_copy_with_the_others() -> None:
    storage = made("A")
    fs = disk_of(storage)
    storage.meta.keep_beside("about-A", "A")
    storage.meta.put("about-A", b"value")
    assert flush(storage) is None
    fs.capacity = sum(len(fs.content(path)) for path in fs.files()) + 100
    storage.open_stream("A").append(b"a", b"", b"x", 1)
    assert isinstance(flush(storage), StoreFullError)
    fs.capacity = None
    storage.meta.put("about-A", b"newer")
    assert flush(storage) is None
    left = fs.kill()
    left.unlink(JOURNAL)
    again = open_store(left)
    assert again.streams() == ["A"]
    assert dict(again.meta.load()) == {"about-A": (b"newer", [])}


def test_what_is_deleted_without_ever_having_a_file_stays_deleted() -> None:
    for wait in (False, True):
        storage = open_store(FaultFS())
        storage.create_stream("A")
        if wait:
            assert flush(storage) is None
        storage.delete_stream("A")
        assert flush(storage) is None
        assert open_store(disk_of(storage).kill()).streams() == []


def test_a_stream_made_anew_behind_its_deletion_has_nothing_of_the_old_one() -> None:
    storage = made("A")
    storage.open_stream("A").append(b"a", b"", b"old", 1)
    assert flush(storage) is None
    storage.delete_stream("A")
    assert storage.create_stream("A").append(b"a", b"", b"new", 2) == 1
    assert flush(storage) is None
    found = open_store(disk_of(storage).kill()).open_stream("A").read(1, None, 9, 999, 9)
    assert [message.payload for message in found] == [b"new"]


def test_a_refused_deletion_brings_an_empty_stream_back() -> None:
    storage = made("A")
    fs = disk_of(storage)
    fs.capacity = sum(len(fs.content(path)) for path in fs.files()) + 100
    storage.delete_stream("A")
    storage.create_stream("B").append(b"b", b"", b"x", 1)
    assert isinstance(flush(storage), StoreFullError)
    fs.capacity = None
    assert storage.streams() == ["A"]
    assert storage.open_stream("A").append(b"a", b"", b"x", 1) == 1
    assert flush(storage) is None
    assert open_store(fs.kill()).streams() == ["A"]


def test_a_directory_that_was_taken_away_is_no_empty_stream() -> None:
    storage = made("A", "B")
    storage.open_stream("A").append(b"a", b"", b"x", 1)
    assert flush(storage) is None
    fs = disk_of(storage).kill()
    for path in [path for path in fs.files() if path.startswith("/s/streams/A/")]:
        fs.unlink(path)
    fs.rmdir("/s/streams/A")
    again = open_store(fs)
    assert again.streams() == ["B"]
    with pytest.raises(StoreError, match="no stream 'A'"):
        again.open_stream("A")


@pytest.mark.parametrize("path", [JOURNAL, COPY])
def test_either_of_the_two_places_that_know_an_empty_stream_may_be_lost(path: str) -> None:
    storage = made("A", "B")
    storage.meta.keep_beside("about-A", "A")
    storage.meta.put("about-A", b"value")
    storage.delete_stream("B")
    assert flush(storage) is None
    fs = disk_of(storage).kill()
    fs.unlink(path)
    again = open_store(fs)
    assert again.streams() == ["A"]
    assert dict(again.meta.load()) == {"about-A": (b"value", [])}
    assert flush(again) is None
    fs = disk_of(again).kill()
    fs.unlink(JOURNAL if path == COPY else COPY)
    assert open_store(fs).streams() == ["A"]


def test_what_got_a_directory_is_kept_there_and_no_longer_with_the_others() -> None:
    storage = made("A", "B")
    storage.meta.keep_beside("about-A", "A")
    storage.meta.put("about-A", b"value")
    storage.open_stream("A").append(b"a", b"", b"x", 1)
    assert flush(storage) is None
    assert b"about-A" in disk_of(storage).content("/s/streams/A/spare")
    storage.meta.delete("about-A")
    storage.delete_stream("A")
    assert flush(storage) is None
    fs = disk_of(storage).kill()
    fs.unlink(JOURNAL)  # what is left is the copy, in which the key once was
    again = open_store(fs)
    assert again.streams() == ["B"]
    assert dict(again.meta.load()) == {}


def write_copy_anew(storage: FileStorage, stream: str) -> None:
    """Keep so much of one stream with the others that the copy of all is written anew."""
    storage.meta.keep_beside("much", stream)
    content = disk_of(storage).content
    size = 0
    while size <= (size := len(content(COPY))):
        storage.meta.put("much", bytes(100_000))
        assert flush(storage) is None
    assert JOURNAL in disk_of(storage).files()


@pytest.mark.parametrize("had_messages", [False, True])
def test_a_journal_cut_back_to_before_a_deletion_brings_no_stream_back(had_messages: bool) -> None:
    storage = made("A", "B")
    cut_back = disk_of(storage).content(JOURNAL)
    if had_messages:
        storage.open_stream("A").append(b"a", b"", b"x", 1)
        assert flush(storage) is None
    storage.delete_stream("A")
    assert flush(storage) is None
    write_copy_anew(storage, "B")
    storage.create_stream("C")
    assert flush(storage) is None
    fs = disk_of(storage).kill()
    fs.overwrite(JOURNAL, cut_back)
    again = open_store(fs)
    assert again.streams() == ["B", "C"]
    assert any("the deletion of 'A'" in finding.what for finding in again.report)
    again.create_stream("A")
    assert flush(again) is None
    once_more = open_store(disk_of(again).kill())
    assert (once_more.streams(), once_more.report) == (["A", "B", "C"], [])


@pytest.mark.parametrize("kept", range(3))
def test_a_copy_that_has_lost_its_end_takes_no_stream_from_a_damaged_journal(kept: int) -> None:
    storage = made("A", "B")
    storage.meta.put("other", b"value")
    assert flush(storage) is None
    fs = disk_of(storage).kill()
    copy = fs.content(COPY)
    header = decode_file_header(SPARE_MAGIC, copy, COPY)
    assert header is not None
    records = [*scan(copy, FILE_HEADER_BYTES, len(copy), header[1])]
    fs.overwrite(COPY, copy[: records[kept].offset])
    fs.flip_bit(JOURNAL, 8 * fs.content(JOURNAL).index(b"value"))
    again = open_store(fs)
    assert again.streams() == ["A", "B"]
    assert flush(again) is None
    fs = disk_of(again).kill()
    fs.unlink(JOURNAL.replace("1", "2"))
    assert open_store(fs).streams() == ["A", "B"], "the copy was not made anew"


def test_a_journal_cut_back_costs_no_stream_that_is_there() -> None:
    storage = made("A", "B", "taken")
    storage.open_stream("A").append(b"a", b"", b"x", 1)
    cut_back = disk_of(storage).content(JOURNAL)
    assert flush(storage) is None
    fs = disk_of(storage).kill()
    fs.close(fs.open("/s/streams/taken", create=True))
    storage = open_store(fs)
    write_copy_anew(storage, "B")
    fs = disk_of(storage).kill()
    fs.overwrite(JOURNAL, cut_back)
    again = open_store(fs)
    assert again.streams() == ["A", "B"]
    assert list(again.barred()) == ["taken"]
    assert again.open_stream("A").messages == 1
    fs = disk_of(again).kill()
    fs.unlink("/s/streams/taken")
    assert open_store(fs).streams() == ["A", "B", "taken"]


def test_a_name_whose_place_is_taken_is_barred_though_the_stream_has_no_directory() -> None:
    fs = disk_of(made("A")).kill()
    fs.close(fs.open("/s/streams/A", create=True))
    storage = open_store(fs)
    assert storage.streams() == []
    assert list(storage.barred()) == ["A"]
    storage.delete_stream("A")
    assert flush(storage) is None
    assert open_store(disk_of(storage).kill()).streams() == []


def test_the_notes_survive_a_journal_that_is_written_anew() -> None:
    storage = made("A", "B")
    storage.open_stream("B").append(b"b", b"", b"x", 1)
    for number in range(40):
        storage.meta.put("big", bytes(100_000) + b"%d" % number)
        assert flush(storage) is None
    assert JOURNAL not in disk_of(storage).files()
    again = open_store(disk_of(storage).kill())
    assert again.streams() == ["A", "B"]
    assert again.report == []
    assert in_streams(disk_of(again)) == ["B"]


def test_a_store_that_takes_no_more_notes_no_stream() -> None:
    storage = made("kept")
    storage.close()
    with pytest.raises(StoreError, match="closed"):
        storage.meta.unsettle("new")
    assert list(storage.meta.unsettled()) == ["kept"]
