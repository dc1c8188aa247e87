"""``Consumption`` for threads: many messages are brought from the loop at a time."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any, Final, Self, TypeVar

from ...errors import ConfigurationError, ConnectionClosedError
from ..health import ConsumptionStats, Health
from ..jetstream.consuming.consume import Consumption as AioConsumption
from ..jetstream.consuming.feed import State
from ..jetstream.message import JetStreamMessage as AioJetStreamMessage
from .loop_thread import LoopThread, call_on_thread, callback_here, caller_here
from .messages import JetStreamMessage
from .methods import Blocking

BROUGHT_MAX: Final = 100  # messages brought from the loop in one go when iterating


T = TypeVar("T")


class JetStreamMessages(Blocking, ABC):
    """Messages of a consumer, to be iterated until ``stop``."""

    __slots__ = ("_messages",)

    def __init__(self, thread: LoopThread, inner: Any) -> None:
        super().__init__(thread, inner)
        self._messages: deque[JetStreamMessage] = deque()

    def __iter__(self) -> Iterator[JetStreamMessage]:
        return self

    def __next__(self) -> JetStreamMessage:
        held = self._messages
        while True:
            try:
                return held.popleft()
            except IndexError:  # also where the loop has taken back what was brought
                if not self._thread.run(self._bring(BROUGHT_MAX)):
                    raise StopIteration from None

    def _next_batch(self, max_messages: int) -> list[JetStreamMessage]:
        held = self._messages
        if not held:
            self._thread.run(self._bring(max_messages))
        return list(take(held, min(max_messages or len(held), len(held))))

    async def _bring(self, max_messages: int) -> bool:
        """On the loop: have some messages more, at least one; False at the end."""
        of, thread = JetStreamMessage._of, self._thread
        brought = [of(thread, m) for m in await self._inner.next_batch(max_messages)]
        self._messages.extend(brought)
        return bool(brought)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @abstractmethod
    def stop(self) -> None:
        """End it."""


def take(held: deque[T], count: int) -> Iterator[T]:
    """The first ``count`` of what a thread holds, or less where the loop has taken it back meanwhile."""
    with contextlib.suppress(IndexError):
        for _ in range(count):
            yield held.popleft()


def called_with(
    thread: LoopThread, callback: Callable[[JetStreamMessage], object]
) -> Callable[[AioJetStreamMessage], None]:
    """``callback``, called with a message for threads; the loop learns how that was answered."""

    def call(message: AioJetStreamMessage) -> None:
        ours = JetStreamMessage._of(thread, message)
        ours._pause = message._pause
        try:
            callback(ours)
        finally:
            message._answered = ours._answered

    return call


def seen_by(
    thread: LoopThread, order_by: Callable[[JetStreamMessage], Hashable]
) -> Callable[[AioJetStreamMessage], Hashable]:
    """``order_by``, called with a message for threads."""
    return lambda message: order_by(JetStreamMessage._of(thread, message))


class Consumption(JetStreamMessages):
    """Messages of a consumer as they come. Made by ``Consumer.consume``.

    Iterate it (``with consumer.consume() as messages: for message in messages``), iterate
    its ``batches()``, or give ``consume`` a callback and ``consumption.wait()``. To be iterated by one
    thread at a time. Iterating takes up to 100 messages out of the buffer at once; ``stop`` sends back
    those that were not handed out.

    It goes on through lost connections, missed heartbeats and refused pulls; those are reported, to
    ``on_error`` or else as connection events. It ends by ``stop``, by ``drain``, or with an error: when
    the consumer was deleted, is gone (see ``if_gone``) or push based, and when the connection is closed.
    The former is a ConsumptionEnded event, too, and logged where there is a callback. Without a callback it
    ends, too, when nobody holds it any more, as after ``for …: return``; that is a
    ResourceWarning. Whatever ends it, messages in the buffer go back.
    """

    __slots__ = ()
    _inner: AioConsumption

    def __init__(self, thread: LoopThread, inner: AioConsumption, place: str) -> None:
        super().__init__(thread, inner)
        self._messages = (
            inner._feed.with_thread
        )  # what is not handed out goes back as the rest does
        inner._place = place

    # Taking messages

    @property
    def buffered(self) -> int:
        """Messages that came and were not taken yet."""
        return self._inner.buffered + len(self._messages)

    @property
    def state(self) -> State:
        """``running``, ``draining``, ``ended``, or ``failed``: by ``error``."""
        return self._inner.state

    @property
    def error(self) -> Exception | None:
        """Why it ended, if nobody asked for the end: what ``wait`` and iterating raise."""
        return self._inner.error

    def health(self) -> Health:
        """Whether messages can come now; if not, why: it has ended, there is no connection, or the server has
        said nothing about the consumer for longer than it promised."""
        return self._inner.health()

    def stats(self) -> ConsumptionStats:
        """What it has done, and what it holds."""
        return replace(self._inner.stats(), buffered=self.buffered)

    def batches(self, max_messages: int = 0) -> Iterator[list[JetStreamMessage]]:
        """What has come, as lists of at least one message, and of at most ``max_messages`` if given."""
        while messages := self.next_batch(max_messages):
            yield messages

    def next_batch(self, max_messages: int = 0) -> list[JetStreamMessage]:
        """The next of ``batches()``; empty at the end. Raises the error it ended with, if any."""
        return self._next_batch(max_messages)

    def _next_batch(self, max_messages: int) -> list[JetStreamMessage]:
        self._inner._feed.reader = threading.get_ident()
        return super()._next_batch(max_messages)

    def __next__(self) -> JetStreamMessage:
        self._inner._feed.reader = threading.get_ident()
        return super().__next__()

    async def _bring(self, max_messages: int) -> bool:
        if not await super()._bring(max_messages):
            return False
        self._inner._feed.last = self._messages[-1]
        return True

    def _start(self, callback: Callable[[JetStreamMessage], object] | None) -> Self:
        """Call back with each message on a thread of its own."""
        if callback is not None:
            one_by_one = (message for batch in self.batches(1) for message in batch)
            name = repr(self._inner)
            call_on_thread(name, self._inner, one_by_one, callback, self._thread, self._failed)
        return self

    def _failed(self, message: JetStreamMessage, error: Exception) -> None:
        """The callback raised: report it, on the loop."""
        with contextlib.suppress(ConnectionClosedError):
            self._thread.post(lambda: self._inner._failed(message, error))

    # Ending

    def wait(self) -> None:
        """Until it has ended. Raises the error it ended with, if any."""
        worker = callback_here()
        if worker is not None and self._inner._feed.is_taken_by(worker):
            raise ConfigurationError(
                "a consume cannot be waited for inside its own callback; stop() or drain() end it"
            )
        self._thread.run(self._inner.wait())

    def stop(self) -> None:
        """End now. Messages in the buffer are sent back (NAK), so that they are delivered again soon.

        Waits until the callbacks that run have ended, but for that which calls.
        """
        self._thread.run(self._inner._stop(callback_here()))

    def drain(self) -> None:
        """End, but first receive what is under way and wait until all of it has been handled: until who
        iterates has come back for more, or the callback has ended.

        Called by whoever takes the messages, also by the callback, it does not wait for that.
        """
        self._thread.run(self._inner._feed.drain_for(caller_here()))
