"""Calling a handler: message after message, on the loop or on threads, and what follows when it fails.

A **lane** is ``Calls.work``, awaited: it handles one message at a time. Whoever reads messages may be the
only lane, and await the handler where it reads; ``lanes`` runs several beside the one who reads. What may be
begun, and in which order, is the ``Source``'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from types import CoroutineType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from .callbacks import (
    ENDINGS,
    as_exception,
    awaitable_of,
    cancellations,
    close_unawaited,
    is_ending,
)
from .threads import Stopped, Threads, Turn, call_again

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)


class Messages(Protocol[M_co]):
    """Messages that a lane may begin before it asks anew. Each was handled, or failed and was seen to, when
    the next one is asked for, and also when they are closed."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> M_co: ...
    def close(self) -> None:
        """Begin no more of them."""


class Source(Protocol[M_co]):
    """What a lane takes from. Of a lane on threads, the messages are asked for there."""

    async def more(self) -> bool:
        """Until there may be something to begin; False: nothing more begins."""

    def turn(self) -> Messages[M_co]:
        """What may be begun now."""

    def came_back(self) -> None:
        """Called where a thread has come back: with the turn, or for what needs the loop."""

    def turned(self) -> None:
        """Called when the turn is over."""


class Single(Generic[M]):
    """One message that has a lane of its own: whoever cancels that cancels no other message."""

    def __init__(self, message: M) -> None:
        self._left = [message]

    async def more(self) -> bool:
        """See ``Source``."""
        return bool(self._left)

    def turn(self) -> Self:
        """See ``Source``."""
        return self

    def came_back(self) -> None:
        """See ``Source``: nobody waits for it."""

    turned = came_back

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> M:
        if not self._left:
            raise StopIteration
        return self._left.pop()

    def close(self) -> None:
        """See ``Messages``."""
        self._left.clear()


Again = Callable[[], Awaitable[None]]
Failed = Callable[[M, Exception, Again], Awaitable[None]]


class Expecting(Protocol):
    """What is answered on threads, and sent from the loop."""

    def expect(self) -> None:
        """A thread begins."""

    def send(self) -> bool:
        """Send what was answered so far."""


def _unnoted(message: object) -> None:
    """Whoever is cancelled has nothing to say of its message."""


class Calls(Generic[M]):
    """A handler at work.

    Args:
        handler: what is called. What it returns is awaited on the loop, if it can be.
        failed: sees to a message whose handler raised, and may call it again; what it raises ends the lane.
        threads: where the handler is called; None: on the loop.
        answers: of handlers on threads.
        dropped: told of a message whose lane was cancelled, or ended by what its handler raised.
        check: called before each further call; what it raises is as if the handler had raised it.
        endings: what ends a lane where a handler raises it on the loop. On a thread nothing does.
    """

    def __init__(
        self,
        handler: Callable[[M], object],
        failed: Failed[M],
        *,
        threads: Threads | None = None,
        answers: Expecting | None = None,
        dropped: Callable[[M], object] = _unnoted,
        check: Callable[[M], object] | None = None,
        endings: tuple[type[BaseException], ...] = ENDINGS,
    ) -> None:
        self._handler = handler
        self._failed = failed
        self._threads = threads
        self._answers = answers
        self._dropped = dropped
        self._check = check
        self._endings: Final = endings

    async def work(self, source: Source[M]) -> None:
        """Be a lane: handle what ``source`` has, until nothing more begins."""
        if self._threads is not None:
            await self._work_on(self._threads, source)
            return
        handler = self._handler
        task = asyncio.current_task()
        assert task is not None
        kept = 0  # cancellations that handlers have kept to themselves
        while await source.more():
            messages = source.turn()
            try:
                for message in messages:
                    try:
                        result: Any = handler(message)
                        if result is not None and (
                            type(result) is CoroutineType
                            or (result := awaitable_of(result)) is not None
                        ):
                            await result
                    except BaseException as error:
                        await self.raised(message, error, kept=kept)
                    if task.cancelling() > kept:
                        await asyncio.sleep(0)  # one that has not arrived yet ends the lane here
                        kept = task.cancelling()
            finally:
                messages.close()
                source.turned()

    async def _work_on(self, threads: Threads, source: Source[M]) -> None:
        """A thread takes message after message by itself, and comes back for what needs the loop."""
        turn = Turn(self._handler, copy_context(), asyncio.current_task())
        answers = self._answers
        while await source.more():
            messages = source.turn()
            turn.begin(messages)
            try:
                while not turn.is_over:
                    if answers is not None:
                        answers.expect()
                    try:
                        await threads.run(turn)
                    except asyncio.CancelledError:
                        self._let_go(turn)
                        raise
                    finally:
                        if answers is not None:
                            answers.send()
                    if turn.stopped is not None:
                        source.came_back()
                        await self._settle(turn.stopped)
            finally:
                messages.close()
                source.came_back()
                source.turned()

    def _let_go(self, turn: Turn[M]) -> None:
        """Of what a thread has left to the loop, as the lane was cancelled meanwhile."""
        if turn.stopped is not None:
            close_unawaited(turn.stopped.awaitable)
            self._dropped(turn.stopped.message)

    async def _settle(self, stopped: Stopped[M]) -> None:
        """Do on the loop what a thread has left to it."""
        if stopped.error is not None:
            await self.raised(stopped.message, stopped.error)
            return
        assert stopped.awaitable is not None
        kept = cancellations()
        try:
            await stopped.awaitable
        except BaseException as error:
            await self.raised(stopped.message, error, kept=kept)

    async def raised(
        self, message: M, error: BaseException, *, again: Again | None = None, kept: int = 0
    ) -> None:
        """Its handler raised ``error``: see to the message, or raise what ends the lane.

        Args:
            again: instead of calling the handler once more.
            kept: how many cancellations of the task handlers had kept to themselves before.
        """
        if is_ending(error, self._endings, kept):
            self._dropped(message)
            raise error
        try:
            if cancellations() > kept:
                await asyncio.sleep(0)  # one that has not arrived yet ends the lane here
                kept = cancellations()
            await self._failed(message, as_exception(error), again or partial(self.once, message))
        except BaseException as ended:
            if is_ending(ended, self._endings, kept):
                self._dropped(message)
            raise

    async def once(self, message: M) -> None:
        """Call the handler with it once more. Raises what it raises, and what ``check`` does."""
        handler, check = self._handler, self._check
        if self._threads is None:
            if check is not None:
                check(message)
            result: object = handler(message)
        else:
            result = await self._threads.run(
                partial(call_again, message, handler, copy_context(), asyncio.current_task(), check)
            )
        if result is not None and (awaitable := awaitable_of(result)) is not None:
            await awaitable
