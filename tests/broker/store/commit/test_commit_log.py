"""The commit log by itself: making it, going round, settling, and what takes its place away."""

from __future__ import annotations

import errno

import pytest

from broker.store.logged_store import BIG, LOGS, SHAPE, Store, without_unsynced
from disks import disk_of
from faultfs import FaultFS
from headrace.broker.store.commit.commit_log import LogShape
from headrace.broker.store.format.watermark import decode_watermark
from headrace.errors import StoreFailedError, StoreFullError


def test_the_log_is_made_after_some_commits_and_takes_those_that_follow() -> None:
    store = Store()
    store.publish(2)
    assert not store.fs.exists(LOGS[0])
    store.publish(4)
    assert store.used() == 4
    assert [len(store.fs.content(path)) for path in LOGS] == [SHAPE.file_bytes] * 2


def test_a_commit_of_the_log_syncs_one_file_however_many_it_has_written() -> None:
    store = Store()
    store.publish(4)
    before, syncs = store.fs.operations, store.fs.syncs
    store.publish(1)
    assert store.fs.syncs == syncs + 1
    done = [line.split()[1] for line in store.fs.log if int(line.split()[0]) > before]
    assert done == ["write", "write", "write", "fdatasync"]


def test_what_only_the_log_has_is_there_after_the_power_went() -> None:
    store = Store()
    store.publish(3)
    store.publish(9, size=3)
    store.storage.meta.put("k", b"v")
    assert store.flush() is None
    assert store.used() > 3
    again = Store(without_unsynced(store.fs))
    assert again.shown("A") == again.shown("B") == [*range(1, 13)]
    assert again.storage.meta.load()["k"] == (b"v", [])
    assert again.storage.report == []


@pytest.mark.parametrize("tidies", [True, False])
def test_it_goes_round_and_what_it_leaves_behind_is_synced_first(tidies: bool) -> None:
    store = Store(tidies=tidies)
    if not tidies:
        store.storage._writer._submit = lambda chore: None if store.log.is_ready else make(store)
    store.publish(400)
    again = Store(without_unsynced(store.fs))
    assert again.shown("A") == [*range(1, 401)]
    assert again.storage.report == []


def make(store: Store) -> None:
    while store.log.make():
        pass


def test_going_round_the_watermarks_are_written_and_never_go_back() -> None:
    store = Store(segment_bytes=8192)
    marks: list[tuple[int, int]] = []
    for _ in range(400):
        store.publish()
        mark, damaged = decode_watermark(store.fs.content("/s/streams/A/watermark"))
        assert not damaged
        marks.append((mark.serial, mark.end))
    assert marks == sorted(marks)
    assert len(set(marks)) > 10
    assert marks[-1][0] > 1
    store.storage.close()
    again = Store(disk_of(store.storage).kill())
    assert again.storage.report == []
    assert again.storage.open_stream("A").last_seq == 400


def test_a_clean_stop_takes_the_older_file_away_first() -> None:
    """What it says would not be told to be settled without the newer one."""
    store = Store()
    while store.log._current == 0:
        store.publish()
    store.storage.close()
    gone = [line.split()[2] for line in store.fs.log if " unlink " in line and "commit-log" in line]
    assert gone == LOGS


@pytest.mark.parametrize("what", ["create", "delete", "restore", "rewrite"])
def test_what_does_more_than_append_syncs_its_files_itself(what: str) -> None:
    store = Store()
    store.publish(4)
    used = store.used()
    if what == "create":
        store.storage.create_stream("C")
    elif what == "delete":
        store.storage.delete_stream("B")
    elif what == "rewrite":
        store.storage.meta._must_rewrite = True
        store.storage.meta.put("k", b"v")
    else:
        store.storage.open_stream("A").purge(None)
        store.storage.open_stream("A").reset_first(1000)
    assert store.flush() is None
    extra = store.used() - used
    assert extra == {"delete": 1, "restore": 1}.get(
        what, 0
    )  # the one that says that all is settled


def test_a_stream_that_is_made_again_gets_nothing_of_the_one_before_it() -> None:
    store = Store()
    store.publish(6)
    store.storage.delete_stream("A")
    assert store.flush() is None
    store.storage.create_stream("A")
    assert store.flush() is None
    again = Store(without_unsynced(store.fs))
    assert again.shown("A") == []
    assert again.storage.open_stream("A").last_seq == 0
    assert again.shown("B") == [*range(1, 7)]
    assert again.storage.report == []


def test_a_commit_that_is_too_large_goes_to_its_files_alone() -> None:
    store = Store(commit_log=LogShape(file_bytes=12_000, after=1, batch_bytes=2_000))
    store.publish(3)
    used = store.used()
    store.publish(1, size=1_500)
    assert store.used() == used
    again = Store(without_unsynced(store.fs))
    assert again.shown() == [1, 2, 3, 4]


def test_metadata_that_is_larger_than_the_log_goes_to_the_journal_alone() -> None:
    store = Store()
    store.publish(4)
    used = store.used()
    store.storage.meta.put("k", b"v" * 20_000)
    assert store.flush() is None
    assert store.used() == used
    again = Store(without_unsynced(store.fs))
    assert again.storage.meta.load()["k"] == (b"v" * 20_000, [])


def test_a_disk_without_room_for_the_log_goes_on_without_and_gets_one_later() -> None:
    fs = FaultFS()
    store = Store(fs)
    store.publish(2)
    fs.capacity = sum(len(fs.content(path)) for path in fs.files()) + 10_000
    store.publish(5)
    assert store.used() == 0
    assert not [path for path in fs.files() if "commit-log" in path]
    assert b"format 1" in fs.content("/s/format")
    fs.capacity = None
    store.publish(60)
    assert store.used() > 0
    assert store.storage.failed is None


