"""Syncing files: several at a time, where a commit has touched several.

A file system puts many files that are synced at once on disk in one go, as a commit of its own journal is
for all who wait for it. One after the other, each waits for a commit of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .files import FileSystem, Handles

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

THREADS: Final = 8
TOGETHER_MIN: Final = 3  # fewer are synced where they are asked for
TOGETHER_MAX: Final = 128  # files held open at a time


class Syncing:
    """Belongs to the commit thread, as ``handles`` do. Unless ``at_once`` it syncs one after the other.

    Attributes:
        together: how many files were synced with others.
    """

    def __init__(self, fs: FileSystem, handles: Handles, *, at_once: bool) -> None:
        self._fs = fs
        self._handles = handles
        self._at_once = at_once
        self._pool: ThreadPoolExecutor | None = None
        self.together = 0

    def sync(self, paths: Sequence[str]) -> tuple[str, OSError] | None:
        """Return once the content of these files is on disk, or with the first that failed."""
        for start in range(0, len(paths), TOGETHER_MAX):
            failed = self._sync_some(paths[start : start + TOGETHER_MAX])
            if failed is not None:
                return failed
        return None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _sync_some(self, paths: Sequence[str]) -> tuple[str, OSError] | None:
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

    def _sync_open(self, files: Sequence[tuple[str, int]]) -> tuple[str, OSError] | None:
        for path, handle in files:
            try:
                self._fs.fdatasync(handle)
            except OSError as error:
                return path, error
        return None

    def _sync_in_turn(self, paths: Sequence[str]) -> tuple[str, OSError] | None:
        for path in paths:
            try:
                self._fs.fdatasync(self._handles.get(path))
            except OSError as error:
                return path, error
        return None
