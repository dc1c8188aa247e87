"""Handling what comes with a plain function, on threads: what blocks there stops neither the loop nor a
renewal.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import TYPE_CHECKING, Final

from ....client.jetstream.consuming.answers import MessageOnThread
from ....client.seam import answers_from_threads
from ....handling.waiting import Waiting
from ...message import GroupMessage, delivered, is_confirmed
from .handling import KeyTasks, Work

if TYPE_CHECKING:
    import asyncio

    from ....client import JetStreamMessage
    from ..intake import Intake
    from ..lease import Generation
    from ..shared import Shared

IN_ONE_GO: Final = 256  # messages, before the loop is asked again
IN_A_ROW: Final = 16  # … where several consumers share the handlers


class OnThreads(Work):
    """Plain functions: one at a time in the order of arrival, or several at once, never two of one key.

    A thread takes message after message by itself, as long as there are any whose key is free. Whatever is
    decided (that it may begin, that nothing more begins) is decided under one lock. The lanes' ``Source``.
    """

    def __init__(
        self,
        shared: Shared,
        intake: Intake,
        generation: Generation,
        first: list[JetStreamMessage],
    ) -> None:
        self._answers = answers_from_threads(shared.js.connection, shared.report)
        super().__init__(shared, intake, generation, shared.threads, self._answers)
        self._in_turn = shared.concurrency == 1
        self._in_one_go = IN_ONE_GO if shared.limit is None else IN_A_ROW
        self._waiting: Waiting[GroupMessage] = Waiting(in_turn=self._in_turn, notes_late=True)
        # Of the loop alone.
        self._tasks = KeyTasks(
            shared,
            intake,
            self._waiting,
            self._add,
            lambda: self._calls.work(self),
            self.stop,
        )
        self._add(first)

    async def run(self) -> None:
        """See ``Work``."""
        if not self._in_turn:
            await self._tasks.work_off()
            return
        try:
            await self._calls.work(self)
        finally:
            self.stop()

    def _add(self, messages: list[JetStreamMessage]) -> None:
        generation, answers = self._generation, self._answers
        made = [GroupMessage(MessageOnThread.of(each, answers), generation) for each in messages]
        key: Callable[[GroupMessage], Hashable] | None = None if self._in_turn else self._shared.key
        self._waiting.add([(key and key(message), message) for message in made])
        self._tasks.wake(len(made))

    # As a source

    async def more(self) -> bool:
        """See ``Source``."""
        waiting, lease, limit = self._waiting, self._generation.lease, self._shared.limit
        while not waiting.is_over and lease.holds(self._time()):
            if waiting.has_free:
                if limit is None or await limit.take(self):
                    return True
            elif not self._in_turn:
                await self._tasks.until_woken()
            elif messages := await self._intake.next_batch(IN_ONE_GO):
                self._add(messages)
            else:
                return False
        return False

    def turn(self) -> Generator[GroupMessage, None, None]:
        """See ``Source``."""
        lease = self._generation.lease
        return self._waiting.turn(self._time, lease, self._in_one_go, skips=is_confirmed)

    def came_back(self) -> None:
        """See ``Source``."""
        late = self._waiting.late
        while late:
            self._handling.ended_late(late.popleft())
        self._tasks.taken()
        self._tasks.wake(1)

    def turned(self) -> None:
        """See ``Source``."""
        self.give_place()

    # Asked and told by the loop

    def stop(self) -> None:
        """See ``Work``."""
        self._waiting.stop()
        super().stop()
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

    def tasks(self) -> list[asyncio.Task[None]]:
        """See ``Work``."""
        return self._tasks.tasks
