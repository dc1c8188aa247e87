"""Publishing with thousands of messages in flight, each of which ends in an ack or a reported failure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ...api.envelope import decode_pub_ack
from ...errors import ConfigurationError, ConnectionClosedError, DisconnectedError, TimeoutError_
from ...subjects import check_subject
from ...wire.frames import Frame
from ...wire.headers import status_of
from ..message import HeadersLike, payload_bytes
from ..net.leaders import is_leaderless, nobody_has
from .failures import PublishError, PublishFailure, refusal_of
from .header_blocks import Blocks
from .recovery import Recovery, wake_all

if TYPE_CHECKING:
    from ..connection import Connection
    from ..jetstream.calls import Api
    from ..net.routes import Route

__all__ = ["PublishError", "PublishFailure", "Publisher"]

FAILURES_KEPT_MAX: Final = 10_000  # further ones are counted, not kept
HEADS_KEPT_MAX: Final = 4096
SEND_AT_ONCE_MAX: Final = 1024  # messages joined into one write

OK_START: Final = b'{"stream"'
_DUPLICATE: Final = b'"duplicate"'


class Publisher:
    """Sends without waiting for each ack. Made by ``js.publisher(…)``; an async context manager.

    Messages of one subject are stored in the order sent: nothing is sent behind a message that is known
    not to be stored; see ``recovery``. (What was under way behind it at that moment may be stored
    before it, if a leader changed within a round trip. ``fast`` excludes that.) Not thread-safe, but
    several tasks may send.

    Attributes:
        sent: messages sent so far; ``sent == acked + failed`` once flushed.
        acked: messages acknowledged so far.
        duplicates: acknowledged messages the stream had already.
        failed: messages that failed so far.
    """

    def __init__(
        self,
        connection: Connection,
        api: Api,
        *,
        window: int,
        window_bytes: int,
        ack_timeout: float,
        delivery_timeout: float,
        retries: int,
        deduplicate: bool,
        on_failure: Callable[[PublishFailure], object] | None,
    ) -> None:
        if window < 1 or window_bytes < 1 or ack_timeout <= 0 or retries < 0:
            raise ConfigurationError(
                f"publisher(window={window}, window_bytes={window_bytes}, ack_timeout={ack_timeout}, "
                f"retries={retries}): accepted are 1 or more, 1 or more, more than 0 s, 0 or more"
            )
        self.sent = self.acked = self.duplicates = self.failed = 0
        self._connection = connection
        self._session = connection._session
        self._window = window
        self._window_bytes = window_bytes
        self._reopen_at = window - window // 4  # a full window reopens when a quarter is free
        self._ack_timeout = ack_timeout
        self._retries = retries
        self._blocks = Blocks(
            deduplicate=deduplicate,
            prefix=self._session.nuid.next().encode(),
            trace=self._session.trace,
        )
        self._adds_headers = self._blocks.always
        self._repeats = deduplicate and retries > 0  # sent again as often as need be
        self._recovery = Recovery(self, api, delivery_timeout, ack_timeout, retries, self._repeats)
        self._flowing = False  # whether what is sent leaves: there is a link, and no trouble
        self._on_failure = on_failure
        self._prefix = b""
        self._heads: dict[str, bytes] = {}  # subject → the start of its PUB line
        self._unacked: dict[bytes, Any] = {}  # number → command, in the order sent
        self._unacked_bytes = 0
        self._attempts: dict[bytes, int] = {}  # only of those sent again
        self._failures: list[PublishFailure] = []
        self._failed_since_flush = 0
        self._last_ack = b""
        self._waiters: list[asyncio.Future[None]] = []
        self._flushers: list[asyncio.Future[None]] = []
        self._route: Route | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at_tick = 0
        self._max_payload = self._session.info.max_payload

    def __repr__(self) -> str:
        return f"<Publisher sent={self.sent} in_flight={self.in_flight} failed={self.failed}>"

    @property
    def in_flight(self) -> int:
        """Messages sent and not answered yet."""
        return len(self._unacked)

    @property
    def last_sequence(self) -> int:
        """The stream sequence of the ack received last, or 0."""
        return decode_pub_ack(self._last_ack).seq if self._last_ack else 0

    # Beginning and end

    async def __aenter__(self) -> Self:
        self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Flush, unless the block failed; what is then in flight is reported as failed."""
        try:
            if error is None:
                await self.flush()
        finally:
            self.close()

    def _open(self) -> None:
        if self._route is not None:
            raise ConfigurationError("a publisher is entered once")
        self._prefix = self._session.new_inbox().encode() + b"."
        self._route = self._session.open_route(self._prefix + b"*", self._receive)
        self._session.observers[self] = None
        self._max_payload = self._session.info.max_payload
        self._flowing = self._session.link is not None
        self._timer = self._session.loop.call_later(self._recovery.pace, self._tick)

    def close(self) -> None:
        """End without waiting: what is in flight is reported as failed. ``flush`` first."""
        self._shut(ConnectionClosedError("the publisher was closed before the ack came"))

    def _shut(self, reason: Exception) -> None:
        if self._route is None:
            return
        self._session.observers.pop(self, None)
        self._session.close_route(self._route)
        self._route = None
        self._flowing = False
        self._recovery.close()
        self._heads.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._fail_all(reason)
        counts = self._session.counts
        counts.sent += self.sent
        counts.acked += self.acked
        counts.failed += self.failed

    async def flush(self) -> None:
        """Wait until every message sent so far has been acked or has failed.

        Raises PublishError if some failed since the last flush and there is no ``on_failure``.
        """
        if self.in_flight:
            flusher = self._session.loop.create_future()
            self._flushers.append(flusher)
            await flusher
        self._raise_failures()

    def _raise_failures(self) -> None:
        count, self._failed_since_flush = self._failed_since_flush, 0
        failures, self._failures = self._failures, []
        if count and self._on_failure is None:
            raise PublishError(failures, count)

    # Sending

    async def send(
        self,
        subject: str,
        payload: bytes = b"",
        headers: HeadersLike = None,
        *,
        msg_id: str = "",
    ) -> int:
        """Send a message and return its number, from 0. Waits only while the window is full.

        Raises:
            InvalidSubjectError, LimitExceededError: the message cannot be sent; it gets no number.
            ConnectionClosedError: the publisher or the connection is closed.
        """
        if self._is_full:
            await self._wait_for_window()
        command = self._command(self.sent, subject, payload, headers, msg_id)
        self._unacked[b"%d" % self.sent] = command
        size = self._size(command)
        self._unacked_bytes += size
        self.sent += 1
        if self._flowing:
            self._put([command], size)
        return self.sent - 1

    async def send_many(
        self, messages: Iterable[tuple[str, bytes] | tuple[str, bytes, HeadersLike]]
    ) -> int:
        """Send ``(subject, payload)`` or ``(subject, payload, headers)`` one after the other, faster than
        ``send`` does, and return how many. Raises as ``send``; those before the bad one are sent."""
        before = self.sent
        iterator = iter(messages)
        exhausted = False
        while not exhausted:
            if self._is_full:
                await self._wait_for_window()
            exhausted = self._send_some(iterator)
        return self.sent - before

    def _send_some(
        self, iterator: Iterator[tuple[str, bytes] | tuple[str, bytes, HeadersLike]]
    ) -> bool:
        """Send until the window is full, or a good piece; True when the messages are at their end."""
        unacked, command, size_of = self._unacked, self._command, self._size
        start, end, extra = self._blocks.start, self._blocks.end, self._blocks.extra
        heads = {} if self._adds_headers and not start else self._heads
        size_max, window_bytes = self._max_payload - self._blocks.extra_max, self._window_bytes
        index, size = self.sent, self._unacked_bytes
        last = index + min(self._window - self.in_flight, SEND_AT_ONCE_MAX)
        out: list[Any] = []
        try:
            for message in iterator:
                key = b"%d" % index
                payload = message[1]
                # What `_command` would make, without a call: this runs per message.
                if (
                    len(message) != 2
                    or type(payload) is not bytes
                    or (length := len(payload)) > size_max
                    or not (head := heads.get(message[0]))
                ):
                    data = command(index, *message)
                elif not start:
                    data = b"%b%b %d\r\n%b\r\n" % (head, key, length, payload)
                else:
                    block = b"%b%b%b" % (start, key, end)
                    sizes = b"%d %d" % (extra + len(key), extra + len(key) + length)
                    data = b"H%b%b %b\r\n%b%b\r\n" % (head, key, sizes, block, payload)
                unacked[key] = data
                out.append(data)
                index += 1
                size += size_of(data)
                if index == last or size >= window_bytes:
                    return False
            return True
        finally:
            before, self._unacked_bytes = self._unacked_bytes, size
            self.sent = index
            if out and self._flowing:
                self._put(out, size - before)

    async def _send_ready(self, commands: deque[Any]) -> None:
        """Send commands made by ``_command`` with the numbers that come next, emptying the deque.

        When the publisher is closed, what is left gets its numbers and is reported as failed.
        """
        while commands:
            if self._is_full:
                await self._wait_for_window()
            is_open = self._route is not None
            before = self._unacked_bytes
            out: list[Any] = []
            while commands and len(out) < SEND_AT_ONCE_MAX and not (is_open and self._is_full):
                command = commands.popleft()
                self._unacked[b"%d" % self.sent] = command
                self._unacked_bytes += self._size(command)
                self.sent += 1
                out.append(command)
            if not is_open:
                self._fail_all(ConnectionClosedError("the publisher was closed before it was sent"))
            elif self._flowing:
                self._put(out, self._unacked_bytes - before)

    # What a command is; the publisher of an in-process connection has another answer

    _size: Callable[[Any], int] = staticmethod(len)

    def _total(self, commands: list[Any]) -> int:
        """The size of several."""
        return sum(map(len, commands))

    def _put(self, commands: list[Any], size: int) -> None:
        """Queue commands of ``size`` bytes together, for this link only."""
        self._session.counts.published += len(commands)
        self._session.outbox.put_once(b"".join(commands))

    @staticmethod
    def _subject_of(command: Any) -> str:
        subject: bytes = command.split(b" ", 2)[1]
        return subject.decode()

    def _command(
        self,
        index: int,
        subject: str,
        payload: bytes,
        headers: HeadersLike = None,
        msg_id: str = "",
    ) -> Any:
        """What publishes a message with its number as reply."""
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        head = self._heads.get(subject) or self._head(subject)
        block = b""
        if headers or msg_id or self._adds_headers:
            block = self._blocks.make(index, headers, msg_id)
        size = len(block) + len(payload)
        if size > self._max_payload:
            self._connection._check_size(size)
        if block:
            return b"H%b%d %d %d\r\n%b%b\r\n" % (head, index, len(block), size, block, payload)
        return b"%b%d %d\r\n%b\r\n" % (head, index, size, payload)

    def _check_open(self) -> None:
        if self._route is None:
            raise ConnectionClosedError("the publisher is not open: use `async with` around it")

    def _head(self, subject: str) -> bytes:
        """The start of a subject's PUB line, checked once per subject."""
        self._check_open()
        head = b"PUB %b %b" % (check_subject(subject.encode()), self._prefix)
        if len(self._heads) < HEADS_KEPT_MAX:
            self._heads[subject] = head
        return head

    @property
    def _is_full(self) -> bool:
        return self.in_flight >= self._window or self._unacked_bytes >= self._window_bytes

    async def _wait_for_window(self) -> None:
        while self._is_full:
            waiter = self._session.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    # Answers

    def _receive(self, frames: list[Frame]) -> None:
        take, start = self._unacked.pop, len(self._prefix)
        good = [frame for frame in frames if frame[5][:9] == OK_START]
        if len(good) < len(frames):
            for frame in frames:
                if frame[5][:9] != OK_START:
                    self._refused(frame[1][start:], frame)
        commands = [take(frame[1][start:], None) for frame in good]
        acked = [command for command in commands if command is not None]
        if acked:
            self._last_ack = good[-1][5]
            if [True for frame in good if _DUPLICATE in frame[5]]:
                self.duplicates += sum(
                    _DUPLICATE in frame[5]
                    for frame, command in zip(good, commands, strict=True)
                    if command is not None
                )
        self.acked += len(acked)
        self._unacked_bytes -= self._total(acked)
        self._progress()

    def _refused(self, key: bytes, frame: Frame) -> None:
        """Anything but an ack: it has failed, unless nobody listens or leads just now."""
        if key not in self._unacked:
            return  # sent twice and answered twice
        subject = self._subject_of(self._unacked[key])
        if frame[4] and status_of(frame[4]) == 503:
            if self._retries:
                self._recovery.refused(key, subject, leaderless=False)
            else:
                self._fail(key, nobody_has(subject))
            return
        error = refusal_of(frame[5])
        if self._retries and is_leaderless(error):
            self._recovery.refused(key, subject, leaderless=True)
            return
        self._fail(key, error)

    def _progress(self) -> None:
        """Messages were answered: whoever waits for that goes on."""
        if self._attempts:
            self._attempts = {k: n for k, n in self._attempts.items() if k in self._unacked}
        if self._recovery.stalled:
            self._recovery.look()
        self._wake()

    def _wake(self) -> None:
        if self._waiters and self.in_flight <= self._reopen_at and not self._is_full:
            wake_all(self._waiters)
        if self._flushers and not self.in_flight:
            wake_all(self._flushers)

    # Failures and second attempts

    def _may_try_again(self, key: bytes) -> bool:
        attempts = self._attempts.get(key, 0) + 1
        self._attempts[key] = attempts
        return attempts <= self._retries

    def _fail(self, key: bytes, error: Exception) -> None:
        command = self._unacked.pop(key)
        self._unacked_bytes -= self._size(command)
        self._report(int(key), self._subject_of(command), error)

    def _report(self, index: int, subject: str, error: Exception) -> None:
        """Count a failure, and keep it or tell it."""
        self.failed += 1
        failure = PublishFailure(index, subject, error)
        if self._on_failure is None:
            self._failed_since_flush += 1
            if len(self._failures) < FAILURES_KEPT_MAX:
                self._failures.append(failure)
            return
        try:
            self._on_failure(failure)
        except Exception as second:
            self._session.report(second)

    def _fail_all(self, error: Exception) -> None:
        for key in list(self._unacked):
            self._fail(key, error)
        self._progress()

    def _hold(self) -> None:
        """There is trouble: what is sent from here on stays."""
        self._flowing = False

    def _release(self, *, anew: bool) -> None:
        """It may flow again; ``anew``: the clock of what was sent starts anew."""
        self._flowing = self._session.link is not None
        if anew:
            self._sent_at_tick = 0

    def _resend(self, keys: list[bytes]) -> None:
        """Send what is still unanswered, in pieces; without a link it is sent when there is one."""
        if self._session.link is None:
            return
        unacked = self._unacked
        for start in range(0, len(keys), SEND_AT_ONCE_MAX):
            piece = [unacked[key] for key in keys[start : start + SEND_AT_ONCE_MAX]]
            self._put(piece, self._total(piece))

    def _tick(self) -> None:
        """What was sent before the last tick is overdue."""
        self._timer = self._session.loop.call_later(self._recovery.pace, self._tick)
        before, self._sent_at_tick = self._sent_at_tick, self.sent
        if self._session.link is None:
            return  # the clock starts anew when the connection is back
        if self._repeats and self._recovery.stalled:
            return  # it sees to all of them
        overdue = self._recovery.overdue(before)
        if self._repeats:
            if overdue:
                self._recovery.doubt(before)
            return
        again = [key for key in overdue if self._may_try_again(key)]
        for key in set(overdue) - set(again):
            self._fail(
                key,
                TimeoutError_(
                    f"no ack within {self._ack_timeout} s, sent {self._attempts[key]} time(s)"
                ),
            )
        self._resend(again)
        self._progress()

    # The connection

    def connection_lost(self) -> None:
        """Acks under way are lost: these messages are sent again, or reported."""
        lost = DisconnectedError("the connection was lost before the ack came")
        if not self._repeats:
            for key in self._recovery.overdue(self.sent):
                if not self._may_try_again(key):
                    self._fail(key, lost)
        self._recovery.lost()
        self._progress()

    def connection_restored(self) -> None:
        """After a reconnect: see to what was sent on the lost connection and is unanswered."""
        self._max_payload = self._session.info.max_payload
        self._recovery.restored()

    def connection_closed(self, reason: Exception) -> None:
        """The connection is over for good: what is unanswered fails."""
        self._shut(ConnectionClosedError(str(reason)))
