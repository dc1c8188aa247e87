"""What a source or mirror gets through a durable consumer of its origin, which it was told to use.

The consumer has the ack policy ``flow_control`` and pushes to a subject, as to any client; it is begun
anew behind what it was told is done, and what came twice is passed over. Its requests for flow control are
answered when everything before them is on the target's disk. Only what the server itself sends is taken:
a client that publishes to the subject reaches nobody here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from .....api.acks import parse_ack_subject
from .....api.errors import Errors, ErrorSpec
from .....api.streams import StreamConsumerSource
from .....message import StoredMessage
from ...net.subscription import SinkTarget
from ...ports import Origin, Target
from ..config.options import Refused
from ..headers import header_value, position_block, reached

if TYPE_CHECKING:
    from ..ports import Reader
    from .copy import Copy

_CONTROL: Final = b"NATS/1.0 100 "
_STALLED: Final = b"Nats-Consumer-Stalled"


class _Owed(NamedTuple):
    """An answer to flow control, for when everything up to a message is durable."""

    reply: bytes
    consumer_seq: int
    stream_seq: int


class Feed:
    """The listener on a consumer's deliver subject, on behalf of one copy."""

    def __init__(
        self, copy: Copy, source: StreamConsumerSource, other_policy: ErrorSpec, failed: ErrorSpec
    ) -> None:
        """``other_policy`` and ``failed`` are the refusals of this kind of copy."""
        self._copy = copy
        self._source = source
        self.name = source.name
        self._subject = source.deliver_subject.encode()
        self._bus = copy.context.bus
        self._other_policy = other_policy
        self._failed = failed
        self._last = 0  # the consumer sequence of the last delivery
        self._owed: _Owed | None = None
        self.listening = False

    @property
    def consumer(self) -> Reader | None:
        origin = self._copy.origin
        return None if origin is None else origin.consumers.get(self.name)

    # -- beginning and ending

    def start(self) -> None:
        """Begin the consumer anew behind what is done, and listen. Raises Refused."""
        consumer, home, origin = self.consumer, self._copy.home, self._copy.origin
        if consumer is None or home is None or origin is None:
            raise Refused(Errors.CONSUMER_NOT_FOUND)
        if consumer.config.ack_policy != "flow_control":
            raise Refused(self._other_policy)
        # What is durable here and was not said yet need not come again.
        consumer.acks.receive_position(
            consumer.state.delivered_consumer, self._copy.durable_position
        )
        home.restart_consumer(origin, self.name, consumer.state.floor_stream + 1)
        self._last, self._owed = 0, None
        self.listening = True
        self._bus.add_sink(self._subject, self)
        if consumer.push is None or not consumer.push.active:
            self.stop()
            text = f"what consumer {self.name} delivers does not arrive on {self._source.deliver_subject}"
            raise Refused(self._failed, err=text)
        home.want_tick()  # of another account, it may have had its turn in this one

    def stop(self) -> None:
        """Listen no more, as if we were not there."""
        if self.listening:
            self.listening = False
            self._owed = None
            self._bus.remove_sink(self._subject, self)

    def _begin_anew(self) -> None:
        self.stop()
        self._copy.go_on()

    # -- listening

    def __call__(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool | None:
        """A message of the server's own; what clients publish is declined."""
        if origin is not None:
            return False
        self.receive(subject, reply, headers, payload)
        return None

    def resolve(self, inbox: bytes) -> Target | None:
        """Where deliveries of stored messages go, which show a subject of their own."""
        return _FeedTarget(inbox, self)

    def receive(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        if not self.listening:
            return  # it ended in the middle of a batch
        if not payload and headers.startswith(_CONTROL):
            self._control(reply, headers)
            return
        try:
            position = parse_ack_subject(reply.decode())
        except ValueError:
            return  # no delivery of a consumer
        if (position.stream, position.consumer) != (self._copy.source.name, self.name):
            return
        if position.consumer_seq != self._last + 1:
            if position.consumer_seq > self._last:
                self._begin_anew()
            return
        self._last = position.consumer_seq
        self._copy.receive(
            StoredMessage(position.stream_seq, subject, headers, payload, position.timestamp_ns)
        )

    def _control(self, reply: bytes, headers: bytes) -> None:
        if reply:
            self._owe(reply)
            return
        said = reached(headers)
        if said is not None and said.consumer_seq and said.consumer_seq != self._last:
            self._begin_anew()
            return
        stalled = header_value(headers, _STALLED)
        if stalled and self._owed is None:
            self._owe(stalled)

    # -- answering

    def _owe(self, reply: bytes) -> None:
        self._owed = _Owed(reply, self._last, self._copy.position)
        self._copy.want_commit()

    @property
    def can_answer(self) -> bool:
        """Whether flow control waits for an answer, and what it asks for is durable."""
        return self._owed is not None and self._owed.stream_seq <= self._copy.durable_position

    def answer(self) -> None:
        """Say how far we are, if that was asked."""
        owed = self._owed
        if owed is None or not self.can_answer:
            return
        self._owed = None
        block = position_block(owed.consumer_seq, owed.stream_seq)
        if not self._bus.publish(owed.reply, b"", block, b""):
            text = f"nobody takes the answer to flow control on {owed.reply.decode()}"
            self._copy.error = self._failed.with_(err=text)
        elif self._copy.home is not None:
            self._copy.home.want_tick()


class _FeedTarget(SinkTarget):
    """The deliver subject, as consumers see it."""

    __slots__ = ("_feed",)

    def __init__(self, inbox: bytes, feed: Feed) -> None:
        super().__init__(inbox, feed)
        self._feed = feed

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        self._feed.receive(subject, reply, headers, payload)
