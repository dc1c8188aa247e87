"""Several callbacks of a consume at once: never two of one key, those of one key in the order of arrival.

Coroutine functions run on the loop, plain functions on threads. What came and was not begun is on the
``WaitingByKey``, where the feed renews it and takes it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Hashable
from typing import TYPE_CHECKING, Final, NamedTuple

from ....errors import ConfigurationError
from ....handling.callbacks import gives_coroutines
from ....handling.calls import Calls, Failed
from ....handling.lanes import LaneTasks
from ....handling.threads import Threads
from ..message import JetStreamMessage
from .answers import Answers, MessageOnThread

if TYPE_CHECKING:
    from ...net.session import Session
    from .feed import Feed

CONCURRENCY_MAX: Final = 1_000
TURN_S: Final = 0.005  # a thread asks the loop anew after so long …
IN_ONE_GO: Final = 10_000  # … or so many messages

Key = Callable[[JetStreamMessage], Hashable]


class Turn(NamedTuple):
    """Of a thread: until when it goes on by itself, by the feed's clock."""

    until: float


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
    """Calls back for the messages of a feed, up to ``concurrency`` of them at once: the lanes' ``Source``.

    Args:
        concurrency: 1 to 1,000.
        order_by: the key of a message; None: each has its own.
        failed: sees to a message whose callback raised; its key waits meanwhile.
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
        failed: Failed[JetStreamMessage],
        send_back: Callable[[JetStreamMessage], None],
        pause: Callable[[int], float] | None,
    ) -> None:
        self._session = session
        self._feed = feed
        self._concurrency = concurrency
        self._order_by = order_by
        self._pause = pause
        self._by_key = feed.wait_by_key()
        self._leaving: set[object] = set()
        self._threads: Threads | None = None
        self._answers: Answers | None = None
        if not gives_coroutines(callback):
            self._threads = Threads(concurrency, f"consume {feed.consumer}")
            self._answers = Answers(session, session.report)
        self._calls = Calls(
            callback, failed, threads=self._threads, answers=self._answers, dropped=send_back
        )
        self._lanes = LaneTasks(
            concurrency,
            lambda number: f"consume {feed.consumer}, {number + 1}",
            lambda: self._calls.work(self),
            lambda: self._lanes.wake_all(),
            feed.stop_now,
        )

    async def run(self) -> None:
        """Until the feed has ended and what it brought is handled, or has gone back."""
        try:
            await self._lanes.run(self._bring)
        finally:
            self._feed.stop_now()
            if self._threads is not None:
                self._threads.close()
        for lane in self._lanes.tasks:
            if not lane.cancelled():
                lane.result()

    async def _bring(self) -> None:
        feed = self._feed
        try:
            while True:
                if feed.frames:
                    self._sort()
                if feed.is_over:
                    return
                await feed.waiter
        except asyncio.CancelledError:
            feed.stop_now()
            raise

    @property
    def running(self) -> int:
        """How many callbacks run."""
        return len(self._by_key.running)

    # Who calls

    def is_one(self, caller: object) -> bool:
        """Whether ``caller`` calls one of the callbacks."""
        return caller in self._lanes.tasks

    def others(self, caller: object) -> list[asyncio.Task[None]]:
        """Each is done when its callback has ended, once the feed is stopped. Not that of ``caller``, nor of
        who asked for the end before: those wait themselves."""
        self._leaving.add(caller)
        return [lane for lane in self._lanes.tasks if not lane.done() and lane not in self._leaving]

    # On the loop

    def _sort(self) -> None:
        feed, keyed = self._feed, list[tuple[Hashable, JetStreamMessage]]()
        if not self._by_key.running:
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
        self._by_key.add(keyed)
        self._lanes.wake(len(keyed))
        if len(keyed) < len(frames):
            self._balance(1)

    def _no_key(self, message: JetStreamMessage, error: Exception) -> None:
        """It cannot be handled in order, so it is not handled: as one whose callback raised."""
        self._feed.began(message)

        async def fails() -> None:
            raise error

        task = self._session.loop.create_task(self._calls.raised(message, error, again=fails))
        self._lanes.tasks.append(task)
        task.add_done_callback(self._lanes.tasks.remove)

    def _balance(self, idle: int) -> None:
        """Account for what was begun; pull, also for the ``idle`` more that have nothing to do."""
        feed, by_key = self._feed, self._by_key
        for message in by_key.take_begun():
            feed.began(message)
        running = len(by_key.running)
        if idle or feed.taken >= feed.tell_at:
            feed.balance(running, max(0, self._concurrency - running) if idle else 0)

    # As a source

    async def more(self) -> bool:
        """See ``Source``."""
        by_key, feed = self._by_key, self._feed
        if feed.clock() >= feed.breathe_at:
            await asyncio.sleep(0)
            feed.breathed()
        while not by_key.has_free:
            if feed.is_over and not feed.frames and not len(by_key):
                self._lanes.wake_all()
                return False
            self._balance(1)
            await self._lanes.until_woken()
        return True

    def turn(self) -> Generator[JetStreamMessage, None, None]:
        """See ``Source``."""
        if self._threads is None:
            return self._turn_on_loop()
        clock = self._feed.clock
        return self._by_key.turn(clock, Turn(clock() + TURN_S), IN_ONE_GO)

    def came_back(self) -> None:
        """See ``Source``."""
        self._balance(0)
        self._lanes.wake(1)

    def turned(self) -> None:
        """See ``Source``."""

    def _turn_on_loop(self) -> Generator[JetStreamMessage, None, None]:
        by_key, feed, wake = self._by_key, self._feed, self._lanes.wake
        while (message := by_key.next()) is not None:
            self._balance(0)
            try:
                yield message
            finally:
                by_key.done(message)
                wake(1)
            if feed.clock() >= feed.breathe_at:
                return
