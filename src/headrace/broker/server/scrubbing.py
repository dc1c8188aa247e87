"""The scrub of a store's files, beside the event loop: one pass after the other, slowly."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from ...clock import Clock
from ..store import FileStorage
from ..store.io.files import FileSystem
from ..store.io.findings import Finding
from ..store.storage.scrub import ScrubState, scrub

FIRST_S: Final = 600.0  # after the start, which has enough to do
PAUSE_S: Final = 24 * 3600.0  # between two passes


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
