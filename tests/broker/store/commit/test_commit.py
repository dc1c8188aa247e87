"""The commit thread: what goes together, what fails together, and what waits."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.broker.store.commit import commit
from headrace.broker.store.commit.commit import Batch, Committer
from headrace.broker.store.commit.segment_files import SegmentWrite
from headrace.broker.store.commit.writer import Work
from headrace.clock import ManualClock
from headrace.errors import StoreError, StoreFailedError, StoreFullError
from headrace.limits import COMMIT_BATCH_BYTES_MAX

READ_ONLY = "the store is read-only from here on: "


class Recorder:
    """Stands in for the writer: remembers groups, fails when told to."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.errors: list[StoreError | None] = []
        self.syncs = 0
        self.has_unsynced = True
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def commit(self, group: list[Work]) -> None:
        self.entered.set()
        assert self.gate.wait(10)
        self.groups.append(len(group))
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def sync_pending(self) -> None:
        self.syncs += 1


def batch(epoch: int = 0, nbytes: int = 10, *, deletes: bool = False) -> Batch:
    made = Batch(epoch, lambda error: None)
    made.nbytes = nbytes
    made.work.writes.append(
        SegmentWrite("f", 0, [], 0, header=None, truncate=False, messages=True, ceiling=0)
    )
    if deletes:
        made.work.retired.append(("a", "b"))
    return made


def committer(
    recorder: Recorder, *, threaded: bool = True, interval_ns: int | None = None
) -> tuple[Committer, threading.Semaphore]:
    notified = threading.Semaphore(0)
    made = Committer(
        recorder,  # type: ignore[arg-type]
        clock=ManualClock(),
        threaded=threaded,
        notify=notified.release,
        interval_ns=interval_ns,
    )
    return made, notified


def queued_behind_a_running_one(recorder: Recorder, items: Any) -> Committer:
    """Submit while the thread is busy with a first batch, then let it go on to the end."""
    recorder.gate.clear()
    made, _ = committer(recorder)
    made.submit(batch())
    assert recorder.entered.wait(10)
    for item in items:
        made.submit(item)
    recorder.gate.set()
    made.stop()
    return made


def test_what_is_queued_during_a_commit_goes_with_the_next() -> None:
    recorder, items = Recorder(), [batch() for _ in range(20)]
    queued_behind_a_running_one(recorder, items)
    assert recorder.groups == [1, 20]
    assert all(item.finished and item.error is None for item in items)


def test_a_group_ends_at_its_size_at_a_deletion_at_a_chore_and_at_an_epoch() -> None:
    recorder = Recorder()
    large = COMMIT_BATCH_BYTES_MAX
    ran: list[str] = []
    queued_behind_a_running_one(
        recorder,
        [
            batch(nbytes=large - 1), batch(nbytes=large), batch(),
            batch(deletes=True), batch(),
            lambda writer: ran.append("chore"), batch(),
            batch(epoch=1), batch(epoch=1),
        ],
    )  # fmt: skip
    assert recorder.groups == [1, 2, 2, 1, 1, 2]
    assert ran == ["chore"]


def test_after_a_full_disk_later_batches_of_the_same_epoch_fail_untried() -> None:
    recorder = Recorder()
    made, _ = committer(recorder, threaded=False)
    recorder.errors = [None, StoreFullError("full")]
    items = [batch(), batch(), batch(), batch(epoch=1), batch(epoch=1)]
    for item in items:
        made.submit(item)
    assert [type(item.error) for item in items] == [
        type(None), StoreFullError, StoreFullError, type(None), type(None),
    ]  # fmt: skip
    assert recorder.groups == [1, 1, 1, 1]
    assert made.failed is None


def test_after_a_failure_nothing_is_tried_again() -> None:
    recorder = Recorder()
    made, _ = committer(recorder, threaded=False, interval_ns=10**9)
    recorder.errors = [StoreFailedError("disk")]
    items = [batch(), batch(epoch=5)]
    for item in items:
        made.submit(item)
    made.submit(lambda writer: pytest.fail("a chore on a failed store"))
    made.stop()
    assert [str(item.error) for item in items] == [READ_ONLY + "disk"] * 2
    assert str(made.failed) == READ_ONLY + "disk"
    assert recorder.groups == [1]
    assert recorder.syncs <= 1


def test_a_failing_chore_fails_the_store_and_tells_the_owner() -> None:
    made, notified = committer(Recorder())

    def chore(writer: object) -> None:
        raise OSError(5, "Input/output error")

    made.submit(chore)
    assert notified.acquire(timeout=10)
    made.stop()
    assert isinstance(made.failed, StoreFailedError)


def test_a_chore_with_more_to_do_lets_batches_pass() -> None:
    recorder, order = Recorder(), []

    def chore(writer: object) -> bool:
        order.append(len(recorder.groups))
        return len(order) < 3

    first = batch()
    made = queued_behind_a_running_one(recorder, [chore, first])
    assert first.finished
    assert len(order) == 3
    assert made.failed is None


def test_the_rest_between_two_steps_of_a_chore_ends_with_what_is_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit, "REST_S", 600.0)
    recorder = Recorder()
    made, notified = committer(recorder)
    stepped = threading.Semaphore(0)
    steps = 0

    def chore(writer: object) -> bool:
        nonlocal steps
        steps += 1
        stepped.release()
        return steps < 4

    made.submit(chore)
    assert stepped.acquire(timeout=10)
    made.submit(batch())  # in the midst of the rest, or before it
    assert notified.acquire(timeout=10)
    assert stepped.acquire(timeout=10)
    made.stop()
    assert steps == 4
    assert recorder.groups == [1]


def test_stopping_carries_out_what_is_queued_and_syncs() -> None:
    recorder = Recorder()
    made, _ = committer(recorder, interval_ns=10**12)
    item = batch()
    made.submit(item)
    made.stop()
    assert item.finished
    assert recorder.syncs >= 1


def test_what_is_tidied_up_after_the_end_begins_no_thread_again() -> None:
    made, _ = committer(Recorder())
    made.submit(batch())
    made.stop()
    ran: list[threading.Thread] = []
    made.submit(lambda writer: ran.append(threading.current_thread()))
    assert ran == [threading.current_thread()]  # before the directory is given free
