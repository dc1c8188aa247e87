"""Several callbacks of a consume at once: never two of one key, those of one key in the order of arrival.

Coroutine functions run on the loop, plain functions on threads. What came and was not begun is on the
``WaitingByKey``, where the feed renews it and takes it back.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ....errors import ConfigurationError
from ...callbacks import CALLBACK_ERRORS, as_exception, await_result, gives_coroutines
from ...handlers.threads import OwnThreads, as_plain
from ..message import JetStreamMessage, Queued
from .answers import Answers, MessageOnThread

if TYPE_CHECKING:
    from ...net.session import Session
    from .feed import Feed

CONCURRENCY_MAX: Final = 1_000
TURN_S: Final = 0.005  # a thread asks the loop anew after so long

Key = Callable[[JetStreamMessage], Hashable]

_here = threading.local()


class Stopped(NamedTuple):
    """What a thread leaves to the loop: a call that raised, or returned what is to be awaited."""

    message: JetStreamMessage
    error: Exception | None
    awaitable: Awaitable[object] | None


def check_concurrency(concurrency: object, order_by: object, callback: object) -> None:
    """Raises ConfigurationError: they cannot be had."""
    if concurrency is None and order_by is None:
        return
    if callback is None:
        raise ConfigurationError(
            "concurrency and order_by are for a callback; without one, whoever iterates decides"
        )
    if order_by is not None and not callable(order_by):
        raise ConfigurationError(
            f"order_by is {order_by!r}; accepted is a function of a message that returns its key"
        )
    if concurrency is None:
        raise ConfigurationError("order_by goes with concurrency; without it, all are in order")
    if (
        not isinstance(concurrency, int)
        or isinstance(concurrency, bool)
        or not 1 <= concurrency <= CONCURRENCY_MAX
    ):
        raise ConfigurationError(
            f"concurrency is {concurrency!r}; accepted: 1 to {CONCURRENCY_MAX}"
        )


class ConcurrentCallbacks:
    """Calls back for the messages of a feed, up to ``concurrency`` of them at once.

    Args:
        concurrency: 1 to 1,000.
        order_by: the key of a message; None: each has its own.
        failed: is awaited with a message whose callback raised, and the error; its key waits meanwhile. It
            may call what it is given: the callback, once more.
        send_back: gives a message back whose callback was cancelled.
        pause: how long one that is sent back waits; None: not at all.
    """

    def __init__(
        self,
        session: Session,
        feed: Feed,
        callback: Callable[[JetStreamMessage], object],
        concurrency: int,
        order_by: Key | None,
        failed: Callable[
            [JetStreamMessage, Exception, Callable[[], Awaitable[None]]], Coroutine[Any, Any, None]
        ],
        send_back: Callable[[JetStreamMessage], None],
        pause: Callable[[int], float] | None,
    ) -> None:
        self._session = session
        self._feed = feed
        self._callback = callback
        self._concurrency = concurrency
        self._order_by = order_by
        self._failed = failed
        self._send_back = send_back
        self._pause = pause
        self._shelf = feed.shelve()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._leaving: set[object] = set()
        self._lanes: list[asyncio.Task[None]] = []
        self._threads: OwnThreads | None = None
        self._answers: Answers | None = None
        self._context = copy_context()
        if not gives_coroutines(callback):
            self._threads = OwnThreads(concurrency, f"consume {feed.consumer}")
            self._answers = Answers(session, session.report)

    async def run(self) -> None:
        """Until the feed has ended and what it brought is handled, or has gone back."""
        loop, feed = asyncio.get_running_loop(), self._feed
        self._lanes = [
            loop.create_task(self._lane(), name=f"consume {feed.consumer}, {number}")
            for number in range(1, self._concurrency + 1)
        ]
        try:
            while True:
                if feed.frames:
                    self._shelve()
                if feed.is_over:
                    break
                await feed.waiter
            self._wake(self._concurrency)
            await asyncio.wait(self._lanes)
        except asyncio.CancelledError:
            feed.stop_now()
            for lane in self._lanes:
                lane.cancel()
            await asyncio.wait(self._lanes)
            raise
        finally:
            feed.stop_now()
            if self._threads is not None:
                self._threads.close()
        for lane in self._lanes:
            if not lane.cancelled():
                lane.result()

    @property
    def running(self) -> int:
        """How many callbacks run."""
        return self._shelf.running

    # Who calls

    def is_one(self, caller: object) -> bool:
        """Whether ``caller`` calls one of the callbacks."""
        return caller in self._lanes

    def others(self, caller: object) -> list[asyncio.Task[None]]:
        """Each is done when its callback has ended, once the feed is stopped. Not that of ``caller``, nor of
        who asked for the end before: those wait themselves."""
        self._leaving.add(caller)
        return [lane for lane in self._lanes if not lane.done() and lane not in self._leaving]

    # On the loop

    def _shelve(self) -> None:
        feed, keyed = self._feed, list[tuple[Hashable, JetStreamMessage]]()
        if not self._shelf.running:
            feed.end_wait()
        frames = list(feed.frames)
        feed.frames.clear()
        for frame in frames:
            message = (
                JetStreamMessage(self._session, frame, _pause=self._pause)
                if self._answers is None
                else MessageOnThread(
                    self._session, frame, _answers=self._answers, _pause=self._pause
                )
            )
            key: Hashable = message
            if self._order_by is not None:
                try:
                    key = self._order_by(message)
                    hash(key)
                except Exception as error:
                    self._no_key(message, error)
                    continue
            keyed.append((key, message))
        self._shelf.add(keyed)
        self._wake(len(keyed))
        if len(keyed) < len(frames):
            self._balance(1)

    def _no_key(self, message: JetStreamMessage, error: Exception) -> None:
        """It cannot be handled in order, so it is not handled: as one whose callback raised."""
        self._feed.began(message)

        async def fails() -> None:
            raise error

        task = self._session.loop.create_task(self._failed(message, error, fails))
        self._lanes.append(task)
        task.add_done_callback(self._lanes.remove)

    def _wake(self, count: int) -> None:
        while count > 0 and self._idle:
            future = self._idle.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    async def _lane(self) -> None:
        try:
            await self._work()
        except BaseException:
            self._feed.stop_now()  # wakes ``run``
            raise

    async def _work(self) -> None:
        shelf, feed = self._shelf, self._feed
        while True:
            if shelf.has_free:
                await (self._take_one() if self._threads is None else self._take_some())
                if feed.clock() >= feed.breathe_at:
                    await asyncio.sleep(0)
                    feed.breathed()
                continue
            if feed.is_over and not feed.frames and not len(shelf):
                self._wake(self._concurrency)
                return
            self._balance(1)
            future = self._session.loop.create_future()
            self._idle.append(future)
            await future

    def _balance(self, idle: int) -> None:
        """Account for what was begun; pull, also for the ``idle`` more that have nothing to do."""
        feed, shelf = self._feed, self._shelf
        for message in shelf.take_begun():
            feed.began(message)
        running = shelf.running
        if idle or feed.taken >= feed.tell_at:
            feed.balance(running, max(0, self._concurrency - running) if idle else 0)

    async def _take_one(self) -> None:
        message = self._shelf.take()
        if message is None:
            return
        self._balance(0)
        await self._handle(message, self._call(message))

    async def _call(self, message: JetStreamMessage) -> None:
        """The callback, where it runs."""
        if self._threads is None:
            result: Any = self._callback(message)
        else:
            call = self._context.copy().run
            result = await self._threads.run(lambda: call(self._callback, message))
        if (awaitable := _awaitable(result)) is not None:
            await await_result(awaitable)

    async def _handle(self, message: JetStreamMessage, handling: Awaitable[None]) -> None:
        try:
            try:
                await handling
            except CALLBACK_ERRORS as error:
                if _is_cancelled(error):
                    self._send_back(message)
                    raise
                await self._failed(message, as_exception(error), lambda: self._call(message))
        finally:
            self._shelf.done(message)
            self._wake(1)

    async def _take_some(self) -> None:
        """Have a thread work off some."""
        assert self._threads is not None
        assert self._answers is not None
        lane = asyncio.current_task()
        self._answers.expect()
        try:
            stopped = await self._threads.run(lambda: self._work_off(lane))
        finally:
            self._answers.send()
            self._balance(0)
            self._wake(1)
        if stopped is not None:
            await self._handle(stopped.message, self._settle(stopped))

    async def _settle(self, stopped: Stopped) -> None:
        if stopped.error is not None:
            raise stopped.error
        assert stopped.awaitable is not None
        await await_result(stopped.awaitable)

    # On a thread

    def _work_off(self, lane: object) -> Stopped | None:
        """Handle one message after the other for a while. What needs the loop ends that."""
        shelf, callback, context, clock = (
            self._shelf,
            self._callback,
            self._context,
            self._feed.clock,
        )
        ends = clock() + TURN_S
        _here.lane = lane
        while clock() < ends and (message := shelf.take()) is not None:
            try:
                result = context.copy().run(callback, message)
            except BaseException as error:
                return Stopped(message, as_plain(error), None)
            if result is not None and (awaitable := _awaitable(result)) is not None:
                return Stopped(message, None, awaitable)
            shelf.done(message)
        return None


def lane_here() -> asyncio.Task[None] | None:
    """What stands for this thread on the loop, if it is one that calls back for ``ConcurrentCallbacks``."""
    return getattr(_here, "lane", None)


def _awaitable(result: object) -> Awaitable[object] | None:
    if result is None or type(result) is Queued or not inspect.isawaitable(result):
        return None
    return result


def _is_cancelled(error: BaseException) -> bool:
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
