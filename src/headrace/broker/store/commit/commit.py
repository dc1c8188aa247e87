"""Group commit: one thread that puts batches on disk, and everything queued meanwhile with the next.

The owner submits batches and chores; the commit thread writes and calls ``notify``; the owner then
collects what is finished, in order. With ``threaded=False`` there is no thread: submitting commits.

A small batch that finds the thread idle is committed by the owner, while the disk is quick: two threads
that take turns cost more than that. Only one of the two ever writes: ``_is_busy``, ``_is_lent``.

``Quickness`` says whether the disk is so quick that its owner may wait for it. Two threads that take turns
at a small commit cost more than the commit. But whoever waits for the disk serves nobody meanwhile, so a
disk that is slow, or has become so, is left to the commit thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from ....clock import Clock
from ....errors import StoreError, StoreFailedError, StoreFullError
from ....limits import COMMIT_BATCH_BYTES_MAX
from ..format.entries import MetaChange
from .writer import Durations, Work, Writer

QUICK_NS: Final = 1_000_000
"""How long a commit may take that others wait for."""
IN_A_ROW: Final = 8
"""So many commits have to be quick before the next one is waited for."""
REST: Final = 20
"""After a slow one nobody waits for so many times as long as it took, which bounds the share of slow ones."""
REST_S: Final = 0.001  # between two steps of chores
OWN_BYTES_MAX: Final = 64 * 1024  # in a batch that the owner commits
OWN_FILES_MAX: Final = 2
OWN_ENTRIES_MAX: Final = 64  # of metadata


class Quickness:
    """Told of each commit, wherever it was made."""

    __slots__ = ("_not_before_ns", "_quick")

    def __init__(self) -> None:
        self._quick = 0
        self._not_before_ns = 0

    def took(self, began_ns: int, ended_ns: int, *, waited: bool) -> None:
        """A commit is done; ``waited`` is whether the owner waited for it."""
        if ended_ns - began_ns <= QUICK_NS:
            self._quick += 1
            return
        self._quick = 0
        if waited:
            self._not_before_ns = ended_ns + REST * (ended_ns - began_ns)

    def allows(self, now_ns: int) -> bool:
        """Whether the owner may wait for the next one."""
        return self._quick >= IN_A_ROW and now_ns >= self._not_before_ns


Done = Callable[[Exception | None], None]

Chore = Callable[[Writer], bool | None]
"""Work that no one waits for, run on the commit thread between batches: footers, unlinking.

