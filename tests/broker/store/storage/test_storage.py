"""The directory as a whole: modes, names, locks, threads, and coming back to what was written."""

from __future__ import annotations

import random
import threading
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from disks import disk_of
from faultfs import FaultFS
from faultplan import FaultyFiles
from headrace.broker.store import FileStorage
from headrace.broker.store.commit.writer import Work, Writer
from headrace.clock import ManualClock
from headrace.errors import (
    ConfigurationError,
    StoreError,
    StoreFailedError,
    StoreFormatError,
    StoreLockedError,
)
from headrace.subjects import SubjectFilter

BIG = 1 << 40


def open_store(fs: FaultFS, **options: Any) -> FileStorage:
    options = {"segment_bytes": 8192, **options}
    return FileStorage("/data/store", fs=fs, threaded=False, salts=random.Random(1), **options)


def flush(storage: FileStorage) -> None:
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    assert outcome == [None]


def fill(storage: FileStorage, name: str, count: int, size: int = 50) -> None:
    store = storage.create_stream(name)
    for number in range(1, count + 1):
        store.append(b"s.%d" % (number % 7), b"", b"%d." % number * (size // 4), number)
    flush(storage)


def payload_of(store: Any, sequence: int) -> bytes:
    payload: bytes = store.get(sequence).payload
    return payload


def sequences(store: Any, chosen: SubjectFilter | None = None) -> list[int]:
    return [message.sequence for message in store.read(1, chosen, BIG, BIG, BIG)]


# -- opening and coming back


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_everything_is_there_again_after_a_stop_clean_or_not(clean: bool, cache_bytes: int) -> None:
    fs = FaultFS()
    storage = open_store(fs, cache_bytes=cache_bytes)
    fill(storage, "S", 500)
    store = storage.open_stream("S")
    store.remove([3, 77, 78, 79, 300])
    store.trim(max_messages=400)
    storage.meta.put("config/S", b"{}")
    storage.meta.append("config/S", b"+1")
    flush(storage)
    before = store.read(1, None, BIG, BIG, BIG), store.state, dict(store.subjects(None))
    if clean:
        storage.close()
    storage = open_store(fs.kill(), cache_bytes=cache_bytes)
    store = storage.open_stream("S")
    assert store.state == before[1]
    assert store.read(1, None, BIG, BIG, BIG) == before[0]
    assert dict(store.subjects(None)) == before[2]
    assert dict(storage.meta.load()) == {"config/S": (b"{}", [b"+1"])}
    assert storage.report == []
    assert store.append(b"n", b"", b"", 1) == 501


def test_a_stream_purged_to_nothing_goes_on_where_it_was() -> None:
    fs = FaultFS()
    storage = open_store(fs)
    fill(storage, "S", 300)
    storage.open_stream("S").purge(None)
    flush(storage)
    for _ in range(3):
        storage = open_store(disk_of(storage).kill())
        store = storage.open_stream("S")
        assert (store.messages, store.first_seq, store.last_seq) == (0, 301, 300)
        flush(storage)
    storage = open_store(disk_of(storage).kill())
    assert storage.open_stream("S").append(b"a", b"", b"", 1) == 301


def test_a_first_sequence_set_by_hand_is_kept() -> None:
    storage = open_store(FaultFS())
    store = storage.create_stream("S")
    store.reset_first(1_000_000)
    flush(storage)
    storage = open_store(disk_of(storage).kill())
    store = storage.open_stream("S")
    assert (store.first_seq, store.last_seq) == (1_000_000, 999_999)
    store.append(b"a", b"", b"x", 1)
    flush(storage)
    storage = open_store(disk_of(storage).kill())
    assert sequences(storage.open_stream("S")) == [1_000_000]
    assert storage.report == []


def test_dead_segments_are_removed_from_the_disk() -> None:
    fs = FaultFS()
    storage = open_store(fs)
    fill(storage, "S", 1000)
    store = storage.open_stream("S")
    many = len([path for path in fs.files() if path.endswith(".seg")])
    store.trim(max_messages=100)
    flush(storage)
    few = [path for path in fs.files() if path.endswith(".seg")]
    assert len(few) <= many / 5
    store.purge(None)
    flush(storage)
    flush(storage)
    assert len([path for path in fs.files() if path.endswith(".seg")]) == 1
    assert store.append(b"a", b"", b"", 1) == 1001


def test_a_removal_outlives_the_segment_it_was_written_in() -> None:
    """The last segments hold the news that messages of the first are gone, and die before it."""
    fs = FaultFS()
    storage = open_store(fs)
    fill(storage, "S", 1000)
    store = storage.open_stream("S")
    store.remove(range(2, 990))
    flush(storage)
    for number in range(1001, 1400):
        store.append(b"later", b"", b"x" * 50, number)
    flush(storage)
    store.remove(range(990, 1390))
    for _ in range(4):
        flush(storage)
    storage = open_store(fs.kill())
    assert sequences(storage.open_stream("S")) == [1, *range(1390, 1400)]


def test_what_a_filter_finds_in_a_segment_is_worked_out_anew_when_it_was_compacted() -> None:
    """It had one message, none of the filter's, when asked; and one other message is left of it."""
    storage = open_store(FaultFS(), cache_bytes=0)
    store = storage.create_stream("S")
    wanted = SubjectFilter([b"a.*"])
    store.append(b"b", b"", b"x" * 400, 1)
    assert store.count(wanted, 1) == 0
    while len(store.segments) == 1:
        kept = store.append(b"a.0", b"", b"x" * 400, 1)
    newest = store.append(b"b", b"", b"", 1)
    store.remove([sequence for sequence in range(1, newest) if sequence != kept - 1])
    flush(storage)
    assert [len(segment) for segment in store.segments] == [1, 2]
    assert sequences(store, wanted) == [kept - 1]
    assert store.count(wanted, 1) == 1


def test_a_segment_that_few_messages_keep_alive_is_compacted() -> None:
    fs = FaultFS()
    storage = open_store(fs, segment_bytes=32_768)
    fill(storage, "S", 2000)
    store = storage.open_stream("S")
    before = sum(len(fs.content(path)) for path in fs.files() if path.endswith(".seg"))
    kept = [number for number in range(1, 2001) if number % 40 == 0 or number > 1900]
    store.remove(sorted(set(range(1, 2001)) - set(kept)))
    for _ in range(60):
        flush(storage)
    assert sequences(store) == kept
    after = sum(len(fs.content(path)) for path in fs.files() if path.endswith(".seg"))
    assert after < before / 2
    assert [payload_of(store, 40), payload_of(store, 80)] == [b"40." * 12, b"80." * 12]
    chosen = SubjectFilter([b"s.3"])
    assert sequences(store, chosen) == [number for number in kept if number % 7 == 3]
    assert store.count(chosen, 1000) == sum(n % 7 == 3 for n in kept if n >= 1000)
    store.remove([80])
    flush(storage)
    storage = open_store(fs.kill())
    kept.remove(80)
    assert sequences(storage.open_stream("S")) == kept
    assert storage.report == []


def test_names_of_all_kinds_come_back() -> None:
    names = [
        "plain",
        "with space",
        "Ünï",
        "a%2Fb",
        "UPPER",
        "upper",
        "x" * 255,
        "ß" * 255,
        "~",
        "-",
    ]
    storage = open_store(FaultFS())
    for name in names:
        storage.create_stream(name).append(b"s", b"", name.encode(), 1)
    flush(storage)
    storage = open_store(disk_of(storage).kill())
    assert storage.streams() == sorted(names)
    for name in names:
        assert payload_of(storage.open_stream(name), 1) == name.encode()
    with pytest.raises(StoreError, match="1 to 1000 bytes"):
        storage.create_stream("y" * 1001)
    with pytest.raises(StoreError, match="1 to 1000 bytes"):
        storage.create_stream("")


def test_a_deleted_stream_stays_deleted_and_leaves_no_files() -> None:
    fs = FaultFS()
    storage = open_store(fs)
    fill(storage, "S", 100)
    storage.delete_stream("S")
    flush(storage)
    assert not [path for path in fs.files() if "streams" in path or "trash" in path]
    fill(storage, "S", 3)
    storage.delete_stream("S")
    again = storage.create_stream("S")
    again.append(b"new", b"", b"", 1)
    flush(storage)
    storage = open_store(disk_of(storage).kill())
    assert storage.open_stream("S").last_seq == 1


def test_a_memory_stream_leaves_nothing_behind() -> None:
    storage = open_store(FaultFS())
    store = storage.create_stream("M", memory=True)
    store.append(b"a", b"h", b"p", 1)
    assert store.bytes == 1 + 1 + 1 + 16
    flush(storage)
    assert store.durable_seq == 1
    assert open_store(disk_of(storage).kill()).streams() == []


# -- refusing


def test_a_directory_in_use_is_refused_and_its_user_named(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    with pytest.raises(StoreLockedError, match=r"is in use by process \d+ on \S+; stop it"):
        FileStorage(tmp_path)
    storage.close()
    FileStorage(tmp_path).close()


@pytest.mark.parametrize("which", ["journal", "seg"])
def test_a_format_of_the_future_is_refused_and_untouched(which: str) -> None:
    storage = open_store(FaultFS())
    fill(storage, "S", 3)
    fs = disk_of(storage).kill()
    (path,) = [path for path in fs.files() if which in path]
    data = bytearray(fs.content(path))
    data[8] = data[64 + 8 if which == "journal" else 2048 + 8] = 4
    fs.overwrite(path, bytes(data))
    with pytest.raises(StoreFormatError, match=r"has store format 4, .* formats up to 3\."):
        open_store(fs).open_stream("S")
    assert fs.content(path) == bytes(data)


@pytest.mark.parametrize("sync", ["", "never", "interval", "interval:", "interval:0", "always:1"])
def test_an_unknown_sync_mode_is_refused_with_the_accepted_ones(sync: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'always', 'interval:<seconds>' and 'os'"):
        FileStorage(tmp_path, sync=sync)


def test_a_segment_size_out_of_range_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="accepted are 8192 to 2147483648"):
        FileStorage(tmp_path, segment_bytes=100)


def test_changes_after_close_are_refused() -> None:
    storage = open_store(FaultFS())
    store = storage.create_stream("S")
    storage.close()
    storage.close()
    with pytest.raises(StoreError, match="closed"):
        store.append(b"a", b"", b"", 1)
    with pytest.raises(StoreError, match="closed"):
        storage.meta.put("k", b"v")


def test_a_subject_too_long_for_a_record_is_refused_and_nothing_is_staged() -> None:
    storage = open_store(FaultFS())
    store = storage.create_stream("S")
    with pytest.raises(StoreError, match="65535 bytes; this one has 65536"):
        store.append(b"x" * 65_536, b"", b"", 1)
    assert store.append(b"x" * 65_535, b"", b"", 1) == 1
    flush(storage)
    assert len(store.read(1, None, 1, 1 << 20, 1)[0].subject) == 65_535


def test_a_message_larger_than_a_segment_gets_one_of_its_own() -> None:
    storage = open_store(FaultFS(), cache_bytes=0)
    store = storage.create_stream("S")
    for size in (10, 50_000, 10, 9000, 9000, 10):
        store.append(b"a", b"", b"x" * size, 1)
    flush(storage)
    storage = open_store(disk_of(storage).kill())
    store = storage.open_stream("S")
    assert [len(m.payload) for m in store.read(1, None, 9, BIG, BIG)] == [
        10, 50_000, 10, 9000, 9000, 10,
    ]  # fmt: skip


# -- durability modes


def syncs(fs: FaultFS) -> int:
    return sum(" fdatasync " in line for line in fs.log)


def test_always_syncs_before_done_and_os_never_does() -> None:
    for mode, expected in (("always", 5), ("os", 0)):
        fs = FaultFS()
        storage = open_store(fs, sync=mode)
        store = storage.create_stream("S")
        store.append(b"a", b"", b"x", 1)
        flush(storage)
        before = syncs(fs)
        for number in range(5):
            store.append(b"a", b"", b"x", number)
            flush(storage)
        assert store.durable_seq == 6
        assert syncs(fs) - before == expected


def test_an_interval_syncs_once_in_a_while() -> None:
    clock, fs = ManualClock(), FaultFS()
    storage = open_store(fs, sync="interval:0.5", clock=clock)
    store = storage.create_stream("S")
    flush(storage)
    counts = []
    for number in range(30):
        store.append(b"a", b"", b"x", number)
        flush(storage)
        clock.advance(0.1)
        counts.append(syncs(fs))
    assert 5 <= counts[-1] - counts[0] <= 7
    store.append(b"a", b"", b"last", 1)
    storage.close()
    assert open_store(fs.power_cut(random.Random(1))).open_stream("S").last_seq == 31


# -- the commit thread


def test_the_commit_thread_completes_flushes_in_order_and_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notified, groups, commit = threading.Event(), list[int](), Writer.commit

    def counted(writer: Writer, group: list[Work]) -> None:
        groups.append(len(group))
        commit(writer, group)

    monkeypatch.setattr(Writer, "commit", counted)
    storage = FileStorage(tmp_path, notify=notified.set)
    store = storage.create_stream("S")
    seen: list[tuple[int, int, Exception | None]] = []

    def note(number: int, error: Exception | None) -> None:
        seen.append((number, store.durable_seq, error))

    for number in range(1, 201):
        store.append(b"a", b"", b"x" * 100, number)
        storage.flush(partial(note, number))
    while len(seen) < 200:
        assert notified.wait(10)
        notified.clear()
        storage.complete()
    assert seen == [(number, number, None) for number in range(1, 201)]
    assert sum(groups) == 200
    assert len(groups) < 200
    assert storage.pending_flushes == 0
    storage.close()


def test_a_done_may_flush_again(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path, threaded=False)
    store = storage.create_stream("S")
    seen: list[int] = []

    def again(error: Exception | None) -> None:
        assert error is None
        seen.append(store.durable_seq)
        if len(seen) < 5:
            store.append(b"a", b"", b"", 1)
            storage.flush(again)

    storage.flush(again)
    assert seen == [0, 1, 2, 3, 4]
    storage.close()


def test_close_completes_what_is_outstanding(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    store = storage.create_stream("S")
    store.append(b"a", b"", b"x", 1)
    seen: list[Exception | None] = []
    storage.flush(seen.append)
    store.append(b"a", b"", b"staged, not flushed", 1)
    storage.close()
    assert seen == [None]
    assert not [t for t in threading.enumerate() if t.name == "headrace-commit"]
    storage = FileStorage(tmp_path)
    assert storage.open_stream("S").last_seq == 2
    storage.close()


def test_a_failed_sync_makes_the_store_read_only_and_is_not_repeated() -> None:
    fs = FaultFS()
    storage = open_store(fs)
    fill(storage, "S", 5)
    store = storage.open_stream("S")
    store.append(b"a", b"", b"doomed", 1)
    fs.fail(fs.operations + 2, "eio")
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    assert isinstance(outcome[0], StoreFailedError)
    assert isinstance(storage.failed, StoreFailedError)
    assert sequences(store) == [1, 2, 3, 4, 5]
    with pytest.raises(StoreFailedError, match="read-only from here on: syncing"):
        store.append(b"a", b"", b"", 1)
    with pytest.raises(StoreFailedError):
        storage.meta.put("k", b"")
    with pytest.raises(StoreFailedError):
        storage.create_stream("T")
    before = syncs(fs)
    storage.flush(outcome.append)
    storage.close()
    assert syncs(fs) == before


# -- economy


def test_a_message_costs_little_memory_once_it_is_only_on_disk(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path, threaded=False, sync="os", cache_bytes=0)
    store = storage.create_stream("S")
    flush(storage)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(20_000):
        store.append(b"s.%d" % (number % 100), b"", b"x" * 100, number)
        if number % 1000 == 999:
            flush(storage)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    storage.close()
    assert used < 60 * 20_000


def test_reading_at_the_end_of_a_stream_touches_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_store(FaultFS(), cache_bytes=1 << 20)
    fill(storage, "S", 500)
    monkeypatch.setattr(storage._fs, "pread", None)
    assert len(sequences(storage.open_stream("S"))) == 500


def test_verifying_reads_everything_and_reports_what_is_damaged() -> None:
    storage = open_store(FaultFS())
    fill(storage, "S", 500)
    fill(storage, "T", 10)
    storage.close()
    fs = disk_of(storage).kill()
    fs.flip_bit("/data/store/streams/S/0000000002.seg", 8 * 5000)
    storage = open_store(fs, cache_bytes=0)
    assert list(storage.verify(100))[-1] == 509
    (finding,) = storage.report
    assert finding.stream == "S"
    assert finding.lost is not None
    assert "does not match its checksum" in finding.what
    assert storage.open_stream("S").messages == 499


def test_compaction_goes_on_beside_commits(tmp_path: Path) -> None:
    notified = threading.Event()
    storage = FileStorage(tmp_path, notify=notified.set, segment_bytes=1 << 20, cache_bytes=0)
    store = storage.create_stream("S")

    def settle() -> None:
        while storage.pending_flushes:
            assert notified.wait(10)
            notified.clear()
            storage.complete()

    for number in range(1, 30_001):
        store.append(b"s", b"", b"%d." % number * 20, number)
    storage.flush(lambda error: None)
    settle()
    kept = [number for number in range(1, 30_001) if number % 50 == 0 or number > 29_000]
    store.remove(sorted(set(range(1, 30_001)) - set(kept)))
    rounds = 0
    while rounds < 5 or not list(tmp_path.glob("streams/S/*.1.seg")):
        store.append(b"s", b"", b"more", 1)
        kept.append(store.last_seq)
        storage.flush(lambda error: None)
        settle()
        assert sequences(store) == kept
        rounds += 1
    storage.close()
    storage = FileStorage(tmp_path)
    store = storage.open_stream("S")
    assert sequences(store) == kept
    assert payload_of(store, 150) == b"150." * 20
    assert storage.report == []
    storage.close()


def test_deleting_a_stream_asks_nothing_of_the_disk_that_could_fail_half_way() -> None:
    files = FaultyFiles(FaultFS())
    storage = FileStorage("/s", fs=files, threaded=False)
    storage.create_stream("S")
    storage.flush(lambda error: None)
    asked = files.calls.copy()
    storage.delete_stream("S")
    assert files.calls == asked
    assert storage.streams() == []
