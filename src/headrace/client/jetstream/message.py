"""A message delivered by a consumer, and what can be answered to it."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final, TypeVar, overload

from ...api.acks import ACK, IN_PROGRESS, NAK, TERM, AckTokens, parse_ack_subject
from ...errors import AckUnknownError, RequestTimeoutError
from ...handling.callbacks import Queued
from ...notebook import table
from ...wire.encode import pub
from ...wire.frames import Frame
from ...wire.inprocess import Chunk
from ..message import Message, MessageView, preview

if TYPE_CHECKING:
    from ..net.session import Session
    from .pull import Status


_QUEUED: Final = Queued()
_SHOWN_MAX: Final = 20
"""Messages of a batch that a notebook shows."""

_SHORT_ACK: Final = b""  # means the same as +ACK, and costs a nats-server noticeably less


class DeliveredMessage(MessageView, eq=False):
    """A stream's message. It is pending until one of ``ack``, ``nak``, ``term`` is called in time.

    ``ack()``, ``nak()``, ``term()`` and ``in_progress()`` queue the answer at once and may be awaited or
    not; only the first final answer is sent. They raise ConnectionClosedError and, while disconnected
    for long, BufferFullError. What they ask for is confirmed by nobody; ``ack_sync`` waits for that.
    """

    _answered: bool | str = False  # True of an acknowledgement, else its name
    _metadata: AckTokens | None = None
    _pause: Callable[[int], float] | None = None
    """Seconds until it is delivered again, after so many deliveries, where whoever consumes has a policy."""
    _asked: bool = False
    """Whether an acknowledgement was sent that is to be confirmed."""

    @property
    def is_of_former_server(self) -> bool:
        """Whether the server that delivered it was restarted since, or left for another one. There its reply
        subject may mean another delivery of the same message."""
        return int(self._frame[2]) < self._session.routes.first

    def _is_decided_elsewhere(self) -> bool:
        """Whether another server than the one we talk to may be the one that confirms, as in a cluster: that
        one may be restarted without our noticing."""
        return bool(self._session.info.cluster)

    @property
    def metadata(self) -> AckTokens:
        """Stream, consumer, how often delivered, sequences, time and what was pending."""
        if self._metadata is None:
            self._metadata = parse_ack_subject(self._frame[3].decode())
        return self._metadata

    def _about(self) -> str:
        try:
            found = self.metadata
        except ValueError:
            return super()._about()
        times = f", delivered {found.delivered} times" if found.delivered > 1 else ""
        return f" sequence {found.stream_seq} of {found.stream!r}{times}"

    @property
    def is_answered(self) -> bool:
        """Whether a final answer was queued."""
        return bool(self._answered)

    def ack(self) -> Queued:
        """Processed: it is not delivered again."""
        if not self._answered:
            self._send(b"PUB %b 0\r\n\r\n" % self._frame[3])
            self._answered = True
        return _QUEUED

    def nak(self, delay: float | None = None) -> Queued:
        """Not processed: it is delivered again, after ``delay`` seconds. None: after the pause of
        ``on_failure``, in a callback of a consume that has it; else at once, as 0."""
        if delay is None:
            delay = 0.0 if self._pause is None else self._pause(self.metadata.delivered)
        if delay > 0:
            return self._answer(b'%b {"delay": %d}' % (NAK, round(delay * 1e9)), "nak")
        return self._answer(NAK, "nak")

    def term(self, reason: str = "") -> Queued:
        """Never to be delivered again; ``reason`` appears in the server's advisory."""
        return self._answer(b"%b %b" % (TERM, reason.encode()) if reason else TERM, "term")

    def in_progress(self) -> Queued:
        """Still being processed: the time allowed begins anew."""
        if not self._answered:
            self._send(pub(self._frame[3], b"", b"", IN_PROGRESS))
        return _QUEUED

    async def _confirm(self, timeout: float | None, *, must_be_current: bool) -> None:
        """``ack_sync``; ``must_be_current``: ask nobody but who delivered it."""
        session = self._session
        seconds = session.options.request_timeout if timeout is None else timeout
        if must_be_current:
            if session.link is None:
                await self._until_linked(seconds)
            if self.is_of_former_server:
                raise AckUnknownError(
                    "the server was restarted, or left for another one, since the message was delivered",
                    asked=self._asked,
                )
        self._asked = True
        await session.requests.ask(self.reply, b"", ACK, seconds)
        self._answered = True
        if self.is_of_former_server:
            for drop in list(session.on_confirmed.values()):
                drop(self._frame)

    async def _until_linked(self, seconds: float) -> None:
        """Raises RequestTimeoutError, DisconnectedError if the link to come is lost at once, too."""
        try:
            async with asyncio.timeout(seconds):
                await self._session.flush()
        except TimeoutError:
            raise RequestTimeoutError(f"no connection within {seconds} s") from None

    def _answer(self, body: bytes, name: str) -> Queued:
        if not self._answered:
            self._send(pub(self._frame[3], b"", b"", body))
            self._answered = name
        return _QUEUED

    def _send(self, data: bytes) -> None:
        self._session.send_answers(data)


