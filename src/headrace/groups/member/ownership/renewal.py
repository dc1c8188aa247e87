"""When the lease is renewed: a third of it after the last time, and before a handler that could cost it.

Renewing takes turns of the loop: to send, and to receive twice. While handlers keep the loop it is late, or
stands still halfway; then no further one begins before it is done.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from .lease import Lease

if TYPE_CHECKING:
    from ..loop_watch import LoopWatch
    from .pinned import Pinned

OVERDUE_S: Final = 0.05  # a loop that is free is not so late
KEPT_LATELY: Final = 3  # times the time between renewals


class Renewal:
    """Keeps one lease, for as long as it can be kept.

    Args:
        pinned: asks the server.
        every_s: the longest time between two renewals, which also say what is in progress.
        watch: knows when the loop was kept last.
    """

    def __init__(self, pinned: Pinned, lease: Lease, every_s: float, watch: LoopWatch) -> None:
        self._pinned = pinned
        self._lease = lease
        self._every_s = every_s
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None  # when it is under way
        self._is_over = False
        self._done: asyncio.Future[None] | None = None  # where somebody waits

    async def keep(self) -> None:
        """Renew again and again; returns when the lease is lost. Raises NoRespondersError: the consumer is
        gone."""
        time = self._loop.time
        try:
            while True:
                await asyncio.sleep(min(self._every_s, self._lease.due_s(time())))
                self._since = time()
                is_kept = await self._pinned.renew(self._lease)
                self._since = None
                if not is_kept:
                    return
                self._tell()
        finally:
            self._is_over = True
            self._tell()

    def is_overdue(self) -> bool:
        """Whether it should have been done by now, had no handler kept the loop."""
        if self._is_over:
            return False
        if self._done is not None:
            return True  # one waits already, and so do all
        if self._since is not None:  # the next one may keep the loop as the last one did
            return self._watch.kept_at > self._since - KEPT_LATELY * self._every_s
        return self._lease.late_s(self._loop.time()) >= OVERDUE_S

    async def wait(self) -> None:
        """Until it is done, or the lease over."""
        while self.is_overdue():
            if self._done is None:
                self._done = self._loop.create_future()
            await asyncio.shield(self._done)

    def _tell(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done.set_result(None)
