"""When the lease is renewed: a third of it after the last time, and before a handler that could cost it.

Renewing takes turns of the loop: to send, and to receive twice. While handlers keep the loop it is late, or
stands still halfway; then no further one begins before it is done.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from .lease import Lease

if TYPE_CHECKING:
    from .pinned import Pinned

OVERDUE_S: Final = 0.05  # a loop that is free is not so late
KEEPS_SHARE: Final = 0.1  # of a lease: a handler that takes longer may have kept the loop meanwhile


class Renewal:
    """Keeps one lease, for as long as it can be kept.

    Args:
        pinned: asks the server.
        every_s: the longest time between two renewals, which also say what is in progress.
        lease_s: how long it lasts.
    """

    def __init__(self, pinned: Pinned, lease: Lease, every_s: float, lease_s: float) -> None:
        self._pinned = pinned
        self._lease = lease
        self._every_s = every_s
        self._lease_s = lease_s
        self._loop = asyncio.get_running_loop()
        self._is_under_way = False
        self._is_over = False
        self._done: asyncio.Future[None] | None = None  # where somebody waits

    async def keep(self) -> None:
        """Renew again and again; returns when the lease is lost. Raises NoRespondersError: the consumer is
        gone."""
        time = self._loop.time
        try:
            while True:
                await asyncio.sleep(min(self._every_s, self._lease.due_s(time())))
                self._is_under_way = True
                is_kept = await self._pinned.renew(self._lease)
                self._is_under_way = False
                if not is_kept:
                    return
                self._tell()
        finally:
            self._is_over = True
            self._tell()

    def is_overdue(self, took_s: float) -> bool:
        """Whether it should have been done by now, had the last handler, which took ``took_s``, not kept the
        loop."""
        if self._is_over:
            return False
        if self._is_under_way:
            return took_s >= KEEPS_SHARE * self._lease_s
        return self._lease.late_s(self._loop.time()) >= OVERDUE_S

    async def wait(self) -> None:
        """Until it is done, or the lease over."""
        while not self._is_over and self._lease.late_s(self._loop.time()) >= 0:
            if self._done is None:
                self._done = self._loop.create_future()
            await asyncio.shield(self._done)

    def _tell(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done.set_result(None)