def place_of(message: DeliveredMessage) -> str:
    """Which message it is, for a log."""
    try:
        metadata = message.metadata
    except ValueError:  # delivered by something else
        return f"subject {message.subject}"
    return (
        f"subject {message.subject}, sequence {metadata.stream_seq}, delivery {metadata.delivered}"
    )


class JetStreamMessage(DeliveredMessage, Message, eq=False):
    """A message delivered by a consumer."""

    def ack(self) -> Queued:
        """Processed: it is not delivered again."""
        if not self._answered:  # as above, without a call between: it runs per message
            session = self._session
            session.send(b"PUB %b 0\r\n\r\n" % self._frame[3])
            session.counts.answers += 1
            self._answered = True
        return _QUEUED

    async def ack_sync(self, timeout: float | None = None) -> None:
        """Acknowledge, and return once the server has it on disk.

        Where this was called before and had no answer, the server is asked again only if it is the one
        that delivered the message, and was not restarted since.

        Raises:
            RequestTimeoutError: no confirmation within ``timeout`` seconds (None: ``request_timeout``).
            DisconnectedError: the link was lost before the confirmation came: it may be acknowledged or not.
            AckUnknownError: the same, and it cannot be asked again.
            NoRespondersError: the consumer is gone, or takes no acks.
        """
        await self._confirm(timeout, must_be_current=self._asked)


M = TypeVar("M", bound=DeliveredMessage)


class MessageBatch(Sequence[M]):
    """What a fetch brought, in order; possibly nothing.

    Attributes:
        status: the status that ended the pull, or None when it ended by being full.
        error: what went wrong after these messages had been received, or None. (Without messages a
            fetch raises it instead.)
    """

    __slots__ = ("_answered", "_frames", "_messages", "_session", "error", "status")

    def __init__(
        self,
        session: Session,
        frames: list[Frame],
        status: Status | None = None,
        error: Exception | None = None,
    ) -> None:
        self._session = session
        self._frames = frames
        self._messages: list[M] | None = None
        self._answered = False
        self.status = status
        self.error = error

    @abstractmethod
    def _make(self, frames: list[Frame], answered: bool) -> list[M]:
        """The objects for these frames."""

    def _send(self, data: Chunk, count: int) -> None:
        self._session.send_answers(data, count)

    @property
    def messages(self) -> list[M]:
        """The messages as a list; the objects are made when first asked for."""
        if self._messages is None:
            self._messages = self._make(self._frames, self._answered)
        return self._messages

    @property
    def payloads(self) -> list[bytes]:
        """The payloads alone, without making message objects."""
        return [frame[5] for frame in self._frames]

    @property
    def last_sequence(self) -> int:
        """The stream sequence of the last message, or 0."""
        return self.messages[-1].metadata.stream_seq if self._frames else 0

    def ack(self) -> Queued:
        """Acknowledge every message that was not answered yet, in one write."""
        return self._answer_all(_SHORT_ACK)

    def nak(self) -> Queued:
        """Send back every message that was not answered yet, in one write."""
        return self._answer_all(NAK)

    def _answer_all(self, body: bytes) -> Queued:
        answers = self._session.outbox.answers
        if self._messages is not None:
            waiting = [message for message in self._messages if not message._answered]
            replies = [message._frame[3] for message in waiting]
            if replies:
                self._send(answers(replies, body), len(replies))
            for message in waiting:
                message._answered = True
        elif self._frames and not self._answered:
            replies = [frame[3] for frame in self._frames]
            self._send(answers(replies, body), len(replies))
        self._answered = True
        return _QUEUED

    @overload
    def __getitem__(self, index: int) -> M: ...

    @overload
    def __getitem__(self, index: slice) -> list[M]: ...

    def __getitem__(self, index: int | slice) -> M | list[M]:
        return self.messages[index]

    def __iter__(self) -> Iterator[M]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self._frames)

    def __repr__(self) -> str:
        return f"<Batch of {len(self._frames)} messages status={self.status} error={self.error!r}>"

    def _repr_html_(self) -> str:
        """What a notebook shows of it: its first messages."""
        shown = self.messages[:_SHOWN_MAX]
        rows = ((each.metadata.stream_seq, each.subject, preview(each.payload)) for each in shown)
        return table(("sequence", "subject", "payload"), rows, f"{len(self)} messages")


class Batch(MessageBatch[JetStreamMessage]):
    """The messages of one fetch; ``ack()`` acknowledges them in one write."""

    __slots__ = ()

    @classmethod
    def of(cls, session: Session, messages: list[JetStreamMessage]) -> Batch:
        """A batch of messages that exist already."""
        batch = cls(session, [message._frame for message in messages])
        batch._messages = messages
        return batch

    def _make(self, frames: list[Frame], answered: bool) -> list[JetStreamMessage]:
        # Called by ``map``, because that is as good as free.
        messages = list(map(JetStreamMessage, repeat(self._session), frames))
        if answered:
            for message in messages:
                message._answered = True
        return messages
