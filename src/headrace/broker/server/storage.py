"""The broker's storage: opened and closed beside the loop, completing its flushes on it.

``Scrubbing`` reads its files again, beside the event loop: one pass after the other, slowly.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from ...api.times import format_time
from ...clock import Clock, SystemClock
from ..store import FileStorage, MemoryStorage
from ..store.io.files import FileSystem
from ..store.io.findings import Finding
from ..store.storage.scrub import ScrubState, scrub
from .config.options import BrokerOptions
from .connections.pump import Pump

FIRST_S: Final = 600.0  # after the start, which has enough to do
PAUSE_S: Final = 24 * 3600.0  # between two passes
TIDY_S: Final = 1.0
"""How often the storage is asked for what it does by and by, when nothing else makes it."""


class Scrubbing:
    """Reads all sealed files at ``bytes_per_second``, again and again, until it is stopped.

    ``tell`` is called in the loop for each thing found.
    """

    def __init__(
        self,
        storage: FileStorage,
        files: FileSystem,
        clock: Clock,
        bytes_per_second: int,
        tell: Callable[[], None],
    ) -> None:
        self.state: Final = ScrubState()
        self._storage = storage
        self._files = files
        self._clock = clock
        self._rate = bytes_per_second
        self._tell = tell
        self._stop = threading.Event()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await asyncio.sleep(FIRST_S)
            while True:
                await self.one_pass()
                await asyncio.sleep(PAUSE_S)
        finally:
            self._stop.set()

    async def one_pass(self) -> None:
        """Read every sealed file once. Cancelled, it ends within one piece."""
        loop, state = asyncio.get_running_loop(), self.state
        done = asyncio.Event()
        work = self._storage.sealed_files()
        state.begun_ns, state.files, state.nbytes = self._clock.now_ns(), 0, 0

        def found(finding: Finding) -> None:
            loop.call_soon_threadsafe(note, finding)

        def note(finding: Finding) -> None:
            self._storage.report.append(finding)
            self._tell()

        def read() -> None:
            try:
                for nbytes in scrub(self._files, work, state, found):
                    if self._stop.wait(nbytes / self._rate):
                        return
                state.passes += 1
                state.ended_ns = self._clock.now_ns()
            finally:
                loop.call_soon_threadsafe(done.set)

        thread = threading.Thread(target=read, name="headrace-scrub")
        thread.start()
        try:
            await done.wait()
        except asyncio.CancelledError:
            self._stop.set()
            raise
        finally:
            thread.join()


logger = logging.getLogger("headrace.broker")


Result = TypeVar("Result")


class OpenStorage:
    """A storage in use. Made by ``open_storage``."""

    def __init__(
        self, storage: FileStorage | MemoryStorage, close: Callable[[], None] | None = None
    ) -> None:
        """``close`` is called instead of the storage's own, on a thread, as it may take time."""
        self.storage = storage
        self.scrubbing: Scrubbing | None = None
        self._scrubbing_task: asyncio.Task[None] | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._close = close
        self._reported = 0
        self._failure_reported = False
        self._is_full = False

    def tell(self) -> None:
        """Log what the storage found wrong since the last call, and its failure once."""
        if isinstance(self.storage, MemoryStorage):
            return
        report = self.storage.report
        while self._reported < len(report):
            finding = report[self._reported]
            self._reported += 1
            logger.warning("Store: %s, byte %d: %s", finding.path, finding.offset, finding.what)
        failed = self.storage.failed
        if failed is not None and not self._failure_reported:
            self._failure_reported = True
            logger.error("Store: restart when it is repaired: %s", failed)
        full = self.storage.full
        if self._is_full != (full is not None):
            self._is_full = full is not None
            if full is None:
                logger.info("Store: there is room again")
            else:
                directory = self.storage.directory
                disk = os.statvfs(directory)
                free = disk.f_bavail * disk.f_frsize
                logger.error("Store: %s; %d bytes are free in %s", full, free, directory)

    async def flushed(self) -> None:
        """Wait until everything staged so far is on disk, or is known not to be."""
        done = asyncio.get_running_loop().create_future()

        def completed(error: Exception | None) -> None:
            if not done.done():
                done.set_result(None)

        self.storage.flush(completed)
        await done

    def describe(self) -> dict[str, Any]:
        """What monitoring says of the store beside its numbers."""
        if isinstance(self.storage, MemoryStorage):
            return {}
        timing = self.storage.timing()
        scrubbing = self.scrubbing
        if scrubbing is None:
            return {**timing}
        state = scrubbing.state
        return {
            **timing,
            "scrub": {
                "passes": state.passes,
                "begun": format_time(state.begun_ns) if state.begun_ns else "",
                "ended": format_time(state.ended_ns) if state.ended_ns else "",
                "files": state.files,
                "bytes": state.nbytes,
                "damaged": state.damaged,
            },
        }

    def begin_scrubbing(self, scrubbing: Scrubbing) -> None:
        """Read what is no longer written from time to time, until the storage is closed."""
        self.scrubbing = scrubbing
        self._scrubbing_task = asyncio.get_running_loop().create_task(
            scrubbing.run(), name="headrace-scrub"
        )

    def begin_tidying(self, loop: asyncio.AbstractEventLoop, tidy: Callable[[], object]) -> None:
        """Call ``tidy`` every ``TIDY_S``, until the storage is closed."""

        def again() -> None:
            self._tidying = loop.call_later(TIDY_S, again)
            tidy()

        self._tidying = loop.call_later(TIDY_S, again)

    async def close(self) -> None:
        """Write down the clean end and give the directory free."""
        if self._tidying is not None:
            self._tidying.cancel()
        if self._scrubbing_task is not None:
            self._scrubbing_task.cancel()
            await asyncio.gather(self._scrubbing_task, return_exceptions=True)
            self._scrubbing_task = None
        if self._close is None:
            self.storage.close()
        else:
            await _beside_the_loop(self._close, lambda nothing: None)


