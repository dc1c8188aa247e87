"""A client's subscription to one pattern, the quickest way to its output, and other targets of an inbox."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from ....limits import OUTBOUND_BYTES_MAX
from ....message import StoredRow
from ....subjects import SubjectFilter
from ..auth.permissions import ExpectedAnswers
from ..deliveries import Deliveries
from ..ports import Sink, Target
from .output import COPY_BYTES_MAX, Output, Reader, head_of, tail_of


class _OneByOne(ABC):
    """Sends many messages as so many single ones."""

    __slots__ = ()

    @abstractmethod
    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """See ``Target.send``."""

    def send_stored(self, deliveries: Deliveries, prefix: bytes) -> None:
        self.send_many(deliveries.outgoing(prefix))

    def send_many(self, messages: Iterable[tuple[bytes, bytes, bytes, bytes]]) -> None:
        for message in messages:
            self.send(*message)


class SinkTarget(_OneByOne):
    """A sink at the end of an inbox."""

    __slots__ = ("_inbox", "_sink")
    blocked = False
    room = OUTBOUND_BYTES_MAX
    steady = False  # what it does with a message may end whatever is sent here

    def __init__(self, inbox: bytes, sink: Sink) -> None:
        self._inbox = inbox
        self._sink = sink

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        # A sink knows its messages by their address; `subject` is for the eyes of clients.
        self._sink(self._inbox, reply, headers, payload, None)


class FanOut(_OneByOne):
    """Several receivers of one inbox."""

    __slots__ = ("_receivers",)

    def __init__(self, receivers: list[Target]) -> None:
        self._receivers = receivers

    @property
    def blocked(self) -> bool:
        return any(receiver.blocked for receiver in self._receivers)

    @property
    def room(self) -> int:
        return min(receiver.room for receiver in self._receivers)

    @property
    def steady(self) -> bool:
        return all(receiver.steady for receiver in self._receivers)

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        for receiver in self._receivers:
            receiver.send(subject, reply, headers, payload)


class Subscription:
    """Made by a session, kept by the router. It is the ``Target`` of its inbox.

    ``sid`` stands between spaces, as it is written; ``name`` is the bare one. ``messages_max`` of -1: no end.
    """

    __slots__ = (
        "_on_exhausted",
        "client_id",
        "closed",
        "delivered",
        "messages_max",
        "name",
        "output",
        "pattern",
        "queue",
        "sid",
    )

    def __init__(
        self,
        client_id: int,
        output: Output[Reader],
        pattern: bytes,
        queue: bytes,
        sid: bytes,
        on_exhausted: Callable[[Subscription], None],
    ) -> None:
        self.client_id = client_id
        self.output = output
        self.pattern = pattern
        self.queue = queue
        self.name = sid
        self.sid = b" " + sid + b" "
        self.delivered = 0
        self.messages_max = -1
        self.closed = False
        self._on_exhausted = on_exhausted

    @property
    def send_payloads(self) -> Callable[[Sequence[tuple[bytes, bytes]]], None] | None:
        """Delivers ``(subject, payload)`` messages in a single call; None if it has to be one by one."""
        return None if self.messages_max >= 0 else self._send_payloads

    def _send_payloads(self, messages: Sequence[tuple[bytes, bytes]]) -> None:
        if self.closed:
            return
        sizes, sid = [len(body) for _, body in messages], self.sid.replace(b"%", b"%%")
        # There are few sizes, as of numbers.
        frames = {size: b"MSG %%b%b%d\r\n%%b\r\n" % (sid, size) for size in set(sizes)}
        self.output.write_frames(
            [frames[size] % message for size, message in zip(sizes, messages, strict=True)]
        )
        self.delivered += len(messages)
        self.output.payload_bytes += sum(sizes)

    @property
    def blocked(self) -> bool:
        return self.output.blocked

    @property
    def room(self) -> int:
        return self.output.room - self.output.size

    @property
    def steady(self) -> bool:
        return self.messages_max < 0

    def admits(self, subject: bytes) -> bool:
        """Whether its client may see messages of ``subject``."""
        return True

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """Deliver one message; headers are left out for a client that cannot read them."""
        if self.closed:
            return  # ended within the batch it was resolved for
        output = self.output
        if headers and not output.has_headers:
            headers = b""
        tail, large = tail_of(reply, headers, payload)
        output.write_message(head_of(subject, headers), self.sid, tail, large)
        output.payload_bytes += len(headers) + len(payload)
        self.delivered = delivered = self.delivered + 1
        if delivered == self.messages_max:
            self._on_exhausted(self)

    def tell(self, subject: bytes, status: bytes) -> None:
        """Send a status of the broker's own, which is no delivery: it is not counted anywhere."""
        counted = self.delivered, self.messages_max, self.output.payload_bytes
        self.messages_max = -1
        self.send(subject, b"", status, b"")
        self.delivered, self.messages_max, self.output.payload_bytes = counted

    def send_stored(self, deliveries: Deliveries, prefix: bytes) -> None:
        """``send`` for stored messages as they are; see ``Target.send_stored``."""
        output = self.output
        if self.messages_max >= 0 or self.closed or deliveries.largest_bytes > COPY_BYTES_MAX:
            self.send_many(deliveries.outgoing(prefix))
            return
        output.write_frames(deliveries.frames(self.sid, prefix, output.has_headers))
        output.payload_bytes += deliveries.content_bytes
        self.delivered += len(deliveries.rows)

    def send_many(self, messages: Iterable[tuple[bytes, bytes, bytes, bytes]]) -> None:
        """``send`` for several messages: subject, reply, headers and payload of each."""
        if isinstance(messages, list) and messages and self._sent_together(messages):
            return
        send = self.send
        for subject, reply, headers, payload in messages:
            send(subject, reply, headers, payload)

    def _sent_together(self, messages: list[tuple[bytes, bytes, bytes, bytes]]) -> bool:
        """Send messages with headers and without replies in one go; False if these are other ones."""
        output = self.output
        if self.closed or self.messages_max >= 0 or not output.has_headers:
            return False
        usual = [not reply and headers for _, reply, headers, _ in messages]
        if not all(usual) or max([len(each[3]) for each in messages]) > COPY_BYTES_MAX:
            return False
        sid = self.sid
        frames = [
            b"HMSG %b%b%d %d\r\n%b%b\r\n"
            % (subject, sid, len(block), len(block) + len(payload), block, payload)
            for subject, _, block, payload in messages
        ]
        self.delivered += len(frames)
        output.payload_bytes += sum([len(each[2]) + len(each[3]) for each in messages])
        output.write_frames(frames)
        return True

    def exhausted(self) -> None:
        """The last message it asked for has been delivered."""
        self._on_exhausted(self)