One that returns True has more to do and is called again, after the batches that came meanwhile.
"""


class Batch(msgspec.Struct, eq=False):
    """What one flush hands over."""

    epoch: int
    done: Done
    work: Work = msgspec.field(default_factory=Work)
    nbytes: int = 0
    error: StoreError | None = None
    finished: bool = False  # set last, by the commit thread


class Committer:
    """Takes batches and chores, and marks batches finished in the order they came.

    Once a batch has failed, every later one of the same or an earlier ``epoch`` fails with it: it was
    built on what is being taken back. The owner raises the epoch when it has done so.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        clock: Clock,
        threaded: bool,
        notify: Callable[[], None],
        interval_ns: int | None,
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._threaded = threaded
        self._notify = notify
        self._interval_ns = interval_ns
        self._next_sync_ns = 0
        self._queue: deque[Batch | Chore] = deque()
        lock = threading.RLock()
        self._wake = threading.Condition(lock)
        self._given_back = threading.Condition(lock)
        self._thread: threading.Thread | None = None
        self._has_stepped = False
        self._is_busy = False  # the thread has taken something out of the queue, or syncs
        self._is_lent = False  # the owner commits, and the thread waits
        self._quickness = Quickness()
        self._stopping = False
        self._stopped = False
        self._refused: tuple[int, StoreError] | None = None
        self.failed: StoreFailedError | None = None
        self.durations = Durations()
        """How long commits took on the disk, that is, how long an acknowledgement waited for it."""
        self.own = 0
        """How many of them the owner made."""

    def submit(self, item: Batch | Chore) -> None:
        """Hand over a batch or a chore; without a thread, or after its end, carry it out now."""
        if not self._threaded or self._stopped:
            self._run([item])
            self._sync_if_due()
            return
        if isinstance(item, Batch) and self._borrow(item):
            self._commit_as_owner(item)
            return
        with self._wake:
            self._queue.append(item)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._loop, name="headrace-commit", daemon=True
                )
                self._thread.start()
            self._wake.notify()

    def _borrow(self, batch: Batch) -> bool:
        """Whether the owner is to commit a batch; if so, the thread does nothing until that is done."""
        if not is_small(batch) or not self._quickness.allows(self._clock.monotonic_ns()):
            return False
        with self._wake:
            if self._is_busy or self._queue or self._stopping:
                return False
            if self._interval_ns is not None and not self._writer.has_unsynced:
                return False  # the thread has to learn that there will be something to sync
            self._is_lent = True
        return True

    def _commit_as_owner(self, batch: Batch) -> None:
        try:
            batch.error = self._commit([batch], own=True)
            batch.finished = True
            self.own += 1
        finally:
            with self._wake:
                self._is_lent = False
                self._given_back.notify()

    def stop(self) -> None:
        """Carry out what is queued, sync what is not, and end the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        # What the last batches leave to be tidied up finds no thread, and must not begin another one,
        # which would still write when the directory is given free.
        self._stopped = True
        if self._interval_ns is not None:
            self._sync_now(self._interval_ns)

    # -- the commit thread

    def _loop(self) -> None:
        while True:
            with self._wake:
                self._is_busy = False
                while not self._queue and not self._stopping:
                    if not self._wake.wait(self._patience_s()):
                        break
                self._rest()
                while self._is_lent:
                    self._given_back.wait()
                if not self._queue and self._stopping:
                    return
                items = self._next_group()
                self._is_busy = True
            if items:
                self._run(items)
            self._sync_if_due()

    def _rest(self) -> None:
        """Between two steps of chores: otherwise this thread has the interpreter most of the time, while the
        event loop waits. What is handed over meanwhile ends it."""
        if self._has_stepped and not self._stopping and not isinstance(self._queue[0], Batch):
            self._wake.wait(REST_S)
        self._has_stepped = False

    def _patience_s(self) -> float | None:
        if self._interval_ns is None or not self._writer.has_unsynced:
            return None
        return max(0.0, (self._next_sync_ns - self._clock.monotonic_ns()) / 1e9)

    def _next_group(self) -> list[Batch | Chore]:
        """What may be committed together: up to a size, and nothing after a deletion or a chore."""
        items: list[Batch | Chore] = []
        epoch: int | None = None
        nbytes = 0
        while self._queue and nbytes < COMMIT_BATCH_BYTES_MAX:
            item = self._queue[0]
            if not isinstance(item, Batch):
                if not items:
                    items.append(self._queue.popleft())
                break
            if epoch is not None and item.epoch != epoch:
                break
            epoch = item.epoch
            items.append(self._queue.popleft())
            nbytes += item.nbytes
            if item.work.retired:
                break
        return items

    def _run(self, items: list[Batch | Chore]) -> None:
        batches = [item for item in items if isinstance(item, Batch)]
        if batches:
            error = self._commit(batches)
            for batch in batches:
                batch.error = error
                batch.finished = True
            self._notify()
        for item in items:
            if not isinstance(item, Batch):
                while self.run_chore(item):
                    if self._threaded and not self._stopping:
                        self._has_stepped = True
                        self.submit(item)
                        break

    def _commit(self, batches: list[Batch], *, own: bool = False) -> StoreError | None:
        if self.failed is not None:
            return self.failed
        if self._refused is not None:
            epoch, error = self._refused
            if batches[0].epoch <= epoch:
                return error
        began_ns = self._clock.monotonic_ns()
        try:
            self._writer.commit([batch.work for batch in batches])
        except StoreFullError as full:
            self._refused = (batches[-1].epoch, full)
            return full
        except StoreFailedError as failed:
            return self._fail(failed)
        except Exception as fault:
            # Nobody foresaw it, so nobody knows what is on disk: whoever waits for it is told.
            unforeseen = StoreFailedError(f"committing: {type(fault).__name__}: {fault}")
            unforeseen.__cause__ = fault
            return self._fail(unforeseen)
        ended_ns = self._clock.monotonic_ns()
        self.durations.add(ended_ns - began_ns)
        self._quickness.took(began_ns, ended_ns, waited=own)
        return None

    def run_chore(self, chore: Chore) -> bool:
        """Carry out a chore here and now: on the commit thread, or when it has ended.

        Returns whether it has more to do.
        """
        if self.failed is not None:
            return False
        try:
            return bool(chore(self._writer))
        except OSError as error:
            self._fail(StoreFailedError(f"tidying up: {error.strerror or error}"))
        except StoreFailedError as failed:
            self._fail(failed)
        return False

    def _sync_if_due(self) -> None:
        if self._interval_ns is not None and self._clock.monotonic_ns() >= self._next_sync_ns:
            self._sync_now(self._interval_ns)

    def _sync_now(self, interval_ns: int) -> None:
        self._next_sync_ns = self._clock.monotonic_ns() + interval_ns
        if self.failed is None:
            try:
                self._writer.sync_pending()
            except StoreFailedError as failed:
                self._fail(failed)

    def _fail(self, error: StoreFailedError) -> StoreFailedError:
        """Take nothing more; returns what every caller is told from here on."""
        if self.failed is None:
            self.failed = StoreFailedError(f"the store is read-only from here on: {error}")
            self.failed.__cause__ = error.__cause__ or error
            self._notify()
        return self.failed


def is_small(batch: Batch) -> bool:
    """Whether a batch only appends a little to a few files that are there, and to the journal."""
    work = batch.work
    nbytes = batch.nbytes + sum([len(copy.data) for copy in work.copies])
    if nbytes > OWN_BYTES_MAX or len(work.writes) > OWN_FILES_MAX:
        return False
    if work.directories or work.retired:
        return False
    if any(write.header is not None or write.truncate for write in work.writes):
        return False
    return work.meta is None or _is_short(work.meta)


def _is_short(meta: MetaChange) -> bool:
    is_anew = meta.image is not None or any(spare.whole for spare in meta.spares)
    return not is_anew and len(meta.entries) <= OWN_ENTRIES_MAX
