"""A job while a worker works on it, and how its handler is called; signals that end workers in order.

Several workers of one event loop share its signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
)
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from ...handling.callbacks import awaitable_of, close_unawaited
from .calls import LeasedJob, Progress

__all__ = [
    "Handler",
    "Hook",
    "JobCancelled",
    "RunningJob",
    "Turn",
    "called",
    "is_free",
    "stopped_by",
]


Over = Literal["cancelled", "lost", "stopped"]

_WHY: Final = {
    "cancelled": "the job was cancelled",
    "lost": "the lease is over: another worker has the job, or will have it",
    "stopped": "the worker ends, and has given the job back",
}


class JobCancelled(Exception):  # noqa: N818 - it is no error of anybody's
    """Raised by ``raise_if_cancelled``: nobody waits for this job's handler any more."""


class RunningJob(LeasedJob, frozen=True, kw_only=True):
    """The job that a handler is called with. Its methods may be called on any thread."""

    _turn: Turn

    def progress(self, done: float | None = None, note: str = "") -> None:
        """Say how far it is: the share that is ``done``, 0 to 1, a ``note``, or both.

        Lists and pages of jobs show what was said last. It goes with the next heartbeat, within a second
        or so: what is said meanwhile is not. Raises ValueError for a share that is none.
        """
        self._turn.say(Progress.made(done, note))

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for the handler any more: the job was cancelled, its lease was lost, or the
        worker ends and has given it back. A coroutine is cancelled then; a function has to look, and return.
        """
        return self._turn.over is not None

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is to end: what takes longer than its ``drain_s`` is given back then."""
        return self._turn.is_stopping()

    def raise_if_cancelled(self) -> None:
        """Raise :class:`JobCancelled` if ``is_cancelled``: for loops of functions that block."""
        if self._turn.over is not None:
            raise JobCancelled(_WHY[self._turn.over])


Handler = Callable[[RunningJob], Awaitable[Any]] | Callable[[RunningJob], Any]
Hook = Callable[[RunningJob], AbstractContextManager[object] | AbstractAsyncContextManager[object]]


class Turn:
    """State of one job that is worked on, shared by worker and handler.

    Attributes:
        job: as it was claimed.
        over: why nobody waits for its handler any more.
        told: whether its newest progress was sent.
        on_thread: whether its handler is a function that runs now, which cannot be cancelled.
        failure: what the handler raised.
    """

    __slots__ = (
        "_notify", "failure", "is_stopping", "job", "on_thread", "over", "progress", "told"
    )  # fmt: skip

    def __init__(
        self, job: LeasedJob, is_stopping: Callable[[], bool], notify: Callable[[], None]
    ) -> None:
        self.job = job
        self.is_stopping = is_stopping
        self._notify = notify
        self.over: Over | None = None
        self.progress: Progress | None = None
        self.told = True
        self.on_thread = False
        self.failure: Exception | None = None

    def running_job(self) -> RunningJob:
        """The job as its handler gets it."""
        given = {name: getattr(self.job, name) for name in LeasedJob.__struct_fields__}
        return RunningJob(**given, _turn=self)

    def say(self, progress: Progress) -> None:
        """The handler is so far. On any thread."""
        self.progress, self.told = progress, False
        self._notify()

    def news(self) -> Progress | None:
        """The progress that was not sent yet."""
        return None if self.told else self.progress

    def was_sent(self, sent: Progress | None) -> None:
        """The service has this progress."""
        if sent is not None and sent is self.progress:
            self.told = True


def called(
    handler: Callable[[RunningJob], Any], hooks: Sequence[Hook], *, awaited: bool
) -> Callable[[Turn], Any]:
    """What is to be called with the state of each job: ``handler`` with its hooks around it.

    Args:
        awaited: whether the handler gives coroutines; else it is called on a thread.
    """
    return functools.partial(_awaited if awaited else _plain, handler, hooks)


async def _awaited(handler: Callable[[RunningJob], Any], hooks: Sequence[Hook], turn: Turn) -> None:
    job = turn.running_job()
    async with AsyncExitStack() as around:
        for hook in hooks:
            manager: Any = hook(job)
            if hasattr(type(manager), "__aenter__"):
                await around.enter_async_context(manager)
            else:
                around.enter_context(manager)
        if (awaitable := awaitable_of(handler(job))) is not None:
            await awaitable


def _plain(handler: Callable[[RunningJob], Any], hooks: Sequence[Hook], turn: Turn) -> Any:
    """Call it on a thread. What it returns is awaited on the loop, where it can be."""
    job = turn.running_job()
    result: Any = None  # also where a hook keeps an error to itself
    turn.on_thread = True
    try:
        with ExitStack() as around:
            for hook in hooks:
                manager: Any = hook(job)
                around.enter_context(manager)
            result = handler(job)
            if hooks and inspect.isawaitable(result):
                close_unawaited(result)
                raise TypeError(
                    "the handler returned something to await, which `around` would not be around; accepted "
                    "is a coroutine function (async def)"
                )
    finally:
        turn.on_thread = False
    if turn.over is not None:
        close_unawaited(result)
        return None
    return result


_Asked = dict[int, list[Callable[[], None]]]

_OF_LOOPS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Asked]] = WeakKeyDictionary()


def is_free(number: int) -> bool:
    """Whether this is the thread that gets signals, and nobody has said what happens at this one."""
    if threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)


@contextlib.contextmanager
def stopped_by(
    numbers: Sequence[int], stop: Callable[[], None], *, taken: Sequence[int] = ()
) -> Iterator[None]:
    """Call ``stop`` at each of these signals, those left out at which a program does something of its own.

    Those in ``taken`` are handled whoever has them.
    """
    loop = asyncio.get_running_loop()
    asked = _OF_LOOPS.setdefault(loop, {})
    ours = []
    for number in (*numbers, *taken):
        if number not in asked:
            if number not in taken and not is_free(number):
                continue
            try:
                loop.add_signal_handler(number, _tell, asked, number)
            except (NotImplementedError, RuntimeError, ValueError):
                continue  # this system, or this loop, has no such thing
            asked[number] = []
        asked[number].append(stop)
        ours.append(number)
    try:
        yield
    finally:
        for number in ours:
            asked[number].remove(stop)
            if not asked[number]:
                del asked[number]
                loop.remove_signal_handler(number)


def _tell(asked: _Asked, number: int) -> None:
    for stop in tuple(asked.get(number, ())):
        stop()
