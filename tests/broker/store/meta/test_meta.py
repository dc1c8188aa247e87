"""Metadata survives restarts, rewriting, torn writes and damaged bytes."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from disks import disk_of
from faultfs import FaultFS, PowerCut
from headrace.broker.store import FileStorage
from headrace.broker.store.format.entries import DELETE, PUT, KeyChange, MetaChange
from headrace.broker.store.io.findings import Finding, Quarantine
from headrace.broker.store.meta.journal import Journal, JournalWriter, open_journal
from headrace.broker.store.meta.meta import Meta
from headrace.broker.store.meta.spare import Spares
from headrace.errors import StoreFailedError, StoreFullError


def open_store(fs: FaultFS, sync: str = "always") -> FileStorage:
    return FileStorage("/s", fs=fs, threaded=False, salts=random.Random(1), sync=sync)


def flush(storage: FileStorage) -> None:
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    assert outcome == [None]


def test_values_and_deltas_come_back() -> None:
    storage = open_store(FaultFS())
    storage.meta.put("a", b"1")
    storage.meta.append("a", b"+1")
    storage.meta.append("b", b"+2")
    flush(storage)
    storage.meta.append("a", b"+3")
    storage.meta.put("c", b"")
    storage.meta.delete("b")
    flush(storage)
    storage = open_store(disk_of(storage).kill())
    assert dict(storage.meta.load()) == {"a": (b"1", [b"+1", b"+3"]), "c": (b"", [])}


def test_what_was_not_flushed_is_not_there() -> None:
    storage = open_store(FaultFS())
    storage.meta.put("a", b"1")
    assert dict(open_store(disk_of(storage).kill()).meta.load()) == {}


def test_a_journal_that_is_mostly_superseded_is_rewritten() -> None:
    fs = FaultFS()
    storage = open_store(fs)
    for number in range(300):
        storage.meta.put("busy", bytes(10_000))
        storage.meta.append("busy", b"%d" % number)
        storage.meta.put(f"quiet{number % 3}", b"%d" % number)
        flush(storage)
    (journal,) = [path for path in fs.files() if "journal" in path]
    assert not journal.endswith("00000001")
    assert len(fs.content(journal)) < 2_000_000
    expected = dict(storage.meta.load())
    assert dict(open_store(fs.kill()).meta.load()) == expected
    assert expected["busy"] == (bytes(10_000), [b"299"])


@pytest.mark.parametrize("sync", ["os", "interval:1000"])
def test_messages_are_on_disk_before_a_journal_that_is_rewritten_speaks_of_them(sync: str) -> None:
    fs = FaultFS()
    storage = open_store(fs, sync)
    store = storage.create_stream("S")
    for number in range(300):
        store.append(b"s", b"", b"x", 1)
        storage.meta.put("seen", b"%d" % store.last_seq)
        storage.meta.put("busy", bytes(10_000))
        flush(storage)
        survivor = open_store(fs.power_cut(random.Random(number)), sync)
        fs._off = False
        seen = dict(survivor.meta.load()).get("seen", (b"0", []))[0]
        journals = [path for path in fs.files() if "journal" in path]
        if journals != ["/s/meta/journal-00000001"]:
            assert survivor.open_stream("S").last_seq >= int(seen)
            return
    raise AssertionError("the journal was not rewritten")


def test_many_live_values_are_not_rewritten_over_and_over() -> None:
    fs = FaultFS()
    storage = open_store(fs)
    for number in range(400):
        storage.meta.append("growing", bytes(10_000))
        storage.meta.put(f"k{number}", b"")
        flush(storage)
    assert sum("create /s/meta/journal" in line for line in fs.log) == 1


def test_a_rewrite_that_finds_no_room_leaves_the_old_journal_in_use() -> None:
    fs = FaultFS()
    storage = open_store(fs)
    storage.meta.put("a", bytes(600_000))
    flush(storage)
    storage.meta.put("a", b"small")
    storage.meta.put("b", bytes(600_000))
    storage.meta.delete("b")
    fs.fail(fs.operations + 2, "enospc")
    flush(storage)
    assert "/s/meta/journal-00000001" in fs.files()
    assert dict(open_store(fs.kill()).meta.load()) == {"a": (b"small", [])}


def test_changes_refused_for_lack_of_room_go_with_the_next_flush() -> None:
    fs = FaultFS()
    storage = open_store(fs)
    storage.meta.put("a", b"1")
    fs.fail(fs.operations + 2, "enospc")
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    assert isinstance(outcome[0], StoreFullError)
    storage.meta.append("a", b"+1")
    flush(storage)
    assert dict(open_store(fs.kill()).meta.load()) == {"a": (b"1", [b"+1"])}


def test_a_failed_sync_of_the_journal_is_final() -> None:
    fs = FaultFS()
    storage = open_store(fs)
    storage.meta.put("a", b"1")
    fs.fail(fs.operations + 3, "eio")
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    assert isinstance(outcome[0], StoreFailedError)
    with pytest.raises(StoreFailedError):
        storage.meta.put("a", b"2")


class Direct:
    """A journal without a storage around it."""

    def __init__(self, fs: FaultFS) -> None:
        self.fs = fs
        for path in ("/s", "/s/meta"):
            if not fs.exists(path):
                fs.mkdir(path)
        self.report: list[Finding] = []

    def open(self) -> Journal:
        aside = Quarantine(self.fs, "/s/quarantine")
        return open_journal(self.fs, "/s/meta", "/s", aside, self.report.append, lambda: 7)

    def write(self, *entries: tuple[int, bytes, bytes]) -> None:
        writer = JournalWriter(self.fs, "/s/meta", self.open(), lambda: 9)
        writer.write([MetaChange([KeyChange(*entry) for entry in entries], None)], True)
        writer.close()


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_damaged_entry_costs_that_entry_and_is_reported_and_kept(place: Any) -> None:
    direct = Direct(FaultFS())
    for key in (b"first", b"middle", b"last"):
        direct.write((PUT, key, b"value of " + key))
    path = "/s/meta/journal-00000001"
    content = direct.fs.content(path)
    direct.fs.flip_bit(path, 8 * content.index(b"value of " + place.encode()))
    opened = direct.open()
    assert sorted(opened.values) == sorted({"first", "middle", "last"} - {place})
    (finding,) = direct.report
    assert "damaged bytes of metadata were skipped" in finding.what
    (kept,) = [path for path in direct.fs.files() if "quarantine" in path]
    assert place.encode() in direct.fs.content(kept)


def test_a_torn_last_write_is_ignored_and_overwritten() -> None:
    direct = Direct(FaultFS())
    direct.write((PUT, b"a", b"1"))
    path = "/s/meta/journal-00000001"
    end = len(direct.fs.content(path).rstrip(b"\0"))
    direct.write((PUT, b"b", b"2"), (PUT, b"c", b"3"), (DELETE, b"a", b""))
    content = direct.fs.content(path)
    mark = direct.fs.content("/s/meta/watermark")
    for cut in range(end + 3, len(content.rstrip(b"\0"))):
        fs = direct.fs.kill()
        fs.overwrite(path, content[:cut])
        fs.overwrite("/s/meta/watermark", bytes(len(mark)))
        again = Direct(fs)
        opened = again.open()
        assert opened.values["a"] == (b"1", [])
        again.write((PUT, b"new", b"!"))
        assert again.open().values["new"] == (b"!", [])
        assert "b" not in opened.values or opened.values["b"] == (b"2", [])
    direct.fs._off = False


def test_leftovers_of_an_interrupted_rewrite_are_put_aside() -> None:
    direct = Direct(FaultFS())
    direct.write((PUT, b"a", b"1"))
    handle = direct.fs.open("/s/meta/journal-00000002.tmp", create=True)
    direct.fs.pwrite(handle, b"half of something", 0)
    assert direct.open().values == {"a": (b"1", [])}
    assert "/s/quarantine/meta~journal-00000002.tmp" in direct.fs.files()
    assert direct.report == []


def test_the_owner_knows_when_rewriting_pays() -> None:
    journal = Journal("/s/meta/journal-00000001", 1, 7)
    meta = Meta(journal, Spares({}, lambda name: None, set(), lambda: 7), lambda: None)
    meta.put("a", bytes(2_000_000))
    change = meta.take()
    assert change is not None
    assert change.image is None
    meta.put("a", b"")
    change = meta.take()
    assert change is not None
    assert change.image is not None
    assert [entry[:3] for entry in change.image] == [(PUT, b"a", b"")]
    assert meta.take() is None


def lost_record(fs: FaultFS, value: bytes) -> FaultFS:
    """What a crash leaves, with the record of this value in the journal damaged."""
    fs = fs.kill()
    path = "/s/meta/journal-00000001"
    fs.flip_bit(path, 8 * fs.content(path).index(value))
    return fs


def deltas() -> FaultFS:
    storage = open_store(FaultFS())
    for name, value in (("a", b"value-a"), ("b", b"value-b")):
        storage.meta.put(name, value)
        for number in range(4):
            storage.meta.append(name, b"delta-%s-%d" % (name.encode(), number))
            flush(storage)
    fs = storage._fs
    assert isinstance(fs, FaultFS)
    return fs


def test_deltas_behind_a_lost_one_are_handed_out_apart() -> None:
    storage = open_store(lost_record(deltas(), b"delta-a-1"))
    assert storage.meta.load()["a"] == (b"value-a", [b"delta-a-0"])
    assert storage.meta.loose("a") == [b"delta-a-2", b"delta-a-3"]
    assert storage.meta.loose("b") == []
    storage.meta.put("a", b"again")
    assert storage.meta.loose("a") == []
    flush(storage)
    storage = open_store(disk_of(storage).kill())
    assert storage.meta.load()["a"] == (b"again", [])
    assert storage.report == []


def test_deltas_behind_a_lost_value_are_not_those_of_nothing() -> None:
    storage = open_store(lost_record(deltas(), b"value-b"))
    assert "b" not in storage.meta.load()
    assert len(storage.meta.loose("b")) == 4
    assert len(storage.meta.load()["a"][1]) == 4


@pytest.mark.parametrize("where", ["/s/streams/S/spare", "/s/meta/spare"])
def test_what_is_kept_beside_a_stream_outlives_the_journal(where: str) -> None:
    storage = open_store(FaultFS())
    stream = storage.create_stream("S")
    if where == "/s/streams/S/spare":
        stream.append(b"s", b"", b"the first makes its files", 1)
    storage.meta.keep_beside("a", "S")
    storage.meta.keep_beside("c", "S")
    storage.meta.put("a", b"value-a")
    storage.meta.put("b", b"elsewhere")
    storage.meta.put("c", b"value-c")
    storage.meta.append("a", b"delta")
    flush(storage)
    storage.meta.delete("c")
    flush(storage)
    fs = disk_of(storage).kill()
    fs.unlink("/s/meta/journal-00000001")
    storage = open_store(fs)
    assert dict(storage.meta.load()) == {"a": (b"value-a", [])}
    flush(storage)  # the new journal has it by itself
    fs = disk_of(storage).kill()
    fs.unlink(where)
    assert dict(open_store(fs).meta.load()) == {"a": (b"value-a", [])}


def test_what_goes_ahead_is_there_once_whichever_write_of_its_commit_does_not_fit() -> None:
    def begin() -> tuple[FaultFS, FileStorage]:
        fs = FaultFS()
        storage = open_store(fs)
        storage.create_stream("S").append(b"s", b"", b"before", 1)
        storage.meta.put("a", b"1", ahead=True)
        storage.meta.put("b", b"1")
        flush(storage)
        return fs, storage

    def commit(storage: FileStorage) -> Exception | None:
        outcome: list[Exception | None] = []
        storage.flush(outcome.append)
        return outcome[0]

    def stage(storage: FileStorage) -> None:
        storage.meta.append("a", b"+1", ahead=True)
        storage.meta.append("b", b"+1")
        storage.open_stream("S").append(b"s", b"", b"after", 2)

    fs, storage = begin()
    began = fs.operations
    stage(storage)
    assert commit(storage) is None
    refused = 0
    for number in range(began + 1, fs.operations + 1):
        fs, storage = begin()
        stage(storage)
        fs.fail(number, "enospc")
        if isinstance(error := commit(storage), StoreFullError):
            refused += 1
            storage.meta.append("a", b"+2", ahead=True)
            assert commit(storage) is None
        else:
            assert error is None or isinstance(error, StoreFailedError)
        again = open_store(fs.kill())
        values = again.meta.load()
        wanted = [b"+1", b"+2"] if isinstance(error, StoreFullError) else [b"+1"]
        assert [values["a"][1], values["b"][1]] == [wanted, [b"+1"]] or error is not None
        assert values["a"][1] in (wanted, wanted[:1], [])
        assert not again.meta.loose("a")
        assert not again.report
    assert refused > 1


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_behind_what_went_ahead_is_no_damage(seed: int) -> None:
    rng = random.Random(seed)
    fs = FaultFS()
    storage = open_store(fs)
    stream = storage.create_stream("S")
    for number in range(3):
        stream.append(b"s", b"", bytes(700), number)
        storage.meta.append("a", b"%d" % number + bytes(600), ahead=True)
        storage.meta.append("b", b"%d" % number + bytes(600))
        if number < 2:
            flush(storage)
    fs.fail(fs.operations + rng.randrange(1, 8), "crash")
    with contextlib.suppress(PowerCut):
        storage.flush(lambda _error: None)
    again = open_store(fs.power_cut(rng))
    assert [finding for finding in again.report if "torn write" not in finding.what] == []
    values = again.meta.load()
    assert len(values["a"][1]) >= len(values["b"][1]) >= 2
