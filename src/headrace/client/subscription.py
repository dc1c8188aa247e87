"""The subscription users iterate over, or give a callback to."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Self

from ..errors import (
    ConfigurationError,
    ConnectionClosedError,
    HeadraceError,
    RequestTimeoutError,
    ServiceError,
    SlowConsumerError,
)
from ..handling.callbacks import (
    CALLBACK_ERRORS,
    as_exception,
    await_result,
    check_callback,
    gives_coroutines,
)
from ..wire.encode import unsub
from ..wire.frames import Frame
from .message import Message, MessageView, error_response

if TYPE_CHECKING:
    from .net.session import Session

PENDING_MESSAGES_DEFAULT: Final = 512 * 1024
PENDING_BYTES_DEFAULT: Final = 128 * 1024 * 1024

_PAYLOAD: Final = 5
_HEADERS: Final = 4


class Subscription:
    """Messages of one subject, in order: ``async for message in subscription``, or a callback.

    Messages wait in memory until taken, up to two limits; what comes beyond them is dropped, counted
    in ``dropped`` and reported as an event with SlowConsumerError. Iteration ends when the
    subscription is over: unsubscribed, drained, its maximum reached, or the connection closed.

    Attributes:
        subject: the pattern subscribed to.
        queue: the queue group, or "".
        dropped: messages lost to the limits.
    """

    _message_type: type[Message] = Message
    _error: Exception | None = None  # that it ended with; there is none

    def __init__(
        self,
        session: Session,
        subject: str,
        queue: str,
        *,
        pending_messages: int = PENDING_MESSAGES_DEFAULT,
        pending_bytes: int = PENDING_BYTES_DEFAULT,
        answer_errors: bool = False,
    ) -> None:
        if pending_messages < 1 or pending_bytes < 1:
            raise ConfigurationError(
                f"pending_messages ({pending_messages}) and pending_bytes ({pending_bytes}) "
                "must both be 1 or more"
            )
        self.subject = subject
        self.queue = queue
        self.dropped = 0
        self._answers_errors = answer_errors
        self._session = session
        self._frames: deque[Frame] = deque()
        self._with_thread: deque[Any] = deque()  # taken for a thread, and not handed out there
        self._bytes = 0
        self._max_messages = pending_messages
        self._max_bytes = pending_bytes
        self._slow = False
        self._over = False
        self._waiter: asyncio.Future[None] | None = None
        self._reader: asyncio.Task[Any] | None = None  # the task that iterates, if it ever waited
        self._drained: asyncio.Future[None] | None = None  # all has come; made when draining
        self._emptied: asyncio.Future[None] | None = None  # all was taken
        self._worker: asyncio.Future[None] | None = None  # done when the callback is called no more
        self._callback: Callable[[Message], object] | None = None
        self._route = session.open_route(subject.encode(), self._receive, queue.encode())
        session.subscriptions[self] = None

    def __repr__(self) -> str:
        return f"<Subscription {self.subject!r} queue={self.queue!r} pending={len(self._frames)}>"

    # Taking messages

    @property
    def pending_messages(self) -> int:
        """Messages that came and were not taken yet."""
        return len(self._frames)

    @property
    def pending_bytes(self) -> int:
        """Their payload and header bytes."""
        return self._bytes

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        while not self._frames:
            if self._over:
                raise StopAsyncIteration
            await self._wait()
        frame = self._frames.popleft()
        self._bytes -= len(frame[_PAYLOAD]) + len(frame[_HEADERS])
        if self._over and not self._frames:
            self._note_emptied()
        return self._message_type(self._session, frame)

    async def next(self, timeout: float | None = None) -> Message:
        """The next message.

        Raises:
            RequestTimeoutError: none came within ``timeout`` seconds.
            ConnectionClosedError: the subscription is over.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self.__anext__()
        except TimeoutError as error:
            raise RequestTimeoutError(
                f"no message on {self.subject!r} within {timeout} s"
            ) from error
        except StopAsyncIteration:
            raise ConnectionClosedError(f"the subscription to {self.subject!r} is over") from None

    async def next_batch(self, max_messages: int = 1000) -> list[Message]:
        """What is there, at least one message, at most ``max_messages``; empty when it is over."""
        while not self._frames:
            if self._over:
                return []
            await self._wait()
        frames = self._frames
        taken = [frames.popleft() for _ in range(min(max_messages, len(frames)))]
        self._bytes -= _size(taken)
        if self._over and not frames:
            self._note_emptied()
        session, kind = self._session, self._message_type
        return [kind(session, frame) for frame in taken]

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise ConfigurationError("a subscription is iterated by one task at a time")
        self._reader = asyncio.current_task()
        self._waiter = self._session.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _note_emptied(self) -> None:
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    # Ending

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Unsubscribe."""
        await self.unsubscribe()

    async def unsubscribe(self, max_messages: int = 0) -> None:
        """End it: now, or once ``max_messages`` have been received since it began."""
        if self._over:
            return
        if max_messages > self._route.received:
            self._route.max_messages = max_messages
            self._session.send_control(unsub(self._route.sid, max_messages))
            return
        self._session.close_route(self._route)
        self.end()

    async def drain(self) -> None:
        """End it, but first receive what is under way and wait until all of it has been taken.

        Called by whoever takes the messages, also by its callback, it does not wait for that.
        """
        await self._drain_for(asyncio.current_task())

    async def _drain_for(self, caller: object, is_reader: bool = False) -> None:
        """``drain``, without waiting for ``caller``, or whoever takes, to take the messages."""
        is_reader = is_reader or (caller is not None and caller in (self._worker, self._reader))
        if not self._over:
            await asyncio.shield(self._begin_drain())
        if self._worker is not None:
            if not is_reader:
                await asyncio.wait([self._worker])
        elif self._frames and not is_reader:
            if self._emptied is None:
                self._emptied = self._session.loop.create_future()
            await asyncio.shield(self._emptied)

    def _begin_drain(self) -> asyncio.Future[None]:
        """Unsubscribe, and end when everything that was under way has come, or the link is lost."""
        if self._drained is None:
            self._drained = self._session.loop.create_future()
            self._session.send_control(unsub(self._route.sid))
            self._session.keepalive.call_when_read(self._end_drain)
        return self._drained

    def _end_drain(self) -> None:
        self._session.routes.remove(self._route)
        self.end()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def end(self) -> None:
        """End: no more comes; what waits can still be taken."""
        self._over = True
        self._session.subscriptions.pop(self, None)
        self._wake()

    def _stop_calling(self) -> None:
        """The connection is about to be closed: no callback begins any more."""
        if self._callback is not None or self._worker is not None:
            self._frames.clear()
            self._with_thread.clear()
            self._bytes = 0
            self._note_emptied()
            self._session.close_route(self._route)
            self.end()

    # The connection's side

    def start(self, callback: Callable[[Message], object]) -> None:
        """Call ``callback`` for each message: a plain function at once, a coroutine function in turn."""
        check_callback("callback", callback)
        if (spans := self._session.spans) is not None:
            callback = spans.traced(callback)
        self._callback = callback
        if gives_coroutines(callback):
            self._start_worker(None)
        else:
            self._route.receive = self._call

    def _start_worker(self, first: tuple[Awaitable[object], Message] | None) -> None:
        """Await what the callback gives, one message after the other, beginning with ``first``."""
        self._route.receive = self._receive
        self._worker = asyncio.create_task(self._work(first), name=f"subscription {self.subject}")

    async def _work(self, first: tuple[Awaitable[object], Message] | None) -> None:
        callback, session = self._callback, self._session
        assert callback is not None
        try:
            if first is not None:
                await self._await(first[0], first[1])
            async for message in self:
                try:
                    result = callback(message)
                except CALLBACK_ERRORS as error:
                    self._failed(message, as_exception(error))
                    continue
                if inspect.isawaitable(result):
                    await self._await(result, message)
        finally:
            if not self._over:  # the task was cancelled
                session.close_route(self._route)
                self.end()

    async def _await(self, result: Awaitable[object], message: Message) -> None:
        try:
            await await_result(result)
        except Exception as error:
            self._failed(message, error)

    def _failed(self, message: MessageView, error: Exception) -> None:
        """The callback raised: tell whoever asked, and report what was not meant for them."""
        answers = self._answers_errors and bool(message.reply)
        if not answers or not isinstance(error, ServiceError):
            self._session.report(error)
        if answers:
            try:
                self._session.publish(error_response(message, error))
            except HeadraceError as second:  # closed, or more than may wait
                self._session.report(second)

    def _call(self, frames: list[Frame]) -> None:
        callback, session, kind = self._callback, self._session, self._message_type
        assert callback is not None
        for index, frame in enumerate(frames, 1):
            message = kind(session, frame)
            try:
                result = callback(message)
            except CALLBACK_ERRORS as error:
                self._failed(message, as_exception(error))
                continue
            if result is not None and inspect.isawaitable(result):  # a lambda around a coroutine
                self._start_worker((result, message))
                self._count(frames[:index])
                self._receive(frames[index:])
                return
        self._count(frames)

    def _receive(self, frames: list[Frame]) -> None:
        room = self._max_messages - len(self._frames)
        size = _size(frames)
        if len(frames) > room or self._bytes + size > self._max_bytes:
            self._drop(frames, room)
        else:
            self._frames.extend(frames)
            self._bytes += size
            self._slow = False
        self._count(frames)
        self._wake()

    def _drop(self, frames: list[Frame], room: int) -> None:
        """Keep what fits, count the rest, and say so once until there is room again."""
        kept = 0
        for frame in frames[: max(room, 0)]:
            size = len(frame[_PAYLOAD]) + len(frame[_HEADERS])
            if self._bytes + size > self._max_bytes:
                break
            self._bytes += size
            self._frames.append(frame)
            kept += 1
        self.dropped += len(frames) - kept
        self._session.counts.dropped += len(frames) - kept
        if not self._slow:
            self._slow = True
            self._session.report(
                SlowConsumerError(
                    f"subscription to {self.subject!r}: {len(self._frames)} messages "
                    f"({self._bytes} bytes) wait to be taken, newer ones are dropped; limits are "
                    f"pending_messages={self._max_messages}, pending_bytes={self._max_bytes}"
                )
            )

    def _count(self, frames: list[Frame]) -> None:
        route = self._route
        route.received += len(frames)
        if route.max_messages and route.received >= route.max_messages:
            self._session.routes.remove(route)
            self.end()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _size(frames: list[Frame]) -> int:
    return sum([len(frame[_PAYLOAD]) + len(frame[_HEADERS]) for frame in frames])
