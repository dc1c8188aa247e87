"""Handling what comes with a coroutine function: one message after the other, or several keys abreast.

It runs on the loop, which a handler may keep for as long as it does not await. So the loop has a turn every
few milliseconds between handlers, and a renewal of the lease that is late because of them is made before the
next one begins. ``threaded`` is the same for plain functions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final

from ....handling.callbacks import gives_coroutines
from ....handling.waiting import Waiting
from ...message import GroupMessage, delivered, is_confirmed
from ..loop_watch import LONG_S
from .handling import KeyTasks, Work
from .on_threads import OnThreads

if TYPE_CHECKING:
    from ....client import JetStreamMessage
    from ..intake import Intake
    from ..lease import Generation
    from ..shared import Shared

TAKEN_AT_ONCE: Final = 256  # handlers that await nothing let the loop breathe after so many …
TURN_S: Final = 0.005  # … or after so long
IN_A_ROW: Final = 16  # of one partition, where several share the handlers


class InTurn(Work):
    """One handler at a time, in the order of arrival, where the messages are read: the lane's ``Source``."""

    def __init__(
        self,
        shared: Shared,
        intake: Intake,
        generation: Generation,
        first: list[JetStreamMessage],
    ) -> None:
        super().__init__(shared, intake, generation)
        self._waiting = deque(first)
        self._current: GroupMessage | None = None
        self._last: GroupMessage | None = None
        self._stopping = False
        self._was_long = False  # the last handler
        self._is_rested = True  # since the last turn

    async def run(self) -> None:
        """See ``Work``."""
        await self._calls.work(self)

    async def more(self) -> bool:
        """See ``Source``."""
        if not self._is_rested:
            await self._rest()
        waiting, intake, lease = self._waiting, self._intake, self._generation.lease
        limit = self._shared.limit
        while not self._stopping and lease.holds(self._time()):
            if intake.is_overdue():
                await intake.until_renewed()
            elif not waiting:
                waiting.extend(await intake.next_batch(TAKEN_AT_ONCE))
                if not waiting:
                    return False
            elif limit is None or await self.take_place():
                return True
        return False

    async def _rest(self) -> None:
        """Let others go on. To wait for the next message does so, too; the server may wait for answers."""
        self._is_rested = True
        if self._was_long:
            self._was_long = False
            await _breathe()
        elif self._waiting or self._intake.has_more:
            await asyncio.sleep(0)
        elif self._shared.limit is None:  # else others answer in this turn
            self._intake.send_answers()

    def turn(self) -> Generator[GroupMessage, None, None]:
        """See ``Source``: what waits, until the lease is over or others are to go on."""
        waiting, generation, time = self._waiting, self._generation, self._time
        lease = generation.lease
        left = TAKEN_AT_ONCE if self._shared.limit is None else IN_A_ROW
        now = time()
        ends = now + TURN_S
        while waiting and left and now < ends and now < lease.until and not self._stopping:
            left -= 1
            message = GroupMessage(waiting.popleft(), generation)
            if is_confirmed(message):
                continue
            self._current = message
            try:
                yield message
            finally:
                began, now = now, time()
                if now >= lease.until:
                    self._handling.ended_late(message)
            if now - began >= LONG_S:
                self._was_long = True
                self._shared.watch.took(now - began, message)

    def came_back(self) -> None:
        """See ``Source``: it has no threads."""

    def turned(self) -> None:
        """See ``Source``."""
        self._last = self._current or self._last
        self._current = None
        self._is_rested = False
        self.give_place()

    def stop(self) -> None:
        """See ``Work``."""
        self._stopping = True
        super().stop()

    @property
    def last(self) -> GroupMessage | None:
        """See ``Work``."""
        return self._last

    def waiting(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        return list(self._waiting)

    def running(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        return [delivered(self._current)] if self._current is not None else []

    def current(self) -> GroupMessage | None:
        """See ``Work``."""
        return self._current


class ConcurrentHandlers(Work):
    """Several handlers at a time, never two of one key; those of one key in the order of arrival."""

    def __init__(
        self,
        shared: Shared,
        intake: Intake,
        generation: Generation,
        first: list[JetStreamMessage],
    ) -> None:
        super().__init__(shared, intake, generation)
        self._waiting: Waiting[GroupMessage] = Waiting()
        self._last: GroupMessage | None = None
        self._stopping = False
        self._tasks = KeyTasks(
            shared,
            intake,
            self._waiting,
            self._add,
            lambda: self._calls.work(_Lane(self)),
            self.stop,
        )
        self._add(first)

    async def run(self) -> None:
        """See ``Work``."""
        await self._tasks.work_off()

    def _add(self, messages: list[JetStreamMessage]) -> None:
        key, generation = self._shared.key, self._generation
        made = [GroupMessage(each, generation) for each in messages]
        self._waiting.add([(key(message), message) for message in made])
        self._tasks.wake(len(messages))

    @property
    def may_begin(self) -> bool:
        """Whether anything may."""
        return not self._stopping and self._generation.is_owned

    async def until_free(self) -> bool:
        """Until there may be something to begin; whether it is there already."""
        intake = self._intake
        if intake.is_overdue():
            await intake.until_renewed()
        elif not self._waiting.has_free:
            await self._tasks.until_woken()
        else:
            # A message is taken only then: until there is a place it waits, and goes back with all that waits
            # if its partition goes.
            return await self.take_place()
        return False

    def turn(self, lane: _Lane) -> Generator[GroupMessage, None, None]:
        """See ``Source``; one at a time where several consumers share the places."""
        waiting, tasks, time = self._waiting, self._tasks, self._time
        lease, is_shared = self._generation.lease, self._shared.limit is not None
        now = time()
        while now < lease.until and not self._stopping and (message := waiting.next()) is not None:
            if is_confirmed(message):
                waiting.done(message)
                tasks.wake(1)
                continue
            try:
                yield message
            finally:
                self._last = message
                began, now = now, time()
                if now >= lease.until:
                    self._handling.ended_late(message)
                waiting.done(message)
                tasks.wake(1)
                tasks.taken()
            lane.handled += 1
            if now - began >= LONG_S:
                self._shared.watch.took(now - began, message)
                lane.was_long = True
                return
            if is_shared or now >= lane.ends or lane.handled >= TAKEN_AT_ONCE:
                return

    turned = Work.give_place

    def stop(self) -> None:
        """See ``Work``."""
        self._stopping = True
        super().stop()
        self._tasks.no_more()

    @property
    def last(self) -> GroupMessage | None:
        """See ``Work``."""
        return self._last

    def waiting(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        return [delivered(message) for message in self._waiting.waiting()]

    def running(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        return [delivered(message) for message in self._waiting.handled()]

    def current(self) -> GroupMessage | None:
        """See ``Work``."""
        return next(iter(self._waiting.running), None)

    def tasks(self) -> list[asyncio.Task[None]]:
        """See ``Work``."""
        return self._tasks.tasks


class _Lane:
    """The ``Source`` of one lane of several.

    Attributes:
        handled, ends, was_long: since it has let the loop turn: how many messages, until when it goes on, and
            whether the last one took long.
    """

    def __init__(self, work: ConcurrentHandlers) -> None:
        self._work = work
        self._time = asyncio.get_running_loop().time
        self._begin()

    def _begin(self) -> None:
        self.handled, self.was_long = 0, False
        self.ends = self._time() + TURN_S

    async def more(self) -> bool:
        """See ``Source``."""
        work = self._work
        if self.was_long:
            await _breathe()
            self._begin()
        elif self.handled >= TAKEN_AT_ONCE or self._time() >= self.ends:
            await asyncio.sleep(0)
            self._begin()
        while work.may_begin:
            if await work.until_free():
                return True
            self._begin()
        return False

    def turn(self) -> Generator[GroupMessage, None, None]:
        """See ``Source``."""
        return self._work.turn(self)

    def came_back(self) -> None:
        """See ``Source``: it has no threads."""

    def turned(self) -> None:
        """See ``Source``."""
        self._work.turned()


async def _breathe() -> None:
    """Let the loop do what has become due while a handler took long, before the next one begins."""
    # What is due is called after those that were ready before, as this is now. So it takes two turns.
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def work_of(shared: Shared) -> Callable[..., Work]:
    """Which kind of work a membership does."""
    if not gives_coroutines(shared.handler):
        return OnThreads
    return InTurn if shared.concurrency == 1 else ConcurrentHandlers
