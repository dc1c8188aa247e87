"""Batches that the owner commits itself: when, and that the commit thread writes nothing meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.commit import commit
from headrace.broker.store.commit.commit import IN_A_ROW, QUICK_NS, Batch, Committer
from headrace.broker.store.commit.segment_files import SegmentWrite
from headrace.broker.store.commit.writer import CopyWrite, Work
from headrace.broker.store.format.entries import MetaChange, SpareWrite
from headrace.clock import ManualClock
from headrace.errors import StoreError, StoreFailedError, StoreFullError

READ_ONLY = "the store is read-only from here on: "


class Disk:
    """Stands in for the writer: tells on which threads it was used, and never at two places at once."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.threads: list[threading.Thread] = []
        self.takes_ns = 0
        self.error: StoreError | None = None
        self.has_unsynced = False
        self.syncs: list[threading.Thread] = []
        self.within: Any = None  # called while a commit is under way
        self._in_use = threading.Lock()

    def commit(self, group: list[Work]) -> None:
        assert self._in_use.acquire(blocking=False), "two commits at a time"
        try:
            self.threads.append(threading.current_thread())
            self.clock.advance(self.takes_ns / 1e9)
            within, self.within = self.within, None
            if within is not None:
                within()
            if self.error is not None:
                raise self.error
        finally:
            self._in_use.release()

    def sync_pending(self) -> None:
        assert self._in_use.acquire(blocking=False), "a sync during a commit"
        self.has_unsynced = False
        self.syncs.append(threading.current_thread())
        self._in_use.release()


def batch(nbytes: int = 10, **work: Any) -> Batch:
    made = Batch(0, lambda error: None)
    made.nbytes = nbytes
    made.work = Work(**{"writes": [write("f")], **work})
    return made


def write(path: str, header: bytes | None = None, *, truncate: bool = False) -> SegmentWrite:
    return SegmentWrite(path, 0, [], 0, header=header, truncate=truncate, messages=True, ceiling=0)


class Watched(Committer):
    """Tells when its thread is about to wait."""

    parked: threading.Event

    def _patience_s(self) -> float | None:
        self.parked.set()
        return super()._patience_s()


class Bench:
    """A committer on a quick disk, which has committed enough to be known as quick."""

    def __init__(self, interval_ns: int | None = None) -> None:
        self.disk = Disk()
        self.notified = threading.Semaphore(0)
        self.parked = threading.Event()
        self.made = Watched(
            self.disk,  # type: ignore[arg-type]
            clock=self.disk.clock,
            threaded=True,
            notify=self.notified.release,
            interval_ns=interval_ns,
        )
        self.made.parked = self.parked
        for _ in range(IN_A_ROW):
            self.by_the_thread(batch())

    def by_the_thread(self, item: Batch) -> None:
        self.made.submit(item)
        assert self.notified.acquire(timeout=10)
        assert item.finished
        assert self.disk.threads[-1] is not threading.current_thread()
        self.idle()

    def idle(self) -> None:
        """Return once the thread waits for work."""
        while True:
            self.parked.clear()
            with self.made._wake:
                if not self.made._is_busy and not self.made._queue:
                    return
            assert self.parked.wait(10)

    def by_the_owner(self, item: Batch) -> None:
        self.made.submit(item)
        assert item.finished
        assert self.disk.threads[-1] is threading.current_thread()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.made.stop()


def test_a_small_batch_is_committed_by_the_owner_who_needs_no_notice(bench: Bench) -> None:
    for item in (batch(), batch(commit.OWN_BYTES_MAX), batch(meta=MetaChange([], None))):
        bench.by_the_owner(item)
        assert item.error is None
    assert not bench.notified.acquire(blocking=False)
    assert bench.made.own == 3
    assert bench.made.durations.describe()["count"] == IN_A_ROW + 3


def test_a_few_removals_and_what_is_said_of_them_beside_the_file_are_the_owners(
    bench: Bench,
) -> None:
    bench.by_the_owner(batch(copies=[CopyWrite("a", 0, bytes(60))]))


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(batch(commit.OWN_BYTES_MAX + 1), id="many bytes"),
        pytest.param(batch(writes=[write("a"), write("b"), write("c")]), id="many files"),
        pytest.param(batch(writes=[write("a", b"header")]), id="a new file"),
        pytest.param(batch(writes=[write("a", truncate=True)]), id="a file that is cut"),
        pytest.param(batch(directories=["a"]), id="a new directory"),
        pytest.param(batch(retired=[("a", "b")]), id="a directory that goes"),
        pytest.param(
            batch(copies=[CopyWrite("a", 0, bytes(commit.OWN_BYTES_MAX))]),
            id="copies of many removals",
        ),
        pytest.param(batch(meta=MetaChange([], [])), id="a journal written anew"),
        pytest.param(
            batch(meta=MetaChange([], None, [SpareWrite("a", 0, [], 0, True, False)])),
            id="a spare written anew",
        ),
        pytest.param(
            batch(meta=MetaChange([None] * (commit.OWN_ENTRIES_MAX + 1), None)),  # type: ignore[list-item]
            id="many entries",
        ),
    ],
)
def test_whatever_is_more_than_a_few_appended_bytes_is_the_threads(
    bench: Bench, item: Batch
) -> None:
    bench.by_the_thread(item)
    assert bench.made.own == 0


