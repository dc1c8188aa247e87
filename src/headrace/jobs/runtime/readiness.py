"""Whether this process can do its work: a write is tried, because a full disk still lets everybody read."""

from __future__ import annotations

import asyncio
from typing import Final

from ...clock import Clock
from ..errors import JobsError
from ..store import Database, Tx
from .parts import reason_of

__all__ = ["WriteProbe"]

_KEY: Final = "write_tried_us"
PROBE_FRESH_S: Final = 1.0  # a result is given to whoever asks within this time
PROBE_WAIT_S: Final = 2.0  # a write that takes longer counts as failed


class WriteProbe:
    """Tries a write, at most once a second however many ask, and says why it failed."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._tried: asyncio.Task[str | None] | None = None
        self._tried_s = 0.0

    async def problem(self) -> str | None:
        """Why writes fail, with the place of the database and its disk; None if they work."""
        now_s = self._clock.monotonic_ns() / 1e9
        if self._tried is None or (self._tried.done() and now_s - self._tried_s >= PROBE_FRESH_S):
            self._tried = asyncio.create_task(self._try())
            self._tried_s = now_s
        try:
            async with asyncio.timeout(PROBE_WAIT_S):
                # The write itself is not cancelled: it is the next one's answer, whenever it comes.
                return await asyncio.shield(self._tried)
        except TimeoutError:
            place = await asyncio.to_thread(self._database.place)
            return f"{place}: a write did not end within {PROBE_WAIT_S:g} s"

    async def _try(self) -> str | None:
        def write(tx: Tx) -> None:
            tx.run("put_meta", key=_KEY, value=str(tx.now_us()))

        try:
            await self._database.write(write)
            await self._database.find_room()
        except Exception as error:
            reason = error.message if isinstance(error, JobsError) else reason_of(error)
            return f"{await asyncio.to_thread(self._database.place)}: {reason}"
        return None

    async def close(self) -> None:
        """Wait for a write that is under way."""
        if self._tried is not None:
            await asyncio.gather(self._tried, return_exceptions=True)
