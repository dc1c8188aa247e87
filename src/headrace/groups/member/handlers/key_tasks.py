"""Several tasks that work off what one reader brings."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sized
from typing import TYPE_CHECKING, Final

from .handling import cancel

if TYPE_CHECKING:
    from ....client import JetStreamMessage
    from ..ownership.intake import Intake
    from ..shared import Shared

HELD_MAX: Final = (
    10_000  # messages that wait in the lanes; what the server has beyond that stays there
)


class LaneTasks:
    """As many tasks as the membership's ``concurrency``, each of which runs a lane, and their reader.

    Args:
        held: what was read and not begun.
        add: takes what was read.
        lane: what each task does until nothing more may begin.
        stop: says that nothing more may begin; it calls ``end``.

    Attributes:
        tasks: those that run the lanes.
    """

    def __init__(
        self,
        shared: Shared,
        intake: Intake,
        held: Sized,
        add: Callable[[list[JetStreamMessage]], None],
        lane: Callable[[], Awaitable[None]],
        stop: Callable[[], None],
    ) -> None:
        self._shared = shared
        self._intake = intake
        self._held = held
        self._add = add
        self._run_lane = lane
        self._stop = stop
        self._idle: deque[asyncio.Future[None]] = deque()  # tasks that wait for a message
        self._room: asyncio.Future[None] | None = None  # until the lanes have room
        self._is_over = False
        self.tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """See ``Work``."""
        loop, label = asyncio.get_running_loop(), self._shared.label
        self.tasks = lanes = [
            loop.create_task(self._lane(), name=f"lane {number} of {label}")
            for number in range(self._shared.concurrency)
        ]
        try:
            await self._read()
        except asyncio.CancelledError:
            cancel(lanes)
            raise
        finally:
            self._stop()
            try:
                await asyncio.wait(lanes)
            except asyncio.CancelledError:
                cancel(lanes)
                await asyncio.wait(lanes)
                raise
        for lane in lanes:
            lane.result()

    async def _read(self) -> None:
        while not self._is_over:
            if len(self._held) >= HELD_MAX:
                self._room = asyncio.get_running_loop().create_future()
                await self._room
                continue
            messages = await self._intake.next_batch()
            if not messages:
                return
            self._add(messages)

    async def _lane(self) -> None:
        try:
            await self._run_lane()
        except BaseException:
            self._stop()
            self._intake.abandon()  # wakes who reads
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

    def taken(self) -> None:
        """Messages have been begun: there may be room to read more."""
        if self._room is not None and len(self._held) < HELD_MAX // 2:
            self._make_room()

    def end(self) -> None:
        """Nothing more begins: whoever waits goes on, and finds that out."""
        self._is_over = True
        self.wake(len(self._idle))
        self._make_room()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