def test_on_a_disk_that_has_become_slow_the_thread_commits_until_it_is_quick_again(
    bench: Bench,
) -> None:
    bench.disk.takes_ns = 2 * QUICK_NS
    bench.by_the_owner(batch())
    for _ in range(2 * IN_A_ROW):
        bench.by_the_thread(batch())
    bench.disk.takes_ns = QUICK_NS
    for _ in range(IN_A_ROW):
        bench.by_the_thread(batch())
    bench.disk.clock.advance(100 * QUICK_NS / 1e9)
    bench.by_the_owner(batch())


def test_while_the_owner_commits_the_thread_keeps_its_hands_off_and_goes_on_then(
    bench: Bench,
) -> None:
    order: list[str] = []
    ran = threading.Event()

    def chore(writer: object) -> None:
        order.append("chore")
        ran.set()

    def while_committing() -> None:
        bench.made.submit(chore)
        assert not ran.wait(0.05)
        order.append("committed")

    bench.disk.within = while_committing
    bench.by_the_owner(batch())
    assert ran.wait(10)
    assert order == ["committed", "chore"]


def test_what_comes_while_the_thread_is_at_work_is_queued_behind_it(bench: Bench) -> None:
    gate, entered = threading.Event(), threading.Event()

    def while_committing() -> None:
        entered.set()
        assert gate.wait(10)

    first, second = batch(commit.OWN_BYTES_MAX + 1), batch()
    bench.disk.within = while_committing
    bench.made.submit(first)
    assert entered.wait(10)
    bench.made.submit(second)
    assert not second.finished
    gate.set()
    bench.made.stop()
    assert first.finished
    assert second.finished
    assert bench.made.own == 0


def test_a_full_disk_refuses_the_same_whoever_commits(bench: Bench) -> None:
    bench.disk.error = StoreFullError("full")
    refused, later, next_epoch = batch(), batch(), batch()
    next_epoch.epoch = 1
    bench.by_the_owner(refused)
    bench.disk.error = None
    tried = len(bench.disk.threads)
    bench.made.submit(later)
    assert later.finished
    assert len(bench.disk.threads) == tried  # untried: it was built on what is taken back
    bench.by_the_owner(next_epoch)
    assert [type(item.error) for item in (refused, later, next_epoch)] == [
        StoreFullError, StoreFullError, type(None),
    ]  # fmt: skip


def test_a_failure_of_the_owners_fails_the_store(bench: Bench) -> None:
    bench.disk.error = StoreFailedError("disk")
    failed, later = batch(), batch()
    bench.by_the_owner(failed)
    bench.made.submit(later)
    assert later.finished
    assert [str(item.error) for item in (failed, later)] == [READ_ONLY + "disk"] * 2
    assert str(bench.made.failed) == READ_ONLY + "disk"


@pytest.mark.parametrize("nbytes", [1, commit.OWN_BYTES_MAX + 1], ids=["own", "the thread's"])
def test_an_unforeseen_error_is_told_to_whoever_waits_and_nothing_is_tried_again(
    bench: Bench, nbytes: int
) -> None:
    def fault() -> None:
        raise ZeroDivisionError("nobody foresaw it")

    bench.disk.within = fault
    failed, later = batch(nbytes), batch(nbytes)
    for item in (failed, later):
        bench.made.submit(item)
    bench.made.stop()
    assert [str(item.error) for item in (failed, later)] == [
        READ_ONLY + "committing: ZeroDivisionError: nobody foresaw it"
    ] * 2
    assert isinstance(bench.made.failed, StoreFailedError)
    assert isinstance(bench.made.failed.__cause__, ZeroDivisionError)
    assert bench.made.own == (nbytes == 1) * 2


def test_with_an_interval_the_thread_learns_of_the_first_write_and_syncs_when_it_is_due() -> None:
    bench = Bench(interval_ns=10**15)
    bench.by_the_thread(batch())
    bench.disk.has_unsynced = True
    bench.by_the_owner(batch())
    syncs = len(bench.disk.syncs)
    bench.disk.clock.advance(1e6)
    bench.made.stop()
    assert len(bench.disk.syncs) > syncs
    assert not bench.disk.has_unsynced


@pytest.mark.parametrize("sync", ["always", "os"])
def test_a_store_on_a_quick_disk_has_committed_before_its_flush_returns(sync: str) -> None:
    fs, notified = FaultFS(), threading.Semaphore(0)
    clock = ManualClock()  # to which every disk is quick
    storage = FileStorage("/s", fs=fs, clock=clock, sync=sync, notify=notified.release)
    log = storage.create_stream("S")
    number = at_once = 0
    while at_once < 50:
        number += 1
        assert number < 10_000
        outcome: list[Exception | None] = []
        log.append(b"s", b"", b"%d" % number, number)
        storage.meta.append("a", b"%d" % number)
        storage.flush(outcome.append)
        at_once += bool(outcome)
        while not outcome:
            assert notified.acquire(timeout=10)
            storage.complete()
        assert outcome == [None]
        assert log.durable_seq == number
    left = fs.power_cut(random.Random(1)) if sync == "always" else fs.kill()
    again = FileStorage("/s", fs=left, threaded=False)
    kept = again.open_stream("S").read(1, None, 1 << 40, 1 << 40, 1 << 40)
    assert [message.payload for message in kept] == [b"%d" % n for n in range(1, number + 1)]
    assert len(again.meta.load()["a"][1]) in (number, number - 1)  # the first one may be its base
    storage.close()
