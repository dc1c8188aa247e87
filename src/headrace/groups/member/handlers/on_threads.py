"""Handling what comes with a plain function, on threads: what blocks there stops neither the loop nor a
renewal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from ....client.jetstream.consuming.answers import MessageOnThread
from ....client.seam import answers_from_threads
from ....handling.callbacks import CALLBACK_ERRORS
from ....handling.lanes import is_cancelled
from ....handling.threads import Stopped, awaitable_of, take_turn
from ....handling.waiting import Waiting
from ...errors import NotOwnedError
from ...message import GroupMessage, delivered, is_confirmed
from .handling import Handling, KeyTasks

if TYPE_CHECKING:
    from ....client import JetStreamMessage
    from ..intake import Intake
    from ..lease import Generation
    from ..shared import Shared

IN_ONE_GO: Final = 256  # messages, before the loop is asked again
IN_A_ROW: Final = 16  # … where several consumers share the handlers


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
        self._waiting: Waiting[GroupMessage] = Waiting(in_turn=self._in_turn, notes_late=True)
        # Of the loop alone.
        self._tasks = KeyTasks(shared, intake, self._waiting, self._add, self._lane, self.stop)
        self._add(first)

    # On the loop

    async def run(self) -> None:
        """See ``Work``."""
        if self._in_turn:
            await self._one_at_a_time()
        else:
            await self._tasks.work_off()

    async def _one_at_a_time(self) -> None:
        lease = self._generation.lease
        try:
            while not self._waiting.is_over and lease.holds(self._time()):
                if self._waiting.has_free:
                    await self._take_turn()
                elif messages := await self._intake.next_batch(IN_ONE_GO):
                    self._add(messages)
                else:
                    return
        finally:
            self.stop()

    def _add(self, messages: list[JetStreamMessage]) -> None:
        generation, answers = self._generation, self._answers
        made = [GroupMessage(MessageOnThread.of(each, answers), generation) for each in messages]
        key: Callable[[GroupMessage], Hashable] | None = None if self._in_turn else self._shared.key
        self._waiting.add([(key and key(message), message) for message in made])
        self._tasks.wake(len(made))

    async def _lane(self) -> None:
        lease, loop = self._generation.lease, asyncio.get_running_loop()
        while not self._waiting.is_over and lease.holds(loop.time()):
            if not self._waiting.has_free:
                await self._tasks.until_woken()
                continue
            await self._take_turn()
            self._tasks.taken()

    async def _take_turn(self) -> None:
        """Have a thread work off some of it, with a place where several consumers share them."""
        limit = self._shared.limit
        if limit is None:
            return await self._work_off()
        if not await limit.take(self):
            return None
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
            self._waiting.done(message, is_late=self._time() >= self._generation.lease.until)
            self._tell_of_late()
            self._tasks.wake(1)

    def _tell_of_late(self) -> None:
        late = self._waiting.late
        while late:
            self._handling.ended_late(late.popleft())

    async def _call(self, message: GroupMessage) -> None:
        """Once more. Raises NotOwnedError: it was taken from us before a thread came to it."""

        def call() -> Any:
            if not self._generation.is_owned:
                raise NotOwnedError(f"{message!r} was not handled again: it has another owner")
            return self._context.copy().run(self._shared.handler, message)

        result: Any = await self._shared.threads.run(call)
        if (awaitable := awaitable_of(result)) is not None:
            await awaitable

    # On a thread

    def _handle_some(self) -> Stopped[GroupMessage] | None:
        """Handle what waits, one message after the other. What needs the loop ends that."""
        return take_turn(
            self._waiting,
            self._shared.handler,
            self._context,
            self._time,
            self._generation.lease,
            self._in_one_go,
            skips=is_confirmed,
        )

    # Asked and told by the loop

    def stop(self) -> None:
        """See ``Work``."""
        self._waiting.stop()
        self._handling.stopping.set()
        if self._shared.limit is not None:
            self._shared.limit.leave(self)
        self._tasks.no_more()

    @property
    def last(self) -> GroupMessage | None:
        """See ``Work``."""
        return self._waiting.last

    def waiting(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        return [delivered(message) for message in self._waiting.waiting()]

    def running(self) -> list[JetStreamMessage]:
        """See ``Work``."""
        return [delivered(message) for message in self._waiting.handled()]

    def current(self) -> GroupMessage | None:
        """See ``Work``: none of them is on the loop."""
        return None

    def tasks(self) -> list[asyncio.Task[None]]:
        """See ``Work``."""
        return self._tasks.tasks