class GuardedSubscription(Subscription):
    """Of a client whose permissions are decided message by message.

    ``deny`` keeps subjects out of a wildcard; ``answers`` is told of every request. The router
    delivers to it by ``admits`` and ``send``, never by writing into its output.
    """

    __slots__ = ("_answers", "_checked", "_deny")

    def guard(self, deny: SubjectFilter | None, answers: ExpectedAnswers | None) -> Self:
        """Set what it looks at; before it is known to the router."""
        self._deny = deny
        self._answers = answers
        self._checked = deny is not None or answers is not None
        return self

    @property
    def send_payloads(self) -> Callable[[Sequence[tuple[bytes, bytes]]], None] | None:
        return None

    def _sent_together(self, messages: list[tuple[bytes, bytes, bytes, bytes]]) -> bool:
        return False

    def admits(self, subject: bytes) -> bool:
        return self._deny is None or not self._deny.matches(subject)

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        if self.closed or not self.admits(subject):
            return
        if reply and self._answers is not None:
            self._answers.expect(reply)
        super().send(subject, reply, headers, payload)

    def send_stored(self, deliveries: Deliveries, prefix: bytes) -> None:
        self.send_many(deliveries.outgoing(prefix))


def send_each(
    targets: Sequence[Target],
    rows: Sequence[StoredRow],
    reply: bytes,
    consumer_seq: int,
    pending: int,
) -> None:
    """``send`` for stored messages as they are, each to a receiver of its own; see ``Target.send_stored``."""
    frame_of = b"MSG %%b%%b%b %%d\r\n%%b\r\n" % reply
    for at, (target, row) in enumerate(zip(targets, rows, strict=True)):
        seq, subject, headers, payload, time_ns = row
        if (
            target.__class__ is not Subscription
            or headers
            or len(payload) > COPY_BYTES_MAX
            or target.messages_max >= 0
            or target.closed
        ):
            answer = reply % (seq, consumer_seq + at, time_ns, pending - at)
            target.send(subject, answer, headers, payload)
            continue
        size = len(payload)
        frame = frame_of % (
            subject, target.sid, seq, consumer_seq + at, time_ns, pending - at, size, payload,
        )  # fmt: skip
        output = target.output  # and Output.write_message, written out
        parts = output.parts
        if not parts:
            output.touched.append(output)
        parts.append(frame)
        output.payload_bytes += size
        target.delivered += 1
        output.size = waiting = output.size + len(frame)
        if waiting > output.room:
            output.session.overflow()
