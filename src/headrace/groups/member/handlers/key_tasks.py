"""Several tasks that work off what one reader brings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sized
from typing import TYPE_CHECKING, Final

from ....handling.lanes import LaneTasks

if TYPE_CHECKING:
    from ....client import JetStreamMessage
    from ..ownership.intake import Intake
    from ..shared import Shared

HELD_MAX: Final = (
    10_000  # messages that wait in the lanes; what the server has beyond that stays there
)


class KeyTasks(LaneTasks):
    """As many tasks as the membership's ``concurrency``, each of which runs a lane, and their reader.

    Args:
        held: what was read and not begun.
        add: takes what was read.
        lane: what each task does until nothing more may begin.
        stop: says that nothing more may begin; it calls ``no_more``.
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
        def fail() -> None:
            stop()
            intake.abandon()  # wakes who reads

        def name(number: int) -> str:
            return f"lane {number} of {shared.label}"

        super().__init__(shared.concurrency, name, lane, stop, fail)
        self._intake = intake
        self._held = held
        self._add = add
        self._room: asyncio.Future[None] | None = None  # until the lanes have room
        self._is_over = False

    async def work_off(self) -> None:
        """See ``Work.run``."""
        await self.run(self._read)
        for lane in self.tasks:
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

    def taken(self) -> None:
        """Messages have been begun: there may be room to read more."""
        if self._room is not None and len(self._held) < HELD_MAX // 2:
            self._make_room()

    def no_more(self) -> None:
        """Have whoever waits find out that nothing more begins."""
        self._is_over = True
        self.wake_all()
        self._make_room()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
