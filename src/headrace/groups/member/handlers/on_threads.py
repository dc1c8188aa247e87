"""Handling what comes with a plain function, on threads: what blocks there stops neither the loop nor a
renewal."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ....client.callbacks import CALLBACK_ERRORS
from ....client.handlers.key_order import Lanes, Line
from ....client.handlers.threads import as_plain
from ....client.jetstream.consuming.answers import MessageOnThread
from ....client.jetstream.message import Queued
from ....client.seam import answers_from_threads
from ...errors import NotOwnedError
from ...message import GroupMessage, delivered, is_confirmed
from .handling import Handling, is_cancelled
from .key_tasks import LaneTasks

if TYPE_CHECKING:
    from ....client import JetStreamMessage
    from ..ownership.intake import Intake
    from ..ownership.lease import Generation
    from ..shared import Shared

IN_ONE_GO: Final = 256  # messages, before the loop is asked again
IN_A_ROW: Final = 16  # … where several consumers share the handlers


class _Stopped(NamedTuple):
    """What a thread leaves to the loop: a call that raised, or returned what is to be awaited."""

    key: Hashable
    message: GroupMessage
    error: BaseException | None
    awaitable: Awaitable[object] | None


class OnThreads:
    """Plain functions: one at a time in the order of arrival, or several at once, never two of one key.

    A thread takes message after message by itself, as long as there are any whose key is free. Whatever is
    decided (that it may begin, that nothing more begins) is decided under one lock. See ``Work``.
    """

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
        self._handling = Handling(shared, generation, intake, self._call)
        self._time = asyncio.get_running_loop().time
        self._context = copy_context()
        self._answers = answers_from_threads(shared.js.connection, shared.report)
        self._in_turn = shared.concurrency == 1
        self._in_one_go = IN_ONE_GO if shared.limit is None else IN_A_ROW
        self._lock = threading.Lock()  # for what follows
        self._lanes: Lanes[GroupMessage] | Line[GroupMessage] = Line() if self._in_turn else Lanes()
        self._running: dict[GroupMessage, None] = {}
        self._stopping = False
        self._late: deque[GroupMessage] = deque()  # ended when the lease was over
        self.last: GroupMessage | None = None
        # Of the loop alone.
        self._tasks = LaneTasks(shared, intake, self._lanes, self._add, self._lane, self.stop)
        self._add(first)

    # On the loop

    async def run(self) -> None:
        """See ``Work``."""
        if self._in_turn:
            await self._one_at_a_time()
        else:
            await self._tasks.run()

    async def _one_at_a_time(self) -> None:
        lease = self._generation.lease
        try:
            while not self._stopping and lease.holds(self._time()):
                if self._lanes.has_free:
                    await self._take_turn()
                elif messages := await self._intake.next_batch(IN_ONE_GO):
                    self._add(messages)
                else:
                    return
        finally:
            self.stop()

    def _add(self, messages: list[JetStreamMessage]) -> None:
        lanes, generation, answers = self._lanes, self._generation, self._answers
        made = [GroupMessage(MessageOnThread.of(each, answers), generation) for each in messages]
        key: Callable[[GroupMessage], Hashable] | None = None if self._in_turn else self._shared.key
        keyed = [(key and key(message), message) for message in made]
        with self._lock:
            for each in keyed:
                lanes.add(*each)
        self._tasks.wake(len(made))

    async def _lane(self) -> None:
        lease, loop = self._generation.lease, asyncio.get_running_loop()
        while not self._stopping and lease.holds(loop.time()):
            if not self._lanes.has_free:
                await self._tasks.until_woken()
                continue
            await self._take_turn()
            self._tasks.taken()

    async def _take_turn(self) -> None:
        """Have a thread work off some of it, with a place where several consumers share them."""
        limit = self._shared.limit
        if limit is None:
            return await self._work_off()
        await limit.take()
        try:
            await self._work_off()
        finally:
            limit.give()

    async def _work_off(self) -> None:
        self._answers.expect()
        try:
            stopped = await self._shared.threads.run(self._handle_some)
        finally:
            self._answers.send()
        self._tell_of_late()
        if stopped is None:
            return
        message = stopped.message
        try:
            if stopped.awaitable is not None:
                await stopped.awaitable
            elif stopped.error is not None:
                await self._handling.failed(message, stopped.error)
        except CALLBACK_ERRORS as error:
            if is_cancelled(error) or stopped.awaitable is None:
                raise
            await self._handling.failed(message, error)
        finally:
            with self._lock:
                self._is_done(stopped.key, message, self._time())
            self._tell_of_late()
            self._tasks.wake(1)

    def _tell_of_late(self) -> None:
        while self._late:
            self._handling.ended_late(self._late.popleft())

    async def _call(self, message: GroupMessage) -> None:
        """Once more. Raises NotOwnedError: it was taken from us before a thread came to it."""

        def call() -> Any:
            if not self._generation.is_owned:
                raise NotOwnedError(f"{message!r} was not handled again: it has another owner")
            return self._context.copy().run(self._shared.handler, message)

        result: Any = await self._shared.threads.run(call)
        if (awaitable := _awaitable(result)) is not None:
            await awaitable

    # On a thread

    def _handle_some(self) -> _Stopped | None:
        """Handle what waits, one message after the other. What needs the loop ends that."""
        lanes, lock, running, lease = self._lanes, self._lock, self._running, self._generation.lease
        handler, time, context = self._shared.handler, self._time, self._context
        key: Hashable = None
        message: GroupMessage | None = None
        for _ in range(self._in_one_go):
            with lock:
                now = time()
                if message is not None:
                    self._is_done(key, message, now)
                if self._stopping or now >= lease.until:
                    return None
                if (taken := lanes.take()) is None:
                    return None
                key, message = taken
                running[message] = None
            if is_confirmed(message):
                continue
            try:
                result = context.copy().run(handler, message)
            except BaseException as error:
                return _Stopped(key, message, as_plain(error), None)
            if result is not None and (awaitable := _awaitable(result)) is not None:
                return _Stopped(key, message, None, awaitable)
        with lock:
            assert message is not None
            self._is_done(key, message, time())
        return None

    def _is_done(self, key: Hashable, message: GroupMessage, now: float) -> None:
        if now >= self._generation.lease.until:
            self._late.append(message)
        self.last = message
        del self._running[message]
        self._lanes.done(key)

    # Asked and told by the loop

    def stop(self) -> None:
        """See ``Work``."""
        with self._lock:
            self._stopping = True
        self._handling.stopping.set()
        self._tasks.end()

    def waiting(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        with self._lock:
            return [delivered(message) for message in self._lanes]

    def running(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        with self._lock:
            return [delivered(message) for message in self._running]

    def current(self) -> GroupMessage | None:
        """See ``Work``: none of them is on the loop."""
        return None

    def tasks(self) -> list[asyncio.Task[None]]:
        """See ``Work``."""
        return self._tasks.tasks


def _awaitable(result: object) -> Awaitable[object] | None:
    """What is to be awaited of what the handler returned: it was a coroutine function after all."""
    if result is None or type(result) is Queued or not inspect.isawaitable(result):
        return None
    return result
