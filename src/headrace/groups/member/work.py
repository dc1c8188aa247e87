"""Handling what comes, within one generation: one message after the other, or several keys abreast."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, Protocol

from ...client.callbacks import CALLBACK_ERRORS
from ..message import GroupMessage
from .handling import Handling, is_cancelled
from .lanes import Lanes

if TYPE_CHECKING:
    from ...client import JetStreamMessage
    from .crew import Crew
    from .intake import Intake
    from .lease import Generation

TAKEN_AT_ONCE: Final = 256  # a plain handler lets the loop breathe after so many
IN_A_ROW: Final = 16  # of one partition, where several share the handlers
HELD_MAX: Final = (
    10_000  # messages that wait in the lanes; what the server has beyond that stays there
)


class Work(Protocol):
    """What handles the messages of a generation."""

    last: GroupMessage | None  # whose handler ended last

    async def run(self) -> None:
        """Until ``stop`` was called, the lease is over, or nothing more comes. Raises the error of the
        consumption, and HandlerFailedError."""

    def stop(self) -> None:
        """Begin no more handlers."""

    def waiting(self) -> list[JetStreamMessage]:
        """What came and was not begun."""

    def running(self) -> list[JetStreamMessage]:
        """What is being handled."""

    def tasks(self) -> list[asyncio.Task[None]]:
        """Those that call handlers, beside the one that calls ``run``."""


class InTurn:
    """One handler at a time, in the order of arrival."""

    def __init__(
        self,
        crew: Crew,
        intake: Intake,
        generation: Generation,
        first: list[JetStreamMessage],
    ) -> None:
        self._crew = crew
        self._intake = intake
        self._generation = generation
        self._waiting = deque(first)
        self._handling = Handling(crew, generation)
        self._current: GroupMessage | None = None
        self._stopping = False
        self.last: GroupMessage | None = None

    async def run(self) -> None:
        """See ``Work``."""
        waiting, intake, slots = self._waiting, self._intake, self._crew.slots
        while not self._stopping:
            if not waiting:
                waiting.extend(await intake.next_batch(TAKEN_AT_ONCE))
                if not waiting:
                    return
            elif slots is None:
                if not await self._handle(TAKEN_AT_ONCE):
                    return
                await self._pause()
            else:
                await slots.take()
                try:
                    if not await self._handle(IN_A_ROW):
                        return
                finally:
                    slots.give()
                await self._pause()

    async def _pause(self) -> None:
        """Let others go on. To wait for the next message does so, too; the server may wait for answers."""
        if self._waiting or self._intake.has_more:
            await asyncio.sleep(0)
        elif self._crew.slots is None:  # else others answer in this turn
            self._intake.send_answers()

    async def _handle(self, count: int) -> bool:
        """Handle what waits, up to ``count`` messages. False: the lease is over."""
        waiting, generation, handling = self._waiting, self._generation, self._handling
        lease, time = generation.lease, asyncio.get_running_loop().time
        handler, is_coroutine = self._crew.handler, handling.is_coroutine
        try:
            while waiting and count and not self._stopping:
                if time() >= lease.until:
                    return False
                count -= 1
                self._current = message = GroupMessage(waiting.popleft(), generation)
                try:
                    if is_coroutine:
                        await handler(message)  # type: ignore[misc]
                    elif (result := handling.awaited(handler(message))) is not None:
                        await result
                except CALLBACK_ERRORS as error:
                    if is_cancelled(error):
                        raise
                    await handling.failed(message, error)
        finally:
            self.last = self._current or self.last
            self._current = None
        return True

    def stop(self) -> None:
        """See ``Work``."""
        self._stopping = True
        self._handling.stopping.set()

    def waiting(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        return list(self._waiting)

    def running(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        return [self._current._message] if self._current is not None else []

    def tasks(self) -> list[asyncio.Task[None]]:
        """See ``Work``."""
        return []


class Abreast:
    """Several handlers at a time, never two of one key; those of one key in the order of arrival."""

    def __init__(
        self,
        crew: Crew,
        intake: Intake,
        generation: Generation,
        first: list[JetStreamMessage],
    ) -> None:
        self._crew = crew
        self._intake = intake
        self._generation = generation
        self._lanes: Lanes[GroupMessage] = Lanes()
        self._handling = Handling(crew, generation)
        self._running: dict[GroupMessage, None] = {}
        self._left: list[GroupMessage] = []  # taken out of their lanes, and not begun
        self._idle: deque[asyncio.Future[None]] = deque()  # handlers that wait for a message
        self._tasks: list[asyncio.Task[None]] = []
        self._room: asyncio.Future[None] | None = None  # until the lanes have room
        self._stopping = False
        self.last: GroupMessage | None = None
        self._add(first)

    async def run(self) -> None:
        """See ``Work``."""
        loop, label = asyncio.get_running_loop(), self._crew.label
        self._tasks = lanes = [
            loop.create_task(self._lane(), name=f"lane {number} of {label}")
            for number in range(self._crew.concurrency)
        ]
        try:
            await self._read()
        except asyncio.CancelledError:
            _cancel(lanes)
            raise
        finally:
            self.stop()
            try:
                await asyncio.wait(lanes)
            except asyncio.CancelledError:
                _cancel(lanes)
                await asyncio.wait(lanes)
                raise
        for lane in lanes:
            lane.result()

    async def _read(self) -> None:
        while not self._stopping:
            if len(self._lanes) >= HELD_MAX:
                self._room = asyncio.get_running_loop().create_future()
                await self._room
                continue
            messages = await self._intake.next_batch()
            if not messages:
                return
            self._add(messages)

    def _add(self, messages: list[JetStreamMessage]) -> None:
        key, lanes, generation = self._crew.key, self._lanes, self._generation
        for each in messages:
            message = GroupMessage(each, generation)
            lanes.add(key(message), message)
        self._wake(len(messages))

    def _wake(self, count: int) -> None:
        while count > 0 and self._idle:
            future = self._idle.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    async def _lane(self) -> None:
        lanes, loop, lease = self._lanes, asyncio.get_running_loop(), self._generation.lease
        turn = 0
        while not self._stopping and lease.holds(loop.time()):
            taken = lanes.take()
            if taken is None:
                future = loop.create_future()
                self._idle.append(future)
                await future
                continue
            try:
                await self._handle(*taken)
            except BaseException:
                self.stop()
                self._intake.abandon()  # wakes who reads
                raise
            if self._room is not None and len(lanes) < HELD_MAX // 2 and not self._room.done():
                self._room.set_result(None)
            turn += 1
            if turn >= TAKEN_AT_ONCE:
                turn = 0
                await asyncio.sleep(0)

    async def _handle(self, key: Hashable, message: GroupMessage) -> None:
        self._running[message] = None
        slots, is_placed, is_begun = self._crew.slots, False, False
        try:
            if slots is not None:
                await slots.take()
                is_placed = True
                if self._stopping or not self._generation.is_owned:
                    self._left.append(message)
                    return
            is_begun = True
            if (result := self._handling.awaited(self._crew.handler(message))) is not None:
                await result
        except CALLBACK_ERRORS as error:
            if is_cancelled(error):
                raise
            await self._handling.failed(message, error)
        finally:
            if slots is not None and is_placed:
                slots.give()
            if is_begun:
                self.last = message
            del self._running[message]
            self._lanes.done(key)
            self._wake(1)

    def stop(self) -> None:
        """See ``Work``."""
        self._stopping = True
        self._handling.stopping.set()
        self._wake(len(self._idle))
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def waiting(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        return [message._message for message in (*self._left, *self._lanes)]

    def running(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        return [message._message for message in self._running]

    def tasks(self) -> list[asyncio.Task[None]]:
        """See ``Work``."""
        return self._tasks


def _cancel(lanes: list[asyncio.Task[None]]) -> None:
    for lane in lanes:
        lane.cancel()


def work_of(crew: Crew) -> Callable[..., Work]:
    """Which kind of work a membership does."""
    return InTurn if crew.concurrency == 1 else Abreast