async def open_storage(
    options: BrokerOptions, loop: asyncio.AbstractEventLoop, pump: Pump, handles: int
) -> OpenStorage:
    """Open the directory of ``options``, or memory. Raises StoreError.

    ``handles`` descriptors are the store's: some from here on, whatever else the process opens, the others
    when it needs them.
    """
    directory = options.store_dir
    if directory is None:
        return OpenStorage(MemoryStorage())
    from ..store import FileStorage, LocalFiles  # a broker in memory starts without it
    from ..store.io.files import explain
    from ..store.storage.layout import RESERVED

    def notify() -> None:
        """On the commit thread: a flush is done."""
        try:
            loop.call_soon_threadsafe(pump.run, complete)
        except RuntimeError:
            pass  # the loop was closed without stopping the broker: nobody is left to tell

    def complete() -> None:
        # The commit thread has work before the opening has returned: see below.
        for storage in opened:
            storage.storage.complete()
            storage.tell()

    try:
        files = LocalFiles(min(handles, RESERVED))
    except OSError as error:
        raise explain(
            error, f"reserving {min(handles, RESERVED)} descriptors for the store"
        ) from error

    def close(storage: FileStorage) -> None:
        storage.close()
        files.release()

    def make() -> FileStorage:
        try:
            return FileStorage(
                Path(directory),
                fs=files,
                sync=options.sync,
                cache_bytes=options.payload_cache_bytes,
                notify=notify,
                handles=handles,
            )
        except BaseException:
            files.release()
            raise

    opened: list[OpenStorage] = []
    made = await _beside_the_loop(make, close)
    opened.append(OpenStorage(made, partial(close, made)))
    complete()  # what was finished meanwhile
    # Whoever only reads brings segments into memory, and no flush that would let go of them.
    opened[0].begin_tidying(loop, partial(pump.run, complete))
    if options.scrub_bytes_s:
        begun = Scrubbing(made, files, SystemClock(), options.scrub_bytes_s, opened[0].tell)
        opened[0].begin_scrubbing(begun)
    return opened[0]


async def _beside_the_loop(job: Callable[[], Result], undo: Callable[[Result], None]) -> Result:
    """Run ``job`` on a thread of its own, which has ended when this returns.

    A recovery may take seconds, in which the loop has others to serve. When the caller is cancelled
    meanwhile, the job is awaited all the same and then undone.
    """
    loop = asyncio.get_running_loop()
    finished = asyncio.Event()
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(job())
        except BaseException as error:  # handed to the caller below
            errors.append(error)
        loop.call_soon_threadsafe(finished.set)

    thread = threading.Thread(target=run, name="headrace-store")
    thread.start()
    try:
        await finished.wait()
    except asyncio.CancelledError:
        thread.join()
        for result in results:
            undo(result)
        raise
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
