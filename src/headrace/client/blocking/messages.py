"""Messages and batches of the blocking facade: answers are queued from any thread."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TypeVar

from ...wire.frames import Frame
from ...wire.inprocess import Chunk
from ..jetstream.message import Batch as AioBatch
from ..jetstream.message import DeliveredMessage, MessageBatch
from ..jetstream.pull import Status
from ..message import HeadersLike, MessageView, Payload
from ..net.session import Session
from .loop_thread import LoopThread

T = TypeVar("T")


class Message(MessageView, eq=False, kw_only=True):
    """A message received by a subscription or as the answer to a request."""

    _thread: LoopThread

    @classmethod
    def _of(cls, thread: LoopThread, message: MessageView) -> Message:
        return cls(message._session, message._frame, _thread=thread)

    def respond(self, payload: Payload = b"", *, headers: HeadersLike = None) -> None:
        """Send an answer to whoever asked. Raises ConfigurationError if nobody did; waits as
        ``Connection.publish``."""
        session, data = self._session, self._response(payload, headers)
        self._thread.post(lambda: session.publish(data))


class JetStreamMessage(DeliveredMessage, eq=False, kw_only=True):
    """A message delivered by a consumer."""

    _thread: LoopThread

    @classmethod
    def _of(cls, thread: LoopThread, message: MessageView) -> JetStreamMessage:
        return cls(message._session, message._frame, _thread=thread)

    def respond(self, payload: Payload = b"", *, headers: HeadersLike = None) -> None:
        """Send an answer to whoever asked. Raises ConfigurationError if nobody did; waits as
        ``Connection.publish``."""
        session, data = self._session, self._response(payload, headers)
        self._thread.post(lambda: session.publish(data))

    def ack_sync(self, timeout: float | None = None) -> None:
        """Acknowledge, and return once the server has it on disk.

        Where this was called before and had no answer, the server is asked again only if it is the one
        that delivered the message, and was not restarted since.

        Raises:
            RequestTimeoutError: no confirmation within ``timeout`` seconds (None: ``request_timeout``).
            DisconnectedError: the link was lost before the confirmation came: it may be acknowledged or not.
            AckUnknownError: the same, and it cannot be asked again.
            NoRespondersError: the consumer is gone, or takes no acks.
        """
        self._thread.run(self._confirm(timeout, must_be_current=self._asked))

    def _send(self, data: bytes) -> None:
        self._thread.post(partial(self._session.send_answers, data))


def delivered_on(thread: LoopThread, message: MessageView) -> JetStreamMessage:
    """The message, for whoever is not on the loop's thread."""
    return JetStreamMessage._of(thread, message)


class Batch(MessageBatch[JetStreamMessage]):
    """The messages of one fetch; ``ack()`` acknowledges them in one write."""

    __slots__ = ("_thread",)

    def __init__(
        self,
        thread: LoopThread,
        session: Session,
        frames: list[Frame],
        status: Status | None = None,
        error: Exception | None = None,
    ) -> None:
        super().__init__(session, frames, status, error)
        self._thread = thread

    @classmethod
    def _of(cls, thread: LoopThread, batch: AioBatch) -> Batch:
        return cls(thread, batch._session, batch._frames, batch.status, batch.error)

    @classmethod
    def of(cls, thread: LoopThread, messages: list[JetStreamMessage]) -> Batch:
        """A batch of messages that exist already; at least one."""
        batch = cls(thread, messages[0]._session, [message._frame for message in messages])
        batch._messages = messages
        return batch

    def _make(self, frames: list[Frame], answered: bool) -> list[JetStreamMessage]:
        thread, session = self._thread, self._session
        return [
            JetStreamMessage(session, frame, _answered=answered, _thread=thread) for frame in frames
        ]

    def _send(self, data: Chunk, count: int) -> None:
        self._thread.post(partial(self._session.send_answers, data, count))


def take(held: deque[T], count: int) -> Iterator[T]:
    """The first ``count`` of what a thread holds, or less where the loop has taken it back meanwhile."""
    with contextlib.suppress(IndexError):
        for _ in range(count):
            yield held.popleft()
