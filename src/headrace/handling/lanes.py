"""Tasks that each handle one message at a time, and wait where there is none to begin."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any


class LaneTasks:
    """As many tasks as handlers may run at once.

    Args:
        count: how many.
        name: of each task, by its number.
        lane: what each does until nothing more may begin.
        end: called when nothing more comes; it wakes the tasks that wait (``wake_all``).
        fail: called when a task fails: it makes whoever brings messages return.

    Attributes:
        tasks: the tasks, also those of others that were added.
    """

    def __init__(
        self,
        count: int,
        name: Callable[[int], str],
        lane: Callable[[], Awaitable[None]],
        end: Callable[[], object],
        fail: Callable[[], object],
    ) -> None:
        self._count = count
        self._name = name
        self._lane = lane
        self._end = end
        self._fail = fail
        self._idle: deque[asyncio.Future[None]] = deque()
        self.tasks: list[asyncio.Task[None]] = []

    async def run(self, bring: Callable[[], Awaitable[None]]) -> None:
        """Run the lanes until ``bring`` has returned and they have ended. Their errors are in ``tasks``.

        Where this is cancelled they are, too, and waited for.
        """
        loop = asyncio.get_running_loop()
        self.tasks = [
            loop.create_task(self._run_lane(), name=self._name(number))
            for number in range(self._count)
        ]
        try:
            await bring()
        except asyncio.CancelledError:
            cancel(self.tasks)
            raise
        finally:
            self._end()
            try:
                await asyncio.wait(self.tasks)
            except asyncio.CancelledError:
                cancel(self.tasks)
                await asyncio.wait(self.tasks)
                raise

    async def _run_lane(self) -> None:
        try:
            await self._lane()
        except BaseException:
            self._fail()
            raise

    async def until_woken(self) -> None:
        """Of a lane: until there may be something to begin, or nothing may begin any more."""
        future = asyncio.get_running_loop().create_future()
        self._idle.append(future)
        await future

    def wake(self, count: int) -> None:
        """So many messages may be begun: as many lanes go on."""
        while count > 0 and self._idle:
            future = self._idle.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    def wake_all(self) -> None:
        """Have every lane see that nothing more comes."""
        self.wake(len(self._idle))


def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel all of them."""
    for task in tasks:
        task.cancel()
