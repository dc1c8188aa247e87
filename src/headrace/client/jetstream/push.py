"""What the server pushes: the messages of a push consumer, for those who have one.

A subscription like any other, but for what a consumer says between its messages: heartbeats, and requests
for flow control, which are answered when everything before them was taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final, cast

from ...api import names
from ...api.acks import parse_ack_subject
from ...errors import HeadraceError, HeartbeatMissedError
from ...handling.callbacks import check_plain, tell
from ...wire.encode import pub
from ...wire.frames import Frame
from ...wire.headers import header_value, status_of
from ..subscription import Subscription
from .message import JetStreamMessage

if TYPE_CHECKING:
    from ...api.consumers import ConsumerConfig
    from ..net.session import Session


_LAST_CONSUMER: Final = names.LAST_CONSUMER.encode()
_STALLED: Final = names.CONSUMER_STALLED.encode()


class PushSubscription(Subscription):
    """Messages of a push consumer, in order, to be acknowledged as its configuration asks. Made by
    ``Consumer.listen``.

    What it tells of besides goes to ``on_error``, or else becomes an event of the connection: silence
    (HeartbeatMissedError) where the consumer has heartbeats, and messages that went missing on the way,
    which come again only where they have to be acknowledged.

    Attributes:
        missed: messages that went missing, as far as it is known.
    """

    _message_type = JetStreamMessage

    def __init__(
        self,
        session: Session,
        consumer: str,
        config: ConsumerConfig,
        *,
        on_error: Callable[[Exception], object] | None,
        pending_messages: int,
        pending_bytes: int,
    ) -> None:
        self._on_error = check_plain("on_error", on_error)
        self._consumer = consumer
        self._is_acked = config.ack_policy in ("explicit", "all")
        self._is_shared = bool(config.deliver_group)  # then the numbers of our messages have gaps
        self._last_seq = 0  # of the consumer's
        self._flow: deque[tuple[int, bytes]] = deque()  # after how many to say so, and to whom
        self.missed = 0
        super().__init__(
            session,
            config.deliver_subject,
            config.deliver_group,
            pending_messages=pending_messages,
            pending_bytes=pending_bytes,
        )
        session.observers[self] = None
        self._allowed = 2 * config.idle_heartbeat
        self._last_heard = session.loop.time()
        self._monitor = (
            session.loop.call_later(self._allowed, self._check) if config.idle_heartbeat else None
        )

    def __repr__(self) -> str:
        return f"<PushSubscription to {self.subject!r} of consumer {self._consumer}>"

    # Taking messages

    def __aiter__(self) -> AsyncIterator[JetStreamMessage]:
        return self

    async def __anext__(self) -> JetStreamMessage:
        message = await super().__anext__()
        if self._flow:
            self._noted_taken()
        return cast(JetStreamMessage, message)

    async def next(self, timeout: float | None = None) -> JetStreamMessage:
        """The next message. Raises as ``Subscription.next``."""
        return cast(JetStreamMessage, await super().next(timeout))

    async def next_batch(self, max_messages: int = 1000) -> list[JetStreamMessage]:  # type: ignore[override]
        """What is there, at least one message, at most ``max_messages``; empty when it is over."""
        messages = await super().next_batch(max_messages)
        if self._flow:
            self._noted_taken()
        return cast(list[JetStreamMessage], messages)

    # What comes, and what comes between messages

    def _receive(self, frames: list[Frame]) -> None:
        self._sort(frames, super()._receive)

    def _call(self, frames: list[Frame]) -> None:
        self._sort(frames, super()._call)

    def _sort(self, frames: list[Frame], receive: Callable[[list[Frame]], None]) -> None:
        self._last_heard = self._session.loop.time()
        run: list[Frame] = []
        for frame in frames:
            if not frame[4] or status_of(frame[4]) is None:
                run.append(frame)
                continue
            if run:
                self._note(run)
                receive(run)
                run = []
            self._handle_status(frame)
        if run:
            self._note(run)
            receive(run)
        self._noted_taken()

    def _note(self, run: list[Frame]) -> None:
        """Count what is missing before and between these messages."""
        if self._is_shared:
            return
        try:
            first = parse_ack_subject(run[0][3].decode()).consumer_seq
            last = parse_ack_subject(run[-1][3].decode()).consumer_seq
        except ValueError:
            return  # somebody else's, published to the deliver subject
        if self._last_seq and first > self._last_seq:
            self._note_missing(last - self._last_seq - len(run))
        self._last_seq = last

    def _note_missing(self, count: int) -> None:
        if count > 0:
            self.missed += count
            self._tell(
                HeadraceError(f"{count} messages of consumer {self._consumer} did not arrive")
            )

    def _handle_status(self, frame: Frame) -> None:
        headers: bytes = frame[4]
        asks = frame[3] or header_value(headers, _STALLED)
        if asks:
            self._flow.append((self._route.received, asks))
        last = header_value(headers, _LAST_CONSUMER)
        if last and last.isdigit() and self._last_seq and not self._is_shared:
            self._note_missing(int(last) - self._last_seq)
            self._last_seq = max(self._last_seq, int(last))

    def _noted_taken(self) -> None:
        """Answer for the flow control what was taken by now."""
        taken = self._route.received - len(self._frames)
        while self._flow and self._flow[0][0] <= taken:
            self._session.send_control(pub(self._flow.popleft()[1], b"", b"", b""))

    # Ending

    async def unsubscribe(self, max_messages: int = 0) -> None:
        """End it: now, or once ``max_messages`` have been received since it began. What was not taken goes
        back, to be delivered again to whoever listens."""
        if max_messages > self._route.received:
            await super().unsubscribe(max_messages)
        else:
            self._give_back()

    def _stop_calling(self) -> None:
        """The connection is about to be closed, after which nothing could be acknowledged."""
        self._give_back()

    def _give_back(self) -> None:
        frames = [*(message._frame for message in self._with_thread), *self._frames]
        self._frames.clear()
        self._with_thread.clear()
        self._bytes = 0
        self._note_emptied()
        if not self._over:
            self._session.refuse_rest(self._route, frames if self._is_acked else [])
            self.end()
        elif self._is_acked:
            self._session.refuse(frames)

    # Silence

    def _check(self) -> None:
        session = self._session
        now = session.loop.time()
        silent = now - self._last_heard
        if session.link is None:
            self._last_heard = now
        elif silent >= self._allowed:
            self._last_heard = now
            self._session.doubt.begin()
            self._tell(
                HeartbeatMissedError(
                    f"no message and no heartbeat from consumer {self._consumer} for {silent:.1f} s: "
                    "it may be gone, or push to somebody else"
                )
            )
        wait = self._allowed - (now - self._last_heard)
        self._monitor = session.loop.call_later(wait, self._check)

    def _tell(self, error: Exception) -> None:
        tell(self._on_error, self._session.report, error)

    # The connection

    def end(self) -> None:
        """End: no more comes; what waits can still be taken."""
        super().end()
        self._session.observers.pop(self, None)
        if self._monitor is not None:
            self._monitor.cancel()

    def connection_lost(self) -> None:
        """What the consumer asked for before, it will ask for anew."""
        self._flow.clear()

    def connection_restored(self) -> None:
        """After a reconnect: the server has until the next heartbeat to be heard."""
        self._last_heard = self._session.loop.time()

    def connection_closed(self, reason: Exception) -> None:
        """The subscription is ended as every one is."""
