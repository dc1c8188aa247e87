"""Handling what comes with a coroutine function: one message after the other, or several keys abreast.

It runs on the loop, which a handler may keep for as long as it does not await. So the loop has a turn every
few milliseconds between handlers, and a renewal of the lease that is late because of them is made before the
next one begins. ``threaded`` is the same for plain functions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from ....handling.callbacks import CALLBACK_ERRORS, gives_coroutines
from ....handling.lanes import is_cancelled
from ....handling.waiting import Waiting
from ...message import GroupMessage, delivered, is_confirmed
from ..loop_watch import LONG_S
from .handling import Handling, KeyTasks
from .on_threads import OnThreads

if TYPE_CHECKING:
    from ....client import JetStreamMessage
    from ..intake import Intake
    from ..lease import Generation
    from ..shared import HandlerLimit, Shared

TAKEN_AT_ONCE: Final = 256  # handlers that await nothing let the loop breathe after so many …
TURN_S: Final = 0.005  # … or after so long
IN_A_ROW: Final = 16  # of one partition, where several share the handlers


class Work(Protocol):
    """What handles the messages of a generation."""

    @property
    def last(self) -> GroupMessage | None:
        """Whose handler ended last."""

    async def run(self) -> None:
        """Until ``stop`` was called, the lease is over, or nothing more comes. Raises the error of the
        consumption, and HandlerFailedError."""

    def stop(self) -> None:
        """Begin no more handlers."""

    def waiting(self) -> list[JetStreamMessage]:
        """What came and was not begun."""

    def running(self) -> list[JetStreamMessage]:
        """What is being handled."""

    def current(self) -> GroupMessage | None:
        """One of those that are handled on the loop."""

    def tasks(self) -> list[asyncio.Task[None]]:
        """Those that call handlers, beside the one that calls ``run``."""


class InTurn:
    """One handler at a time, in the order of arrival."""

    def __init__(
        self,
        shared: Shared,
        intake: Intake,
        generation: Generation,
        first: list[JetStreamMessage],
    ) -> None:
        self._shared = shared
        self._intake = intake
        self._generation = generation
        self._waiting = deque(first)
        self._handling = Handling(shared, generation, intake, shared.call)
        self._current: GroupMessage | None = None
        self._stopping = False
        self._was_long = False  # the last handler
        self.last: GroupMessage | None = None

    async def run(self) -> None:
        """See ``Work``."""
        waiting, intake, limit = self._waiting, self._intake, self._shared.limit
        while not self._stopping:
            if intake.is_overdue():
                await intake.until_renewed()
            elif not waiting:
                waiting.extend(await intake.next_batch(TAKEN_AT_ONCE))
                if not waiting:
                    return
            elif limit is None:
                if not await self._handle(TAKEN_AT_ONCE):
                    return
                await self._pause()
            else:
                if not await limit.take(self):
                    return
                try:
                    if intake.is_overdue():
                        await intake.until_renewed()
                    if not await self._handle(IN_A_ROW):
                        return
                finally:
                    limit.give()
                await self._pause()

    async def _pause(self) -> None:
        """Let others go on. To wait for the next message does so, too; the server may wait for answers."""
        if self._was_long:
            self._was_long = False
            await _breathe()
        elif self._waiting or self._intake.has_more:
            await asyncio.sleep(0)
        elif self._shared.limit is None:  # else others answer in this turn
            self._intake.send_answers()

    async def _handle(self, count: int) -> bool:
        """Handle what waits, up to ``count`` messages, until a turn is over. False: the lease is over."""
        waiting, generation, handling = self._waiting, self._generation, self._handling
        lease, time, handler = (
            generation.lease,
            asyncio.get_running_loop().time,
            self._shared.handler,
        )
        now = time()
        ends = now + TURN_S
        try:
            while waiting and count and now < ends and not self._stopping:
                if now >= lease.until:
                    return False
                count -= 1
                message = GroupMessage(waiting.popleft(), generation)
                if is_confirmed(message):
                    continue
                self._current = message
                try:
                    await handler(message)  # type: ignore[misc]
                except CALLBACK_ERRORS as error:
                    if is_cancelled(error):
                        raise
                    await handling.failed(message, error)
                began, now = now, time()
                if now - began >= LONG_S:
                    self._was_long = True
                    self._shared.watch.took(now - began, message)
                if now >= lease.until:
                    handling.ended_late(message)
        finally:
            self.last = self._current or self.last
            self._current = None
        return True

    def stop(self) -> None:
        """See ``Work``."""
        self._stopping = True
        self._handling.stopping.set()
        if self._shared.limit is not None:
            self._shared.limit.leave(self)

    def waiting(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        return list(self._waiting)

    def running(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        return [delivered(self._current)] if self._current is not None else []

    def current(self) -> GroupMessage | None:
        """See ``Work``."""
        return self._current

    def tasks(self) -> list[asyncio.Task[None]]:
        """See ``Work``."""
        return []


class ConcurrentHandlers:
    """Several handlers at a time, never two of one key; those of one key in the order of arrival."""

    def __init__(
        self,
        shared: Shared,
        intake: Intake,
        generation: Generation,
        first: list[JetStreamMessage],
    ) -> None:
        self._shared = shared
        self._intake = intake
        self._generation = generation
        self._waiting: Waiting[GroupMessage] = Waiting()
        self._handling = Handling(shared, generation, intake, shared.call)
        self._tasks = KeyTasks(shared, intake, self._waiting, self._add, self._lane, self.stop)
        self._stopping = False
        self.last: GroupMessage | None = None
        self._add(first)

    async def run(self) -> None:
        """See ``Work``."""
        await self._tasks.work_off()

    def _add(self, messages: list[JetStreamMessage]) -> None:
        key, generation = self._shared.key, self._generation
        made = [GroupMessage(each, generation) for each in messages]
        self._waiting.add([(key(message), message) for message in made])
        self._tasks.wake(len(messages))

    async def _lane(self) -> None:
        waiting, loop, lease = self._waiting, asyncio.get_running_loop(), self._generation.lease
        limit, turn, now, looked = self._shared.limit, 0, loop.time(), 0.0
        ends = now + TURN_S
        while not self._stopping and lease.holds(now):
            if now - looked >= LONG_S:  # something may have kept the loop
                looked = now
                if self._intake.is_overdue():
                    await self._intake.until_renewed()
                    now = loop.time()
                    continue
            if limit is not None and waiting.has_free:
                if (message := await self._handle_in_a_place(limit)) is None:
                    now = loop.time()
                    continue
            elif (message := waiting.next()) is not None:
                await self._handle(message)
            else:
                await self._tasks.until_woken()
                now = loop.time()
                ends = now + TURN_S
                continue
            self._tasks.taken()
            turn += 1
            began, now = now, loop.time()
            if now - began >= LONG_S:
                self._shared.watch.took(now - began, message)
            if now >= ends or turn >= TAKEN_AT_ONCE:
                if now - began >= LONG_S:
                    await _breathe()
                else:
                    await asyncio.sleep(0)
                turn, now = 0, loop.time()
                ends = now + TURN_S

    async def _handle_in_a_place(self, limit: HandlerLimit) -> GroupMessage | None:
        """Handle a message when there is a place for it; which one, or None. It is taken only then: until
        there is one it waits, and goes back with all that waits if its partition goes."""
        if not await limit.take(self):
            return None
        try:
            if self._intake.is_overdue():
                await self._intake.until_renewed()
            if self._stopping or not self._generation.is_owned:
                return None
            message = self._waiting.next()
            if message is not None:
                await self._handle(message)
            return message
        finally:
            limit.give()

    async def _handle(self, message: GroupMessage) -> None:
        is_begun = False
        try:
            if is_confirmed(message):
                return
            is_begun = True
            await self._shared.handler(message)  # type: ignore[misc]
        except CALLBACK_ERRORS as error:
            if is_cancelled(error):
                raise
            await self._handling.failed(message, error)
        finally:
            if is_begun:
                self.last = message
                if not self._generation.is_owned:
                    self._handling.ended_late(message)
            self._waiting.done(message)
            self._tasks.wake(1)

    def stop(self) -> None:
        """See ``Work``."""
        self._stopping = True
        self._handling.stopping.set()
        if self._shared.limit is not None:
            self._shared.limit.leave(self)
        self._tasks.no_more()

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
