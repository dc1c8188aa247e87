"""``Consumer`` for threads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Unpack

from ...api.consumers import ConsumerInfo
from ...handling.callbacks import Queued, check_plain
from ...handling.failure import OnFailure
from ..jetstream.calls import place_of_call
from ..jetstream.consumer import Consumer as AioConsumer
from ..jetstream.consuming.concurrent import check_concurrency
from ..jetstream.consuming.consume import check_policy
from ..jetstream.consuming.feed import IfGone
from ..jetstream.pull import EXPIRES_DEFAULT_S, PriorityOptions
from ..subscription import PENDING_BYTES_DEFAULT, PENDING_MESSAGES_DEFAULT
from .consume import Consumption, called_with, seen_by
from .messages import Batch, JetStreamMessage
from .methods import Blocking, anywhere, blocking, returning
from .push import PushSubscription


class Consumer(Blocking):
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
        abreast: dict[str, Any] = {}
        if callback is not None and (concurrency is not None or on_failure is not None):
            abreast = {
                "callback": called_with(self._thread, callback),
                "concurrency": concurrency or 1,
                "on_failure": on_failure,
                "order_by": None if order_by is None else seen_by(self._thread, order_by),
            }
        inner = self._thread.call(
            self._inner.consume,
            **abreast,
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
        consumption = Consumption(self._thread, inner, place_of_call())
        return consumption if abreast else consumption._start(callback)

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
