"""Replaying the commit log: bytes go to their places, what has gone is passed over, damage is told."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker.store.logged_store import LOGS, Store, without_unsynced
from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.commit.commit_log import LogShape
from headrace.broker.store.io.looking import ReadOnlyFiles
from headrace.errors import StoreFullError

SEGMENT = "/s/streams/A/0000000001.seg"
BIG = 1 << 40


def cut_off(count: int = 8) -> FaultFS:
    """A disk on which only the log has the last messages of two streams."""
    store = Store(commit_log=LogShape(file_bytes=60_000, after=3))
    store.publish(3 + count)
    assert store.used() > count - 1
    return without_unsynced(store.fs)


def twin(fs: FaultFS) -> FaultFS:
    made = fs.kill()
    fs._off = False
    return made


def test_the_log_is_gone_once_it_was_replayed() -> None:
    fs = cut_off()
    store = Store(fs)
    assert store.shown() == [*range(1, 12)]
    assert not [path for path in fs.files() if "commit-log" in path]


def test_what_was_replayed_is_on_disk_before_the_log_goes() -> None:
    fs = cut_off()
    Store(fs)
    again = Store(without_unsynced(fs))
    assert again.shown() == [*range(1, 12)]
    assert again.storage.report == []


def test_a_segment_that_was_removed_is_passed_over() -> None:
    fs = cut_off()
    fs.unlink(SEGMENT)
    store = Store(fs)
    assert store.shown("B") == [*range(1, 12)]
    assert store.storage.open_stream("A").last_seq >= 11  # never used again
    lost = [finding.lost for finding in store.storage.report if finding.lost]
    assert lost == [(1, 11)]


def test_another_file_in_its_place_is_left_as_it_is() -> None:
    fs = cut_off()
    other = Store(salts=random.Random(2))
    other.publish(2)
    fs.overwrite(SEGMENT, other.fs.content(SEGMENT))
    store = Store(fs)
    assert store.shown("A")[:2] == [1, 2]
    assert set(store.shown("A")) <= {1, 2}
    assert store.shown("B") == [*range(1, 12)]


def test_a_file_without_a_readable_header_leaves_the_log_in_quarantine() -> None:
    fs = cut_off()
    fs.overwrite(SEGMENT, b"\xff" * 4096 + fs.content(SEGMENT)[4096:])
    store = Store(fs)
    assert [path for path in fs.files() if path.startswith("/s/quarantine/commit-log")]
    assert any("no readable header" in finding.what for finding in store.storage.report)


def test_a_disk_without_room_keeps_the_log_until_there_is_some() -> None:
    fs = cut_off()
    content = fs.content(SEGMENT)
    fs.overwrite(SEGMENT, content[: content.find(b"5" * 50)])
    fs.capacity = sum(len(fs.content(path)) for path in fs.files())
    with pytest.raises(StoreFullError, match="opening the store in /s"):
        Store(fs)
    assert fs.exists(LOGS[0])
    fs.capacity = None
    for handle in list(fs._handles):
        fs.close(handle)
    assert Store(fs).shown() == [*range(1, 12)]


def test_files_that_are_not_of_the_log_are_named_and_left_alone() -> None:
    fs = cut_off()
    fs.close(fs.open("/s/commit-log/0.log.bak", create=True))
    store = Store(fs)
    assert [f.path for f in store.storage.report] == ["/s/commit-log/0.log.bak"]
    assert fs.exists("/s/commit-log/0.log.bak")
    store.publish(30)
    assert store.used() > 0


def test_damage_inside_the_log_costs_the_damaged_batch_alone_and_is_told() -> None:
    fs = cut_off()
    content = fs.content(LOGS[0])
    at = content.find(b"7" * 50)
    assert at > 0
    fs.flip_bit(LOGS[0], 8 * at)
    store = Store(fs)
    shown = {name: store.shown(name) for name in "AB"}
    damaged = [finding for finding in store.storage.report if finding.path == LOGS[0]]
    assert [finding.what for finding in damaged] == [
        "1 of the commit log's batches are damaged; it was put aside"
    ]
    assert shown == {
        "A": [n for n in range(1, 12) if n != 7],
        "B": [n for n in range(1, 12) if n != 7],
    }
    lost = {(finding.stream, finding.lost) for finding in store.storage.report if finding.lost}
    assert lost == {("A", (7, 7)), ("B", (7, 7))}
    assert any(path.startswith("/s/quarantine/commit-log") for path in fs.files())


def test_the_end_of_the_log_that_was_not_acknowledged_is_no_damage() -> None:
    fs = cut_off()
    content = fs.content(LOGS[0])
    at = content.find(b"11" * 50)
    fs.flip_bit(LOGS[0], 8 * at)
    store = Store(fs)
    assert store.shown() == [*range(1, 11)]
    assert [f for f in store.storage.report if "commit log" in f.what] == []


def test_whoever_only_looks_sees_what_a_start_would_find_and_changes_nothing(
    tmp_path: Path,
) -> None:
    fs = cut_off()
    for path in fs.files():
        if path != "/s/lock":
            target = tmp_path / path[3:]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(fs.content(path))
    (tmp_path / "trash").mkdir(exist_ok=True)
    (tmp_path / "lock").write_bytes(b"")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    storage = FileStorage(tmp_path, fs=ReadOnlyFiles(), threaded=False)
    shown = storage.open_stream("A").read(1, None, 1000, BIG, BIG)
    assert [m.sequence for m in shown] == [*range(1, 12)]
    assert storage.report == []
    storage.close()
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


# A log that is not all there, or not the store's own


def rewritten(fs: FaultFS, path: str, what: str) -> None:
    """Do to a file of the log what a power cut has done to it."""
    content = fs.content(path)
    if what == "deleted":
        fs.unlink(path)
    elif what == "emptied":
        fs.overwrite(path, b"")
    elif what == "all zeros":
        fs.overwrite(path, bytes(len(content)))
    elif what == "header zeroed":
        fs.overwrite(path, bytes(4096) + content[4096:])
    else:
        last = len(content.rstrip(b"\xff")) // 4096 * 4096
        block = bytes(len(content[last : last + 4096]))
        fs.overwrite(path, content[:last] + block + content[last + 4096 :])


@pytest.mark.parametrize(
    ("what", "paths"),
    [
        ("deleted", LOGS),
        ("deleted", LOGS[:1]),
        ("emptied", LOGS),
        ("emptied", LOGS[:1]),
        ("all zeros", LOGS),
        ("header zeroed", LOGS[:1]),
        ("last block zeroed", LOGS[:1]),
    ],
)
@pytest.mark.parametrize("count", [4, 40])
def test_a_log_that_is_not_all_there_is_told(what: str, paths: list[str], count: int) -> None:
    fs = cut_off(count)
    for path in paths:
        rewritten(fs, path, what)
    store = Store(twin(fs))
    assert len(store.shown()) < 3 + count
    assert any("part of the commit log is not there" in f.what for f in store.storage.report)
    assert store.storage.maybe_missing > 3 + count
    store.publish(8)  # with a log of its own again
    shown = store.shown()
    again = Store(without_unsynced(store.fs))
    assert (again.storage.report, again.storage.maybe_missing) == ([], 0)
    assert again.shown() == shown


def test_it_is_told_again_until_something_was_committed() -> None:
    fs = cut_off()
    for path in LOGS:
        fs.unlink(path)
    for _ in range(2):
        fs = twin(fs)
        storage = FileStorage("/s", fs=fs, threaded=False)
        assert storage.maybe_missing
    storage.close()
    assert not FileStorage("/s", fs=twin(fs), threaded=False).maybe_missing


@pytest.mark.parametrize("sync", ["os", "interval:1"])
def test_it_is_told_once_where_no_log_is_made(sync: str) -> None:
    fs = cut_off()
    for path in LOGS:
        fs.unlink(path)
    assert FileStorage("/s", fs=fs, threaded=False, sync=sync).maybe_missing
    assert not FileStorage("/s", fs=twin(fs), threaded=False, sync=sync).maybe_missing


def put_logs(fs: FaultFS, source: FaultFS) -> None:
    """Put the log of another disk into the place of what is there."""
    if not fs.exists("/s/commit-log"):
        fs.mkdir("/s/commit-log")
    for path in LOGS:
        if fs.exists(path):
            fs.unlink(path)
        fs.close(fs.open(path, create=True))
        fs.overwrite(path, source.content(path))


def aside(store: Store) -> list[str]:
    return [f.what for f in store.storage.report if "put aside unread" in f.what]


@pytest.mark.parametrize("count", [1, 8])
def test_an_older_log_of_the_same_store_changes_nothing(count: int) -> None:
    """After one commit the last log there was is still the older one; after eight there was another."""
    store = Store()
    store.publish(8)
    older = twin(store.fs)
    store.storage.close()
    store = Store(twin(store.fs), salts=random.Random(2))
    store.storage.open_stream("A").purge(None)
    store.publish(count)
    store.storage.close()
    fs = twin(store.fs)
    put_logs(fs, older)
    again = Store(fs)
    assert len(aside(again)) == (count > 1)  # and the other file was not yet in use
    assert again.shown("A") == [*range(9, 9 + count)]
    assert again.shown("B") == [*range(1, 9 + count)]
    assert again.storage.open_stream("A").last_seq == 8 + count
    assert not again.storage.maybe_missing
    assert not [finding for finding in again.storage.report if finding.lost]


def test_the_log_of_another_store_takes_no_sequences_and_loses_nothing() -> None:
    other = Store(salts=random.Random(3))
    other.publish(40)
    store = Store(salts=random.Random(2))
    store.publish(2)
    fs = twin(store.fs)
    put_logs(fs, other.fs)
    again = Store(fs)
    assert aside(again)
    assert again.shown() == [1, 2]
    assert again.storage.open_stream("A").last_seq == 2
    assert not again.storage.maybe_missing


def test_in_the_place_of_its_own_it_does_not_hide_that_this_is_gone() -> None:
    other = Store(salts=random.Random(3))
    other.publish(40)
    fs = cut_off()
    put_logs(fs, other.fs)
    store = Store(fs)
    assert aside(store)
    assert store.storage.maybe_missing
    assert len(store.shown()) < 11


def test_a_watermark_of_the_log_is_not_one_of_another_segment_in_its_place() -> None:
    fs = cut_off()
    other = Store(salts=random.Random(2))
    other.publish(2)
    fs.overwrite(SEGMENT, other.fs.content(SEGMENT))
    fs.overwrite("/s/streams/A/watermark", b"")
    store = Store(fs)
    assert store.shown("A") == [1, 2]
    assert store.storage.open_stream("A").last_seq == 2
    assert not [finding for finding in store.storage.report if finding.lost]


@pytest.mark.parametrize("damage", ["one line", "both lines", "gone"])
def test_a_damaged_format_does_not_cost_what_the_log_holds(damage: str) -> None:
    fs = cut_off()
    content = fs.content("/s/format")
    if damage == "gone":
        fs.unlink("/s/format")
    else:
        broken = content.replace(b"format 2", b"format 1", 1 if damage == "one line" else 2)
        fs.overwrite("/s/format", broken)
    store = Store(fs)
    assert store.shown() == [*range(1, 12)]
    assert not store.storage.maybe_missing
    assert fs.content("/s/format").count(b"format 1") == 2
