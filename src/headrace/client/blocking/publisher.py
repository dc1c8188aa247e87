"""``Publisher`` and ``AtomicBatch`` for threads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Self

from ...api.messages import PubAck
from ...blocking import anywhere, blocking
from ..message import HeadersLike, Payload
from ..publish.atomic_batch import AtomicBatch as AioAtomicBatch
from ..publish.publisher import Publisher as AioPublisher
from .loop_thread import Facade, LoopThread

WAITING_MAX: Final = 4096  # messages not yet taken by the loop's thread; then `send` waits


class Publisher(Facade):
    """Sends without waiting for each ack. Made by ``js.publisher(…)``; a context manager.

    Messages of one subject are stored in the order sent: nothing is sent behind a message that is known
    not to be stored; see ``recovery``. (What was under way behind it at that moment may be stored
    before it, if a leader changed within a round trip. ``fast`` excludes that.) Several threads may
    send; messages are numbered in the order of their ``send`` calls, and handed to the background
    thread many at a time.

    Attributes:
        sent: messages sent so far; ``sent == acked + failed`` once flushed.
        acked: messages acknowledged so far.
        duplicates: acknowledged messages the stream had already.
        failed: messages that failed so far.
    """

    # A message's command is made on the caller's thread; the loop's thread keeps the window.

    __slots__ = ("_commands", "_lock", "_next", "_pump")
    _inner: AioPublisher

    def __init__(self, thread: LoopThread, inner: AioPublisher) -> None:
        super().__init__(thread, inner)
        self._lock = threading.Lock()  # numbers and queues in the same order
        self._next = 0
        self._commands: deque[Any] = deque()  # filled by senders, emptied by the pump
        self._pump: asyncio.Task[None] | None = None

    @property
    def sent(self) -> int:
        """Messages sent so far; ``sent == acked + failed`` once flushed."""
        return self._next

    @property
    def acked(self) -> int:
        """Messages acknowledged so far."""
        return self._inner.acked

    @property
    def duplicates(self) -> int:
        """Acknowledged messages the stream had already."""
        return self._inner.duplicates

    @property
    def failed(self) -> int:
        """Messages that failed so far."""
        return self._inner.failed

    @property
    def in_flight(self) -> int:
        """Messages sent and not answered yet."""
        return self._inner.in_flight + len(self._commands)

    @property
    def last_sequence(self) -> int:
        """The stream sequence of the ack received last, or 0."""
        return self._inner.last_sequence

    # Beginning and end

    def __enter__(self) -> Self:
        self._thread.run(self._inner.__aenter__())
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Flush, unless the block failed; what is then in flight is reported as failed."""
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def close(self) -> None:
        """End without waiting: what is in flight is reported as failed. ``flush`` first."""
        self._thread.run(self._close())

    async def _close(self) -> None:
        self._inner.close()
        await self._all_taken()

    def flush(self) -> None:
        """Wait until every message sent so far has been acked or has failed.

        Raises PublishError if some failed since the last flush and there is no ``on_failure``.
        """
        self._thread.run(self._flush())

    async def _flush(self) -> None:
        await self._all_taken()
        await self._inner.flush()

    # Sending

    def send(
        self, subject: str, payload: Payload = b"", headers: HeadersLike = None, *, msg_id: str = ""
    ) -> int:
        """Send a message and return its number, from 0. Waits only while the window is full.

        Raises:
            InvalidSubjectError, LimitExceededError: the message cannot be sent; it gets no number.
            DisconnectedError: there is no connection, and the option ``fail_while_disconnected`` is set; it
                gets no number.
            ConnectionClosedError: the publisher or the connection is closed.
        """
        with self._lock:
            number = self._next
            command = self._inner._command(number, subject, payload, headers, msg_id)
            self._next = number + 1
            commands = self._commands
            commands.append(command)
            # What `_hand_over` does, without a call in the usual case: this runs per message.
            if len(commands) == 1 or len(commands) >= WAITING_MAX:
                self._hand_over()
            return number

    def send_many(
        self, messages: Iterable[tuple[str, Payload] | tuple[str, Payload, HeadersLike]]
    ) -> int:
        """Send ``(subject, payload)`` or ``(subject, payload, headers)`` one after the other, faster than
        ``send`` does, and return how many. Raises as ``send``; those before the bad one are sent."""
        count = 0
        for message in messages:
            with self._lock:
                command = self._inner._command(self._next, *message)
                self._next += 1
                self._commands.append(command)
                self._hand_over()
            count += 1
        return count

    def _hand_over(self) -> None:
        """Wake the loop's thread for the first command; wait for it when too many are queued."""
        if len(self._commands) >= WAITING_MAX:
            self._thread.run(self._all_taken())
        elif len(self._commands) == 1:
            self._thread.post(self._start_pump)

    # On the loop's thread

    def _start_pump(self) -> None:
        if self._commands and (self._pump is None or self._pump.done()):
            sending = self._inner._send_ready(self._commands)
            self._pump = asyncio.get_running_loop().create_task(sending, name="publisher")

    async def _all_taken(self) -> None:
        """Until the pump has taken every message queued so far."""
        while self._commands or (self._pump is not None and not self._pump.done()):
            self._start_pump()
            if self._pump is not None:
                await asyncio.wait([self._pump])


class AtomicBatch(Facade):
    """Messages that are stored together, one after the other, or not at all. To be filled by one thread at
    a time. Made by ``js.batch()``.

    ::

        with js.batch() as batch:
            batch.add("accounts.a", b"-5")
            batch.add("accounts.b", b"+5")
        print(batch.ack.seq)

    Messages are held in memory and sent by ``commit``; the end of the block commits what was not
    committed, unless the block failed. All of them belong to one stream, which must have
    ``allow_atomic``; a server takes 1000 messages in a batch unless it is configured otherwise.

    Attributes:
        ack: the stream's acknowledgement once committed, else None. ``seq`` is the last message's
            sequence, ``count`` how many there are.
    """

    __slots__ = ()
    _inner: AioAtomicBatch

    @property
    def ack(self) -> PubAck | None:
        """The stream's acknowledgement once committed, else None. ``seq`` is the last message's sequence,
        ``count`` how many there are."""
        return self._inner.ack

    def __len__(self) -> int:
        return len(self._inner)

    @property
    def first_sequence(self) -> int:
        """The sequence of the first message once committed, else 0; the others follow it."""
        return self._inner.first_sequence

    add = anywhere(AioAtomicBatch.add)
    commit = blocking(AioAtomicBatch.commit)
    discard = anywhere(AioAtomicBatch.discard)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Commit, unless the block failed or that was done, or nothing was added."""
        self._thread.run(self._inner.__aexit__(kind, error, traceback))
