"""The windowed publisher: many messages in flight, each of which ends in an ack or a reported failure."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from ...errors import ConfigurationError, ConnectionClosedError, HeadraceError
from ...subjects import check_subject
from ..jetstream.calls import Api
from ..message import HeadersLike, Payload, payload_bytes
from ..net.outbox import check_line, reply_bytes
from .headers import Blocks

if TYPE_CHECKING:
    from ..net.routes import Route

FAILURES_KEPT_MAX: Final = 10_000  # further ones are counted, not kept
HEADS_KEPT_MAX: Final = 4096
SEND_AT_ONCE_MAX: Final = 1024  # messages joined into one write
NOT_OPEN: Final = (
    "the publisher is not open: enter it with `async with`, or with `with` in headrace.sync"
)

Publication: TypeAlias = tuple[str, Payload] | tuple[str, Payload, HeadersLike]


@dataclass(frozen=True, slots=True)
class PublishFailure:
    """One message that is not known to be stored: which (from 0, in the order sent), and why.

    After an OutcomeUnknownError, or a ConnectionClosedError that does not say that it was not sent, it may
    be stored nevertheless.
    """

    index: int
    subject: str
    error: Exception


class PublishError(HeadraceError):
    """Messages of a windowed publisher failed.

    Attributes:
        failures: the failures since the last ``flush``, at most 10,000 of them.
        count: how many there were.
    """

    def __init__(self, failures: list[PublishFailure], count: int) -> None:
        first = failures[0]
        super().__init__(
            f"{count} message(s) were not acknowledged; the first is number {first.index} "
            f"on {first.subject!r}: {first.error}"
        )
        self.failures = failures
        self.count = count


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherSettings:
    """The arguments of ``JetStream.publisher``, where they are described.

    Raises ConfigurationError: a number is too small.
    """

    window: int
    window_bytes: int
    delivery_timeout: float
    ack_timeout: float = 10.0
    retries: int = 3
    deduplicate: bool = False
    on_failure: Callable[[PublishFailure], object] | None = None

    def __post_init__(self) -> None:
        if self.window < 1 or self.window_bytes < 1 or self.ack_timeout <= 0 or self.retries < 0:
            raise ConfigurationError(
                f"publisher(window={self.window}, window_bytes={self.window_bytes}, "
                f"ack_timeout={self.ack_timeout}, retries={self.retries}): accepted are 1 or more, "
                "1 or more, more than 0 s, 0 or more"
            )


class Publisher(ABC):
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

    def __init__(self, api: Api, settings: PublisherSettings) -> None:
        self.sent = self.acked = self.duplicates = self.failed = 0
        self._api = api
        self._session = session = api.session
        self._window = settings.window
        self._window_bytes = settings.window_bytes
        self._ack_timeout = settings.ack_timeout
        self._delivery_timeout = settings.delivery_timeout
        self._retries = settings.retries
        self._repeats = settings.deduplicate and settings.retries > 0  # as often as need be
        self._on_failure = settings.on_failure
        self._blocks = Blocks(
            deduplicate=settings.deduplicate,
            prefix=session.nuid.next().encode(),
            trace=session.trace,
        )
        self._adds_headers = self._blocks.always
        self._prefix = b""
        self._heads: dict[str, bytes] = {}  # what begins a subject's commands
        self._unacked_bytes = 0
        self._failures: list[PublishFailure] = []
        self._failed_since_flush = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._flushers: list[asyncio.Future[None]] = []
        self._route: Route | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._max_payload = session.info.max_payload
        self._reply_bytes = reply_bytes(session.options.inbox_prefix)

    def __repr__(self) -> str:
        return f"<Publisher sent={self.sent} in_flight={self.in_flight} failed={self.failed}>"

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Messages sent and not answered yet."""

    @property
    @abstractmethod
    def last_sequence(self) -> int:
        """The stream sequence of the ack received last, or 0."""

    # Beginning and end

    async def __aenter__(self) -> Self:
        self._open()
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        """Flush, unless the block failed; what is then in flight is reported as failed."""
        try:
            if error is None:
                await self.flush()
        finally:
            self.close()

    def close(self) -> None:
        """End without waiting: what is in flight is reported as failed. ``flush`` first."""
        self._shut(ConnectionClosedError("the publisher was closed before the ack came"))

    async def flush(self) -> None:
        """Wait until every message sent so far has been acked or has failed.

        Raises PublishError if some failed since the last flush and there is no ``on_failure``.
        """
        await self._wait_for_answers()
        count, self._failed_since_flush = self._failed_since_flush, 0
        failures, self._failures = self._failures, []
        if count and self._on_failure is None:
            raise PublishError(failures, count)

    def _enter(self) -> None:
        """The connection tells of what happens to it, and counts the messages."""
        self._session.observers[self] = None
        self._session.publishers[self] = None
        self._max_payload = self._session.info.max_payload

    def _leave(self) -> None:
        """The end of ``_enter``, and of everything that is timed or kept."""
        session = self._session
        session.observers.pop(self, None)
        session.publishers.pop(self, None)
        self._heads.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _refuse_if_away(self) -> None:
        """The connection was lost: where nothing is to wait for the next one, nothing more is taken."""
        if self._session.is_refusing:
            self._heads.clear()  # so each message comes by `_check_open`
            wake_all(self._waiters)

    def _add_to_counts(self) -> None:
        counts = self._session.counts
        counts.sent += self.sent
        counts.acked += self.acked
        counts.failed += self.failed

    # Sending

    async def send(
        self, subject: str, payload: Payload = b"", headers: HeadersLike = None, *, msg_id: str = ""
    ) -> int:
        """Send a message and return its number, from 0. Waits only while the window is full.

        Raises:
            InvalidSubjectError, LimitExceededError: the message cannot be sent; it gets no number.
            DisconnectedError: there is no connection, and the option ``fail_while_disconnected`` is set; it
                gets no number.
            ConnectionClosedError: the publisher or the connection is closed.
        """
        if self._is_full:
            await self._wait_for_window()
        return self._send_one(subject, payload, headers, msg_id)

    async def send_many(
        self, messages: Iterable[tuple[str, Payload] | tuple[str, Payload, HeadersLike]]
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

    async def _wait_for_window(self) -> None:
        while self._is_full:
            self._session.check_linked()
            waiter = self._session.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    # Failures

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

    # How messages are sent and answered

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _shut(self, reason: Exception) -> None:
        """End it; what is in flight fails with ``reason``. Nothing if it is not open."""

    @abstractmethod
    async def _wait_for_answers(self) -> None:
        """Until every message sent so far has been answered, or has failed."""

    @property
    @abstractmethod
    def _is_full(self) -> bool:
        """Whether the next message has to wait for the window."""

    @abstractmethod
    def _send_one(self, subject: str, payload: Payload, headers: HeadersLike, msg_id: str) -> int:
        """Send a message with the next number, and return that. Raises as ``send``."""

    @abstractmethod
    def _send_some(self, iterator: Iterator[Publication]) -> bool:
        """Send until the window is full, or a good piece; True when the messages are at their end."""

    @abstractmethod
    def _command(
        self,
        index: int,
        subject: str,
        payload: Payload,
        headers: HeadersLike = None,
        msg_id: str = "",
    ) -> object:
        """What publishes a message. May be called on another thread, once the publisher is open."""

    def _parts(
        self, index: int, subject: str, payload: Payload, headers: HeadersLike, msg_id: str
    ) -> tuple[bytes, bytes, bytes]:
        """What begins the message's command, its header block, and its payload; both are checked."""
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy: the caller may change what it has given
        head = self._heads.get(subject) or self._head(subject)
        block = b""
        if headers or msg_id or self._adds_headers:
            block = self._blocks.make(index, headers, msg_id)
        size = len(block) + len(payload)
        if size > self._max_payload:
            self._session.check_size(size)
        return head, block, payload

    def _head(self, subject: str) -> bytes:
        """What begins the commands of a subject, which is checked once. Its length, too: no parser need be
        there that would."""
        self._check_open()
        known = check_subject(subject.encode())
        check_line(known, self._reply_bytes)
        head = self._opening(known)
        if len(self._heads) < HEADS_KEPT_MAX:
            self._heads[subject] = head
        return head

    @abstractmethod
    def _check_open(self) -> None:
        """Raise, if nothing can be sent."""

    @abstractmethod
    def _opening(self, subject: bytes) -> bytes:
        """What begins the commands of a subject."""

    @abstractmethod
    async def _send_ready(self, commands: deque[object]) -> None:
        """Send commands made by ``_command`` with the numbers that come next, emptying the deque.

        When the publisher is closed, what is left gets its numbers and is reported as failed.
        """

    # The connection

    @abstractmethod
    def connection_lost(self) -> None:
        """Answers under way are lost: what may be sent again is kept, the rest fails."""

    @abstractmethod
    def connection_restored(self) -> None:
        """After a reconnect: see to what was sent on the lost connection and is unanswered."""

    def connection_closed(self, reason: Exception) -> None:
        """The connection is over for good: what is unanswered fails."""
        self._shut(ConnectionClosedError(str(reason)))


def wake_all(waiters: list[asyncio.Future[None]]) -> None:
    """Resume every task that waits."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
