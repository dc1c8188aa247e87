"""Syncing what a commit has touched: several files at a time, or all with one call.

A file system puts many files that are synced at once on disk in one go, as a commit of its own journal is
for all who wait for it. One after the other, each waits for a commit of its own. Where the whole file
system can be synced by one call, that is quicker still: 1,000 files take it a seventh of the time of eight
threads. But it waits for what others have written, too; see ``Thrift``.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from .files import FileSystem, Handles

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

THREADS: Final = 8
TOGETHER_MIN: Final = 3  # fewer are synced where they are asked for
TOGETHER_MAX: Final = 128  # files held open at a time
WHOLE_MIN: Final = 4  # fewer are not worth the others' writes
DIRTY_MAX: Final = 16 << 20
"""What the machine may have to write yet when all is synced: some 30 ms of a usual disk."""
_SLOW: Final = 4  # times what the files by themselves are thought to take
_SLOW_NS_MIN: Final = 5_000_000
_FILE_NS: Final = 100_000  # for each file by itself, until it is known
_REST: Final = 50  # times what a slow one took

_Failure = tuple[str, OSError] | None
"""The path that could not be synced, and why."""


class Thrift:
    """Whether syncing the whole file system is worth it. Times in ns; pure.

    Fewer than ``whole_min`` files are always synced by themselves. After a sync of the whole that took far
    longer than the files by themselves, as others write much, there is a rest of 50 times as long: so at most
    some 2 % of the time is lost by trying.
    """

    def __init__(self, whole_min: int) -> None:
        self.whole_min = whole_min
        self._each_ns = float(_FILE_NS)
        self._rests_until_ns: int | None = None

    def may(self, count: int, now_ns: int) -> bool:
        """Whether so many files may be synced by syncing all."""
        if count < self.whole_min:
            return False
        if self._rests_until_ns is not None and now_ns < self._rests_until_ns:
            return False
        self._rests_until_ns = None
        return True

    def whole_took(self, count: int, took_ns: int, now_ns: int) -> None:
        """All was synced, for so many files."""
        if took_ns > max(_SLOW * self._each_ns * count, _SLOW_NS_MIN):
            self._rests_until_ns = now_ns + _REST * took_ns

    def each_took(self, count: int, took_ns: int) -> None:
        """So many files were synced by themselves."""
        if count >= self.whole_min:
            self._each_ns += (took_ns / count - self._each_ns) / 8


class Syncing:
    """Belongs to the commit thread, as ``handles`` do. Unless ``at_once`` it syncs one after the other.

    ``anchor`` is a file of the store that is open as long as it is, for syncing the whole file system;
    without one, that is not tried.

    Attributes:
        unsynced: the files that are there and have been written to, not synced yet, and are not asked for.
        together: how many files were synced with others, by threads.
        whole: how many files and directories were synced with the whole file system.
        thrift: when that is done.
    """

    def __init__(
        self,
        fs: FileSystem,
        handles: Handles,
        *,
        at_once: bool,
        anchor: int | None = None,
        monotonic_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self._fs = fs
        self._handles = handles
        self._at_once = at_once
        self._anchor = anchor
        self._monotonic_ns = monotonic_ns
        self.thrift = Thrift(WHOLE_MIN)
        self._pool: ThreadPoolExecutor | None = None
        self.together = self.whole = 0
        self.unsynced: Callable[[], Sequence[str]] = tuple

    def sync(self, paths: Sequence[str], directories: Sequence[str] = ()) -> _Failure:
        """Return once the content of these files is on disk, and then the names in these directories; or
        with the first that failed."""
        began_ns = self._monotonic_ns()
        count = len(paths) + len(directories)
        if self._anchor is not None and self.thrift.may(count, began_ns):
            try:
                is_done = self._sync_whole(self._anchor, [*paths, *directories])
            except OSError as error:
                return self._sync_all(paths, directories, error)
            if is_done:
                # Where the disk is not told to empty its cache by that, one by itself does it.
                failed = self._sync_each(paths[-1:], () if paths else directories[-1:])
                now_ns = self._monotonic_ns()
                self.thrift.whole_took(count, now_ns - began_ns, now_ns)
                return failed
        failed = self._sync_each(paths, directories)
        self.thrift.each_took(len(paths), self._monotonic_ns() - began_ns)
        return failed

    def _sync_whole(self, anchor: int, paths: Sequence[str]) -> bool:
        is_done = self._fs.sync_whole(anchor, paths, DIRTY_MAX)
        self.whole += len(paths) * is_done
        return is_done

    def _sync_all(
        self, paths: Sequence[str], directories: Sequence[str], error: OSError
    ) -> _Failure:
        """Ask each file by itself, as something has failed that may be somebody else's.

        The whole tells of it once: each file that has not been synced is asked now, or a later sync of the
        whole would take its loss for done. A file tells it only to a handle that was open, so with more
        files than handles it has to be taken for one of ours.
        """
        every = [*dict.fromkeys([*paths, *self.unsynced()])]
        if error.errno == errno.EIO and not self._handles.are_open(every):
            return f"the file system of {(every or directories)[0]}", error
        return self._sync_each(every, directories)

    def _sync_each(self, paths: Sequence[str], directories: Sequence[str]) -> _Failure:
        for start in range(0, len(paths), TOGETHER_MAX):
            failed = self._sync_some(paths[start : start + TOGETHER_MAX])
            if failed is not None:
                return failed
        for path in directories:
            try:
                self._fs.fsync_dir(path)
            except OSError as error:
                return path, error
        return None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _sync_some(self, paths: Sequence[str]) -> _Failure:
        handles = None
        if self._at_once and len(paths) >= TOGETHER_MIN:
            with contextlib.suppress(OSError):  # which is met again below, and told with its path
                handles = self._handles.of_all(paths)
        if handles is None:
            return self._sync_in_turn(paths)
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # a start needs it not

            self._pool = ThreadPoolExecutor(THREADS, "headrace-sync")
        count = min(THREADS, len(paths))
        pairs = list(zip(paths, handles, strict=True))
        running = []
        with contextlib.suppress(RuntimeError):  # the interpreter is ending: no more threads
            for at in range(count):
                share = pairs[at::count]
                running.append(self._pool.submit(self._sync_open, share))
        # All have ended before anything else is done with the handles.
        failures = [each.result() for each in running]
        failed = next((each for each in failures if each is not None), None)
        if failed is not None:  # never asked again: the system tells of it once
            return failed
        if len(running) < count:
            return self._sync_in_turn(paths)
        self.together += len(paths)
        return None

    def _sync_open(self, files: Sequence[tuple[str, int]]) -> _Failure:
        for path, handle in files:
            try:
                self._fs.fdatasync(handle)
            except OSError as error:
                return path, error
        return None

    def _sync_in_turn(self, paths: Sequence[str]) -> _Failure:
        for path in paths:
            try:
                self._fs.fdatasync(self._handles.get(path))
            except OSError as error:
                return path, error
        return None
