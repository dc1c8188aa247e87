"""The blocking consumer and its running consume."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Self, Unpack, cast

from ...api.consumers import ConsumerInfo
from ...errors import ConfigurationError, TimeoutError_
from ..callbacks import check_plain
from ..jetstream import consume as aio_consume
from ..jetstream import consumer as aio
from ..jetstream.message import Batch as AioBatch
from ..jetstream.message import Queued
from ..jetstream.pull import EXPIRES_DEFAULT_S, PriorityOptions
from ..subscription import PENDING_BYTES_DEFAULT, PENDING_MESSAGES_DEFAULT
from .messages import Batch, JetStreamMessage, Message
from .portal import Blocking, Portal, blocking, call_on_thread, callback_here
from .push import PushSubscription

__all__ = ["Consumer", "Consumption"]

BATCH_MESSAGES = 100  # taken from the buffer in one go when iterating


class Consumption(Blocking):
    """Messages of a consumer as they come. The blocking twin of ``headrace.Consumption``.

    ``with consumer.consume() as messages: for message in messages``, or ``batches()``, or a callback
    and ``wait()``. To be iterated by one thread at a time. Iterating takes up to 100 messages out of the
    buffer at once; ``stop`` sends back those that were not handed out.
    """

    __slots__ = ("_messages", "_taking")
    _inner: aio_consume.Consumption

    def __init__(self, portal: Portal, inner: aio_consume.Consumption) -> None:
        super().__init__(portal, inner)
        self._messages: deque[JetStreamMessage] = deque()
        self._taking = 0  # the thread that takes messages

    @property
    def buffered(self) -> int:
        """Messages that came and were not taken yet."""
        return self._inner.buffered + len(self._messages)

    def __iter__(self) -> Iterator[JetStreamMessage]:
        return self

    def __next__(self) -> JetStreamMessage:
        if not self._messages:
            self._messages.extend(self._take(BATCH_MESSAGES))
        if not self._messages:
            raise StopIteration
        return self._messages.popleft()

    def batches(self, max_messages: int = 0) -> Iterator[list[JetStreamMessage]]:
        """What has come, as lists of at least one message, and of at most ``max_messages`` if given."""
        while True:
            messages = list(self._messages) or self._take(max_messages)
            self._messages.clear()
            if not messages:
                return
            if max_messages:
                self._messages.extend(messages[max_messages:])
                messages = messages[:max_messages]
            yield messages

    def next_batch(self, max_messages: int = 0) -> list[JetStreamMessage]:
        """The next of ``batches()``; empty at the end. Raises the error it ended with, if any."""
        return next(self.batches(max_messages), [])

    def _take(self, max_messages: int) -> list[JetStreamMessage]:
        self._taking = threading.get_ident()
        taken = self._portal.run(self._inner.next_batch(max_messages))
        return [JetStreamMessage._of(self._portal, m._session, m._frame) for m in taken]

    def wait(self) -> None:
        """Until it has ended. Raises the error it ended with, if any."""
        worker = callback_here()
        if worker is not None and worker is self._inner._worker:
            raise ConfigurationError(
                "a consume cannot be waited for inside its own callback; stop() or drain() end it"
            )
        self._portal.run(self._inner.wait())

    def stop(self) -> None:
        """End now. Messages in the buffer are sent back (NAK), so that they are delivered again soon."""
        for message in self._messages:
            message.nak()
        self._messages.clear()
        self._portal.run(self._inner._stop(callback_here()))

    def drain(self) -> None:
        """End, but first receive what is under way and wait until all of it has been taken.

        Called by whoever takes the messages, also by the callback, it does not wait for that.
        """
        taking = self._taking == threading.get_ident()
        self._portal.run(self._inner._drain_for(callback_here(), taking))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self, callback: Callable[[JetStreamMessage], object]) -> None:
        one_by_one = (message for batch in self.batches(1) for message in batch)
        call_on_thread(repr(self._inner), self._inner, one_by_one, callback, self._portal)


class Consumer(Blocking):
    """One pull consumer of one stream. The blocking twin of ``headrace.Consumer``."""

    __slots__ = ()
    _inner: aio.Consumer

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

    # Taking messages

    def fetch(
        self,
        max_messages: int = 100,
        *,
        max_wait: float = aio.MAX_WAIT_DEFAULT_S,
        heartbeat: float | None = None,
        no_wait: bool = False,
        eager: bool = False,
        **priority: Unpack[PriorityOptions],
    ) -> Batch:
        """Up to ``max_messages`` messages; see ``headrace.Consumer.fetch``."""
        return self._batch(
            self._portal.run(
                self._inner.fetch(
                    max_messages,
                    max_wait=max_wait,
                    heartbeat=heartbeat,
                    no_wait=no_wait,
                    eager=eager,
                    **priority,
                )
            )
        )

    def fetch_bytes(
        self,
        max_bytes: int,
        *,
        max_wait: float = aio.MAX_WAIT_DEFAULT_S,
        heartbeat: float | None = None,
        no_wait: bool = False,
        eager: bool = False,
        **priority: Unpack[PriorityOptions],
    ) -> Batch:
        """Up to ``max_bytes`` of messages; see ``headrace.Consumer.fetch_bytes``."""
        return self._batch(
            self._portal.run(
                self._inner.fetch_bytes(
                    max_bytes,
                    max_wait=max_wait,
                    heartbeat=heartbeat,
                    no_wait=no_wait,
                    eager=eager,
                    **priority,
                )
            )
        )

    def next(
        self,
        max_wait: float = aio.MAX_WAIT_DEFAULT_S,
        *,
        heartbeat: float | None = None,
        **priority: Unpack[PriorityOptions],
    ) -> JetStreamMessage:
        """The next message. Raises TimeoutError if none came, and as ``fetch``."""
        batch = self.fetch(1, max_wait=max_wait, heartbeat=heartbeat, **priority)
        if not batch:
            raise TimeoutError_(
                f"no message from consumer {self.name!r} of stream {self.stream_name!r} "
                f"within {max_wait} s"
            )
        return batch[0]

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
        **priority: Unpack[PriorityOptions],
    ) -> Consumption:
        """Messages as they come; see ``headrace.Consumer.consume``.

        ``callback``, a plain function, is called on a thread of the consumption's own, ``on_error`` on
        the background thread, where it must not make blocking calls.
        """
        check_plain("callback", callback)

        async def begin() -> aio_consume.Consumption:
            return self._inner.consume(
                None,
                max_messages=max_messages,
                max_bytes=max_bytes,
                expires=expires,
                heartbeat=heartbeat,
                threshold_messages=threshold_messages,
                threshold_bytes=threshold_bytes,
                on_error=on_error,
                **priority,
            )

        consumption = Consumption(self._portal, self._portal.run(begin()))
        if callback is not None:
            consumption._start(callback)
        return consumption

    def listen(
        self,
        callback: Callable[[JetStreamMessage], object] | None = None,
        *,
        on_error: Callable[[Exception], object] | None = None,
        pending_messages: int = PENDING_MESSAGES_DEFAULT,
        pending_bytes: int = PENDING_BYTES_DEFAULT,
    ) -> PushSubscription:
        """Messages of a push consumer; see ``headrace.Consumer.listen``.

        ``callback``, a plain function, is called on a thread of the subscription's own, ``on_error`` on
        the background thread, where it must not make blocking calls.
        """
        check_plain("callback", callback)
        inner = self._portal.run(
            self._inner.listen(
                None,
                on_error=on_error,
                pending_messages=pending_messages,
                pending_bytes=pending_bytes,
            )
        )
        subscription = PushSubscription(self._portal, inner)
        if callback is not None:
            subscription._start(cast("Callable[[Message], object]", callback))
        return subscription

    def ack_all(self, messages: Iterable[JetStreamMessage]) -> Queued:
        """Acknowledge many messages in one write; those answered before are left alone."""
        if isinstance(messages, Batch):
            return messages.ack()
        listed = list(messages)
        return Batch.of(self._portal, listed).ack() if listed else Queued()

    def _batch(self, batch: AioBatch) -> Batch:
        return Batch(self._portal, batch._session, batch._frames, batch.status, batch.error)

    # The pin of a priority group

    @property
    def pin_id(self) -> str:
        """Our id while we are the pinned client of our group, as far as we know; else ""."""
        return self._inner.pin_id

    def on_pinned(self, callback: Callable[[str], object] | None) -> None:
        """Call ``callback(id)``, on the background thread, when we become the pinned client."""
        self._portal.post(partial(self._inner.on_pinned, callback))

    def on_unpinned(self, callback: Callable[[], object] | None) -> None:
        """Call ``callback()``, on the background thread, when we are told that another one is."""
        self._portal.post(partial(self._inner.on_unpinned, callback))

    # The consumer itself

    info = blocking(aio.Consumer.info)
    update = blocking(aio.Consumer.update)
    delete = blocking(aio.Consumer.delete)
    pause = blocking(aio.Consumer.pause)
    resume = blocking(aio.Consumer.resume)
    reset = blocking(aio.Consumer.reset)
    unpin = blocking(aio.Consumer.unpin)