@pytest.mark.parametrize("what", ["mkdir", "rename"])
def test_a_store_in_which_nothing_may_be_made_goes_on_without_the_log(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store()
    fs = store.fs
    true = getattr(fs, what)

    def refuse(*paths: str) -> None:
        if any("commit-log" in path or "format" in path for path in paths):
            raise PermissionError(errno.EACCES, "Permission denied", paths[0])
        true(*paths)

    monkeypatch.setattr(fs, what, refuse)
    store.publish(6)
    assert store.used() == 0
    assert store.storage.failed is None
    assert b"format 1" in fs.content("/s/format")
    monkeypatch.undo()
    store.publish(60)
    assert store.used() > 0


def test_a_disk_that_has_no_room_to_write_over_what_is_there_takes_the_commit_all_the_same() -> (
    None
):
    """As on file systems that write elsewhere."""
    store = Store()
    store.publish(6)
    fs = store.fs
    store.storage.open_stream("A").append(b"s", b"", b"last", 1)
    # the segment's write, and then that of the log
    fs.fail(fs.operations + 2, "enospc")
    assert store.flush() is None
    assert not fs.exists(LOGS[0])
    assert without_unsynced(fs).exists("/s/format")
    again = Store(without_unsynced(fs))
    assert again.shown() == [*range(1, 8)]


def test_a_failed_sync_of_the_log_is_final() -> None:
    store = Store()
    store.publish(6)
    fs = store.fs
    store.storage.open_stream("A").append(b"s", b"", b"last", 1)
    fs.fail(fs.operations + 3, "eio")
    error = store.flush()
    assert isinstance(error, StoreFailedError)
    assert "syncing the commit log" in str(error)
    assert store.storage.failed is error
    again = Store(without_unsynced(fs))
    assert again.shown() == [*range(1, 7)]


def test_a_failed_sync_of_what_is_behind_leaves_the_log_for_the_next_start() -> None:
    store = Store()
    store.publish(6)
    path = "/s/streams/A/0000000001.seg"
    node = next(n for h, n in store.fs._handles.items() if store.fs._paths[h] == path)
    node.has_failed = True  # the system could not write it back
    while store.storage.failed is None:
        store.storage.open_stream("A").append(b"s", b"", b"x" * 300, 1)
        store.flush()
    assert path in str(store.storage.failed)
    shown = [m.sequence for m in store.storage.open_stream("A").read(1, None, BIG, BIG, BIG)]
    store.storage.close()
    assert store.fs.exists(LOGS[0])
    again = Store(without_unsynced(store.fs))
    assert again.shown()[:-1] == shown[: len(again.shown()) - 1]
    assert len(again.shown()) >= store.storage.open_stream("A").durable_seq


def test_a_failure_that_other_files_were_told_of_is_asked_of_all_that_is_behind() -> None:
    store = Store(FaultFS(wholes=True))
    store.storage._writer.syncing.thrift.whole_min = 2
    store.publish(6)
    fs, path = store.fs, "/s/streams/A/0000000001.seg"
    assert path in fs.unsynced()
    fs.fail_write_back(path)
    for name in "CDE":  # what makes files does not go by the log, and is synced with the whole
        store.storage.create_stream(name)
    error = store.flush()
    assert isinstance(error, StoreFailedError)
    assert path in str(error)
    again = Store(without_unsynced(fs))
    assert again.shown() == [*range(1, 7)]


@pytest.mark.parametrize("which", LOGS)
def test_a_log_that_was_taken_away_is_noticed_before_anything_is_acknowledged(which: str) -> None:
    store = Store()
    store.publish(4)
    for path in LOGS:
        store.fs.unlink(path)
    store.storage.open_stream("A").append(b"s", b"", b"x", 1)
    error = store.flush()
    assert isinstance(error, StoreFailedError)
    assert "commit-log" in str(error)
    assert "removed while in use" in str(error)


@pytest.mark.parametrize("kind", ["file", "files inside"])
def test_what_others_have_put_in_its_place_is_left_alone(kind: str) -> None:
    fs = FaultFS()
    store = Store(fs)
    if kind == "file":
        fs.close(fs.open("/s/commit-log", create=True))
    else:
        fs.mkdir("/s/commit-log")
        fs.mkdir("/s/commit-log/0.log")
    store.publish(200)
    assert store.used() == 0
    assert store.storage.failed is None
    assert fs.exists("/s/commit-log")


@pytest.mark.parametrize("sync", ["os", "interval:10"])
def test_a_store_that_does_not_sync_each_commit_has_no_log(sync: str) -> None:
    store = Store(sync=sync)
    assert store.storage._writer.log is None


def test_a_full_disk_refuses_messages_and_leaves_nothing_of_them_in_the_log() -> None:
    fs = FaultFS()
    store = Store(fs)
    store.publish(6)
    fs.capacity = sum(len(fs.content(path)) for path in fs.files())
    refused = 0
    for _ in range(300):
        store.storage.open_stream("A").append(b"s", b"", b"x" * 200, 1)
        refused += isinstance(store.flush(), StoreFullError)
    assert refused > 0
    assert store.storage.failed is None
    shown = store.shown()
    fs.capacity = None
    again = Store(without_unsynced(fs))
    assert again.shown() == shown
    assert again.storage.report == []
