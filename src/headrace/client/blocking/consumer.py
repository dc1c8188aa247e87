"""``Consumer`` and ``OrderedConsumer`` for threads: many messages are brought from the loop at a time."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Self, Unpack

from ...api.consumers import ConsumerInfo
from ...blocking import anywhere, blocking, calling, returning, wrapping
from ...errors import ConfigurationError
from ...handling.callbacks import Queued, check_plain
from ...handling.failure_policy import OnFailure
from ..health import ConsumptionStats, Health
from ..jetstream.calls import place_of_call
from ..jetstream.consumer import Consumer as AioConsumer
from ..jetstream.consuming.concurrent import check_concurrency
from ..jetstream.consuming.consume import Consumption as AioConsumption
from ..jetstream.consuming.consume import check_policy
from ..jetstream.consuming.feed import IfGone, State
from ..jetstream.message import JetStreamMessage as AioJetStreamMessage
from ..jetstream.ordered import OrderedConsumer as AioOrderedConsumer
from ..jetstream.ordered import OrderedConsumption as AioOrderedConsumption
from ..jetstream.pull import EXPIRES_DEFAULT_S, PriorityOptions
from ..subscription import PENDING_BYTES_DEFAULT, PENDING_MESSAGES_DEFAULT
from .loop_thread import Facade, LoopThread, callback_here, caller_here
from .messages import Batch, JetStreamMessage, take
from .subscription import PushSubscription

BROUGHT_MAX: Final = 100  # messages brought from the loop in one go when iterating


class JetStreamMessages(Facade, ABC):
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


class OrderedConsumption(JetStreamMessages):
    """Messages of an ordered consumer as they come, each once and in order.

    Iterating raises JetStreamApiError when the stream is gone, ConnectionClosedError when closed. It ends by
    ``stop``, and when nobody holds it any more, which is a ResourceWarning.
    """

    __slots__ = ()
    _inner: AioOrderedConsumption

    def __init__(self, thread: LoopThread, inner: AioOrderedConsumption) -> None:
        super().__init__(thread, inner)
        inner._place = place_of_call()

    def next_batch(self, max_messages: int = 0) -> list[JetStreamMessage]:
        """What has come, at least one message, and at most ``max_messages`` if given; empty at the end."""
        return self._next_batch(max_messages)

    stop = blocking(AioOrderedConsumption.stop)


class OrderedConsumer(Facade):
    """Reads a stream in order, each message once. Made by ``Stream.ordered_consumer``.

    There is nothing to acknowledge. Behind it stands an ephemeral consumer in the server's memory, which
    is replaced by one that starts after the last message seen, when messages were missed, the server
    went silent, the connection was lost, or the consumer is gone. Of a stream that has not that message any
    more, as one that was made again, come those that were stored later. One reader at a time.

    Attributes:
        stream_name: the stream it reads.
        last_sequence: the stream sequence of the last message handed out, or 0.
        resets: how often the consumer behind it was replaced.
    """

    __slots__ = ()
    _inner: AioOrderedConsumer

    @property
    def stream_name(self) -> str:
        """The stream it reads."""
        return self._inner.stream_name

    @property
    def last_sequence(self) -> int:
        """The stream sequence of the last message handed out, or 0."""
        return self._inner.last_sequence

    @property
    def resets(self) -> int:
        """How often the consumer behind it was replaced."""
        return self._inner.resets

    @property
    def cached_info(self) -> ConsumerInfo | None:
        """What the server said last of the consumer that stands behind it now, if there is one."""
        return self._inner.cached_info

    info = blocking(AioOrderedConsumer.info)
    fetch = returning(Batch._of, AioOrderedConsumer.fetch)
    fetch_bytes = returning(Batch._of, AioOrderedConsumer.fetch_bytes)
    next = returning(JetStreamMessage._of, AioOrderedConsumer.next)
    consume = wrapping(OrderedConsumption, calling(AioOrderedConsumer.consume))
    delete = blocking(AioOrderedConsumer.delete)


class Consumer(Facade):
    """One pull consumer of one stream. Made by ``stream.consumer(…)`` and its like.

    Attributes:
        stream_name: the stream it reads.
        name: its name.
        cached_info: what the server said last; None if it was never asked.
        changes: what ``create_or_update_consumer`` has changed of the consumer that was there: each setting,
            with its values before and after.
    """

    __slots__ = ()
    _inner: AioConsumer

    @property
    def stream_name(self) -> str:
        """The stream it reads."""
        return self._inner.stream_name

    @property
    def name(self) -> str:
        """Its name."""
        return self._inner.name

    @property
    def cached_info(self) -> ConsumerInfo | None:
        """What the server said last; None if it was never asked."""
        return self._inner.cached_info

    @property
    def changes(self) -> Mapping[str, tuple[object, object]]:
        """What ``create_or_update_consumer`` has changed of the consumer that was there."""
        return self._inner.changes

    # Taking messages

    fetch = returning(Batch._of, AioConsumer.fetch)
    fetch_bytes = returning(Batch._of, AioConsumer.fetch_bytes)
    next = returning(JetStreamMessage._of, AioConsumer.next)

    def consume(
        self,
        callback: Callable[[JetStreamMessage], object] | None = None,
        *,
        max_messages: int = 0,
        max_bytes: int = 0,
        expires: float = EXPIRES_DEFAULT_S,
        heartbeat: float | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        on_error: Callable[[Exception], object] | None = None,
        if_gone: IfGone = "end",
        concurrency: int | None = None,
        order_by: Callable[[JetStreamMessage], Hashable] | None = None,
        on_failure: OnFailure | None = None,
        **priority: Unpack[PriorityOptions],
    ) -> Consumption:
        """Messages as they come, from a buffer that is kept filled; see ``Consumption`` and, for the
        limits, ``ConsumeLimits``.

        Args:
            callback: called for each message in turn, a plain function, on a thread of its own; without it,
                iterate the result.
            on_error: called for what does not end the consume, on the background thread, where it must not
                make blocking calls; without it, those are connection events.
            if_gone: what is done where the server has no such consumer any more, as after a restart that it
                did not outlive. ``end``: ends with ConsumerNotFoundError, or StreamNotFoundError. ``wait``:
                pulls until there is one again. ``create``: it is made again as it was last known to be, also
                where somebody deleted it, and delivers from where its configuration says.
            concurrency: how many callbacks run at once, 1 to 1,000, on as many threads. None: one after the
                other.
            order_by: the key of a message, a function of it, called on the background thread. Of one key one
                message at a time is handled, in the order of arrival; a slow one holds up its own key alone.
                A message without a key that can be had is not handled, as if the callback had raised. None:
                in no order.
            on_failure: what follows when the callback raises: ``Retry`` calls it again, ``DeadLetter`` puts
                the message elsewhere after some attempts, ``Stop`` ends the consume. None: it is reported,
                and comes again after ``ack_wait``. Attempts are deliveries. The callback acknowledges; a
                ``nak()`` without a delay has that of the policy, and is no failure.
            expires: the default is shorter where a pin is lost without a pull in ``priority_timeout``:
                half of that, at least 1 second.
        """
        check_plain("callback", callback)
        check_concurrency(concurrency, order_by, callback)
        info = self._inner.cached_info
        check_policy(on_failure, callback, None if info is None else info.config)
        called: dict[str, Any] = {}
        if callback is not None:
            called = {
                "callback": called_with(self._thread, callback),
                "concurrency": concurrency or 1,
                "on_failure": on_failure,
                "order_by": None if order_by is None else seen_by(self._thread, order_by),
            }
        inner = self._thread.call(
            self._inner.consume,
            **called,
            max_messages=max_messages,
            max_bytes=max_bytes,
            expires=expires,
            heartbeat=heartbeat,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
            on_error=on_error,
            if_gone=if_gone,
            **priority,
        )
        return Consumption(self._thread, inner, place_of_call())

    def listen(
        self,
        callback: Callable[[JetStreamMessage], object] | None = None,
        *,
        on_error: Callable[[Exception], object] | None = None,
        pending_messages: int = PENDING_MESSAGES_DEFAULT,
        pending_bytes: int = PENDING_BYTES_DEFAULT,
    ) -> PushSubscription:
        """Messages of a push consumer, which the server sends to ``deliver_subject`` unasked.

        For those who have one. What is pulled keeps to what the reader can take; here what comes beyond
        ``pending_messages`` and ``pending_bytes`` is dropped, unless the consumer has flow control.

        Args:
            callback: called for each message in turn, a plain function, on a thread of its own; without it,
                iterate the result.
            on_error: called for silence and for missing messages, on the background thread, where it must
                not make blocking calls; without it, those are connection events.
            pending_messages, pending_bytes: how much may wait to be taken; see ``Subscription``.

        Raises:
            ConfigurationError: the consumer is pulled from.
        """
        check_plain("callback", callback)
        making = self._inner.listen(
            on_error=on_error, pending_messages=pending_messages, pending_bytes=pending_bytes
        )
        return PushSubscription(self._thread, self._thread.run(making))._start(callback)

    def ack_all(self, messages: Iterable[JetStreamMessage]) -> Queued:
        """Acknowledge many messages in one write; those answered before are left alone."""
        if isinstance(messages, Batch):
            return messages.ack()
        listed = list(messages)
        return Batch.of(self._thread, listed).ack() if listed else Queued()

    # The pin of a priority group

    @property
    def pin_id(self) -> str:
        """Our id while we are the pinned client of our group, as far as we know; else ""."""
        return self._inner.pin_id

    on_pinned = anywhere(AioConsumer.on_pinned)
    on_unpinned = anywhere(AioConsumer.on_unpinned)

    # The consumer itself

    info = blocking(AioConsumer.info)
    update = blocking(AioConsumer.update)
    delete = blocking(AioConsumer.delete)
    pause = blocking(AioConsumer.pause)
    resume = blocking(AioConsumer.resume)
    reset = blocking(AioConsumer.reset)
    unpin = blocking(AioConsumer.unpin)
