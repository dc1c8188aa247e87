"""``Consumption`` for threads: many messages are brought from the loop at a time."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

from ...errors import ConfigurationError
from ..jetstream.consume import Consumption as AioConsumption
from .loop_thread import LoopThread, call_on_thread, callback_here
from .messages import JetStreamMessage
from .methods import Blocking

BROUGHT_MAX: Final = 100  # messages brought from the loop in one go when iterating


class JetStreamMessages(Blocking, ABC):
    """Messages of a consumer, to be iterated until ``stop``."""

    __slots__ = ("_messages", "_taking")

    def __init__(self, thread: LoopThread, inner: Any) -> None:
        super().__init__(thread, inner)
        self._messages: deque[JetStreamMessage] = deque()
        self._taking = 0  # the thread that takes messages

    def __iter__(self) -> Iterator[JetStreamMessage]:
        return self

    def __next__(self) -> JetStreamMessage:
        if not self._messages:
            self._messages.extend(self._bring(BROUGHT_MAX))
        if not self._messages:
            raise StopIteration
        return self._messages.popleft()

    def _next_batch(self, max_messages: int) -> list[JetStreamMessage]:
        held = self._messages
        if not held:
            return self._bring(max_messages)
        return [held.popleft() for _ in range(min(max_messages or len(held), len(held)))]

    def _bring(self, max_messages: int) -> list[JetStreamMessage]:
        self._taking = threading.get_ident()
        of, thread = JetStreamMessage._of, self._thread
        return [of(thread, m) for m in thread.run(self._inner.next_batch(max_messages))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @abstractmethod
    def stop(self) -> None:
        """End it."""


class Consumption(JetStreamMessages):
    """Messages of a consumer as they come. Made by ``Consumer.consume``.

    Iterate it (``with consumer.consume() as messages: for message in messages``), iterate
    its ``batches()``, or give ``consume`` a callback and ``consumption.wait()``. To be iterated by one
    thread at a time. Iterating takes up to 100 messages out of the buffer at once; ``stop`` sends back
    those that were not handed out.

    It goes on through lost connections, missed heartbeats and refused pulls; those are reported, to
    ``on_error`` or else as connection events. It ends by ``stop``, by ``drain``, or with an error: when
    the consumer was deleted or is push based, and when the connection is closed.
    """

    __slots__ = ()
    _inner: AioConsumption

    # Taking messages

    @property
    def buffered(self) -> int:
        """Messages that came and were not taken yet."""
        return self._inner.buffered + len(self._messages)

    def batches(self, max_messages: int = 0) -> Iterator[list[JetStreamMessage]]:
        """What has come, as lists of at least one message, and of at most ``max_messages`` if given."""
        while messages := self.next_batch(max_messages):
            yield messages

    def next_batch(self, max_messages: int = 0) -> list[JetStreamMessage]:
        """The next of ``batches()``; empty at the end. Raises the error it ended with, if any."""
        return self._next_batch(max_messages)

    def _start(self, callback: Callable[[JetStreamMessage], object] | None) -> Self:
        """Call back with each message on a thread of its own."""
        if callback is not None:
            one_by_one = (message for batch in self.batches(1) for message in batch)
            call_on_thread(repr(self._inner), self._inner, one_by_one, callback, self._thread)
        return self

    # Ending

    def wait(self) -> None:
        """Until it has ended. Raises the error it ended with, if any."""
        worker = callback_here()
        if worker is not None and worker is self._inner._worker:
            raise ConfigurationError(
                "a consume cannot be waited for inside its own callback; stop() or drain() end it"
            )
        self._thread.run(self._inner.wait())

    def stop(self) -> None:
        """End now. Messages in the buffer are sent back (NAK), so that they are delivered again soon."""
        for message in self._messages:
            message.nak()
        self._messages.clear()
        self._thread.run(self._inner._stop(callback_here()))

    def drain(self) -> None:
        """End, but first receive what is under way and wait until all of it has been taken.

        Called by whoever takes the messages, also by the callback, it does not wait for that.
        """
        taking = self._taking == threading.get_ident()
        self._thread.run(self._inner._drain_for(callback_here(), taking))
