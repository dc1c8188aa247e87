"""A running consume: one subscription, a buffer, and the pulls that keep it filled."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Self

from ...errors import (
    ConfigurationError,
    ConnectionClosedError,
    HeartbeatMissedError,
    NoRespondersError,
    ProtocolError,
    PullError,
)
from ...wire.encode import pub, unsub
from ...wire.frames import Frame
from ..callbacks import (
    CALLBACK_ERRORS,
    as_exception,
    await_result,
    check_callback,
    check_plain,
    tell,
)
from .message import JetStreamMessage, Queued
from .pin import Pin
from .pull import (
    ConsumeLimits,
    Meaning,
    PriorityOptions,
    PullAccount,
    Status,
    encode_request,
    message_size,
    read_status,
)
from .waiter import Waiter

if TYPE_CHECKING:
    from ...api.consumers import PullRequest
    from ..net.session import Session

PULLS_AT_ONCE_MAX: Final = 16  # when the consumer allows only small batches
MESSAGES_PER_TURN: Final = 256  # a plain callback lets the loop breathe after so many

MessageCallback = Callable[[JetStreamMessage], object]


class Consumption:
    """Messages of a consumer as they come. Made by ``Consumer.consume``.

    Iterate it (``async with consumer.consume() as messages: async for message in messages``), iterate
    its ``batches()``, or give ``consume`` a callback and ``await consumption.wait()``.

    It goes on through lost connections, missed heartbeats and refused pulls; those are reported, to
    ``on_error`` or else as connection events. It ends by ``stop``, by ``drain``, or with an error: when
    the consumer was deleted or is push based, and when the connection is closed.
    """

    def __init__(
        self,
        session: Session,
        subject: bytes,
        consumer: str,
        limits: ConsumeLimits,
        priority: PriorityOptions,
        pin: Pin,
        callback: MessageCallback | None,
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        session.raise_if_closed()
        check_callback("callback", callback)
        self._session = session
        self._subject = subject
        self._consumer = consumer
        self._pin = pin
        self._grouped = bool(priority.get("group"))
        self._on_error = check_plain("on_error", on_error)
        self._account = PullAccount(limits, priority)
        self._frames: deque[Frame] = deque()
        self._taken = 0  # handed over since the account was last told
        self._tell_at = 1  # how many may be, before a pull could be due
        self._waiter = Waiter(session.loop, at_once=session.may_run_readers)
        self._reader: asyncio.Task[Any] | None = None  # the task that iterates, if it ever waited
        self._drained: asyncio.Future[None] | None = None  # all has come; made when draining
        self._pulling = True
        self._over = False
        self._error: Exception | None = None
        self._ended: asyncio.Future[None] = session.loop.create_future()
        self._pause: asyncio.TimerHandle | None = None
        self._last_heard = self._last_pull = session.loop.time()
        self._inbox = session.new_inbox().encode()
        self._route = session.open_route(self._inbox, self._receive)
        session.observers[self] = None
        self._monitor = session.loop.call_later(2 * self._account.heartbeat, self._check)
        self._refill()
        self._worker: asyncio.Future[None] | None = None  # done when the callback is called no more
        if callback is not None:
            if session.spans is not None:
                callback = session.spans.traced(callback)
            self._worker = session.loop.create_task(
                self._work(callback), name=f"consume {consumer}"
            )

    def __repr__(self) -> str:
        return f"<Consumption of {self._consumer} buffered={len(self._frames)} over={self._over}>"

    # Taking messages

    @property
    def buffered(self) -> int:
        """Messages that came and were not taken yet."""
        return len(self._frames)

    def __aiter__(self) -> AsyncIterator[JetStreamMessage]:
        return self

    async def __anext__(self) -> JetStreamMessage:
        if not self._frames:
            await self._wait()
        frame = self._frames.popleft()
        self._taken += 1
        if self._taken >= self._tell_at:
            self._tell(frame)
        return JetStreamMessage(self._session, frame)

    async def batches(self, max_messages: int = 0) -> AsyncIterator[list[JetStreamMessage]]:
        """What has come, as lists of at least one message, and of at most ``max_messages`` if given."""
        while messages := await self.next_batch(max_messages):
            yield messages

    async def next_batch(self, max_messages: int = 0) -> list[JetStreamMessage]:
        """The next of ``batches()``; empty at the end. Raises the error it ended with, if any."""
        frames, session = self._frames, self._session
        if not frames:
            try:
                await self._wait()
            except StopAsyncIteration:
                return []
        count = min(max_messages or len(frames), len(frames))
        taken = [frames.popleft() for _ in range(count)]
        self._taken += count
        if self._taken >= self._tell_at:
            self._tell(*taken)
        return list(map(JetStreamMessage, repeat(session), taken))

    async def _wait(self) -> None:
        """Until a message is there. Raises StopAsyncIteration or the error at the end."""
        while not self._frames:
            if self._over:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            if self._waiter.is_awaited:
                raise ConfigurationError("a consume is iterated by one task at a time")
            self._reader = asyncio.current_task()
            await self._waiter

    async def _work(self, callback: MessageCallback) -> None:
        """Call back for each message, until the end."""
        done = 0
        try:
            async for message in self:
                waits = False
                try:
                    result: Any = callback(message)
                    waits = type(result) is not Queued and inspect.isawaitable(result)
                    if waits:
                        await await_result(result)
                except CALLBACK_ERRORS as error:
                    if waits and isinstance(error, asyncio.CancelledError):
                        raise  # of this task
                    self._report(as_exception(error))
                done += 1
                if not waits and done % MESSAGES_PER_TURN == 0:
                    await asyncio.sleep(0)
        except (PullError, ConnectionClosedError):
            pass  # the end, and its reason: `wait` raises it
        finally:
            self._stop_now()  # where the task was cancelled; else it is over

    # Ending

    async def wait(self) -> None:
        """Until it has ended. Raises the error it ended with, if any."""
        if self._worker is not None:
            if self._worker is asyncio.current_task():
                raise ConfigurationError(
                    "a consume cannot be waited for inside its own callback; stop() or drain() end it"
                )
            await asyncio.wait([self._worker])
        await asyncio.shield(self._ended)
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        """End now. Messages in the buffer are sent back (NAK), so that they are delivered again soon."""
        await self._stop(asyncio.current_task())

    async def _stop(self, caller: asyncio.Future[Any] | None) -> None:
        self._stop_now()
        if self._worker is not None and self._worker is not caller:
            await asyncio.wait([self._worker])

    def _stop_now(self) -> None:
        if self._over:
            return
        frames = list(self._frames)
        self._frames.clear()
        self._session.refuse_rest(self._route, frames)
        self._end(None)

    async def drain(self) -> None:
        """End, but first receive what is under way and wait until all of it has been taken.

        Called by whoever takes the messages, also by the callback, it does not wait for that.
        """
        await self._drain_for(asyncio.current_task())

    async def _drain_for(self, caller: asyncio.Future[Any] | None, is_reader: bool = False) -> None:
        """``drain``, without waiting for ``caller``, or whoever takes, to take the messages."""
        is_reader = is_reader or (caller is not None and caller in (self._worker, self._reader))
        if not self._over:
            await asyncio.shield(self._begin_drain())
        if self._worker is not None:
            if not is_reader:
                await asyncio.wait([self._worker])
        elif self._frames and not is_reader:
            await asyncio.shield(self._ended)

    def _begin_drain(self) -> asyncio.Future[None]:
        """Pull no more, and end when everything that was under way has come, or the link is lost."""
        if self._drained is None:
            self._drained = self._session.loop.create_future()
            self._session.send_control(unsub(self._route.sid))
            self._session.keepalive.call_when_read(self._end_drain)
            self._pulling_ends()
        return self._drained

    def _end_drain(self) -> None:
        self._session.routes.remove(self._route)
        self._end(None)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _abandon(self) -> None:
        """End without a word to anybody; what is in the buffer can still be taken."""
        self._session.close_route(self._route)
        self._end(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _end(self, error: Exception | None) -> None:
        if self._over:
            return
        self._over = True
        self._error = error
        self._pulling_ends()
        if not self._frames:
            self._all_taken()
        self._waiter.wake()

    def _pulling_ends(self) -> None:
        self._pulling = False
        self._tell_at = 1
        self._session.observers.pop(self, None)
        self._monitor.cancel()
        if self._pause is not None:
            self._pause.cancel()

    def _all_taken(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    # Messages and statuses: handled as they arrive, however slow the taker is

    def _receive(self, frames: list[Frame]) -> None:
        self._last_heard = self._session.loop.time()
        account = self._account
        messages = [frame for frame in frames if frame[3]]
        if messages:
            size = sum(map(message_size, messages)) if account.counts_bytes else 0
            account.arrived(len(messages), size)
            self._frames.extend(messages)
            if self._grouped:
                self._pin.learn(messages[-1][4])
        if len(messages) != len(frames):  # only statuses can make a pull due
            self._account_for_taken()
            for frame in frames:
                if not frame[3]:
                    self._handle_status(frame[4])
            self._refill()
        if messages:
            self._waiter.wake_now()  # last: whoever takes them may do anything, such as end this

    def _handle_status(self, headers: bytes) -> None:
        try:
            status = read_status(headers)
        except ProtocolError as error:
            self._report(error)
            return
        meaning = self._account.status(status)
        if meaning in (Meaning.WARNING, Meaning.ERROR):
            self._report(self._error_for(status))
        elif meaning is Meaning.UNPINNED:
            self._pin.lost()
        elif meaning is Meaning.TERMINAL:
            self._session.close_route(self._route)
            self._end(PullError(status.code, f"{status.description}: {self._consumer}"))

    def _error_for(self, status: Status) -> Exception:
        if status.code == 503:
            return NoRespondersError(
                f"no consumer {self._consumer}: it does not exist (any more), or its stream is not "
                "available; trying on"
            )
        return PullError(status.code, status.description)

    def _report(self, error: Exception) -> None:
        tell(self._on_error, self._session.report, error)

    # Pulling

    def _tell(self, *frames: Frame) -> None:
        """Account for what was taken; a pull may be due."""
        if self._account.counts_bytes:
            self._account.processed(len(frames), sum(map(message_size, frames)))
            self._taken = 0
        self._account_for_taken()
        self._refill()
        if self._over and not self._frames:
            self._all_taken()

    def _account_for_taken(self) -> None:
        if self._taken:
            self._account.processed(self._taken, 0)
            self._taken = 0

    def _refill(self) -> None:
        """Send the pulls that are due, unless they must wait."""
        if not self._pulling:
            return
        if self._session.link is not None and self._pause is None:
            pause = self._account.pause
            if pause and self._account.due:
                self._pause = self._session.loop.call_later(pause, self._resume)
            else:
                self._pull_what_is_due()
        self._tell_at = self._account.taken_until_due

    def _resume(self) -> None:
        """The pause after a refusal is over."""
        self._pause = None
        if self._session.link is not None:
            self._pull_what_is_due()
        self._tell_at = self._account.taken_until_due

    def _pull_what_is_due(self) -> None:
        for _ in range(PULLS_AT_ONCE_MAX):
            if not self._account.due:
                return
            self._pull(self._account.request(self._pin.use()))

    def _pull(self, request: PullRequest) -> None:
        self._last_pull = self._session.loop.time()
        body = encode_request(request)
        self._session.counts.pulls += 1
        self._session.send_control(pub(self._subject, self._inbox, b"", body))

    def _check(self) -> None:
        """The heartbeat monitor; also keeps the pin of a client whose buffer is full for long."""
        account, now = self._account, self._session.loop.time()
        allowed = 2 * account.heartbeat
        silent = now - self._last_heard
        if self._session.link is None or not account.outstanding:
            self._last_heard = now
        elif silent >= allowed:
            self._last_heard = now
            self._report(
                HeartbeatMissedError(
                    f"no message and no heartbeat from consumer {self._consumer} for {silent:.1f} s: "
                    "it may be gone, or the server has too many pulls waiting; pulling anew"
                )
            )
            self._account_for_taken()
            account.restart()
            self._refill()
        if self._pin.id and self._grouped and now - self._last_pull >= account.expires:
            self._pull(account.keep_pin_request(self._pin.use()))
        wait = allowed - (now - self._last_heard)
        if self._grouped and self._last_pull + account.expires > now:
            wait = min(wait, self._last_pull + account.expires - now)  # the pin's sake
        self._monitor = self._session.loop.call_later(wait, self._check)

    # The connection

    def connection_lost(self) -> None:
        """No pull is sent and no heartbeat is expected until it is back."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def connection_restored(self) -> None:
        """After a reconnect: pull again; what was asked for on the lost connection is forgotten."""
        self._last_heard = self._session.loop.time()
        self._account_for_taken()
        self._account.restart()
        self._refill()

    def connection_closed(self, reason: Exception) -> None:
        """The connection is over for good, and the consume with it."""
        self._end(ConnectionClosedError(str(reason)))
