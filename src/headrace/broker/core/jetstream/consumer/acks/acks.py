"""Acknowledgements of every kind, and deliveries that are over for other reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ......api.acks import ACK, IN_PROGRESS, NAK, NEXT, TERM
from ......errors import StoreReadError
from ..delivery_state import Entry, Run
from .ack_body import nak_delay_ns
from .sampling import Sampling, percentage

if TYPE_CHECKING:
    from ..consumer import Consumer

__all__ = ["Acks"]

_DELETED: Final = "Unacknowledged message was deleted"
_PLAIN: Final = frozenset({b"", ACK, b"+OK"})


class Acks:
    """What becomes of one consumer's deliveries."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._clock = consumer.context.clock
        self._acks_all = False
        self._settles = False
        self._settling: list[int] = []
        self._sampling: Sampling | None = None
        self.stalled = False
        """Whether delivery waits for an ack to make room."""
        self.last_ns = 0
        """The wall-clock time of the last ack."""
        self.configure()

    def configure(self) -> None:
        """Take what the configurations of consumer and stream say."""
        self._acks_all = self._consumer.config.ack_policy in ("all", "flow_control")
        self._settles = self._consumer.stream.config.retention != "limits"
        percent = percentage(self._consumer.config.sample_freq)
        sampled = percent and self._consumer.config.ack_policy == "explicit"
        self._sampling = Sampling(self._consumer, percent) if sampled else None

    def take(self, stream_seq: int, consumer_seq: int, body: bytes, reply: bytes) -> None:
        """Take one acknowledgement.

        What was never delivered, or lies behind a reset, gets no answer, as from the public server.
        """
        state = self._consumer.state
        if not 0 <= stream_seq < state.next_seq:
            return
        if body in _PLAIN:
            if self._sampling is not None:
                self._sampling.acked(stream_seq, consumer_seq)
            self._done(stream_seq, consumer_seq)
        elif body.startswith(NAK):
            self._refuse(stream_seq, consumer_seq, body)
        elif body.startswith(IN_PROGRESS):
            if state.in_progress(stream_seq, self._clock.monotonic_ns()):
                self._consumer.touch()
        elif body.startswith(TERM):
            self._terminate(stream_seq, consumer_seq, body[len(TERM) :].strip())
        elif body.startswith(NEXT):
            if self._sampling is not None:
                self._sampling.acked(stream_seq, consumer_seq)
            self._done(stream_seq, consumer_seq)
            if reply:
                self._consumer.pulls.take(reply, b"", body[len(NEXT) :])
            return
        if reply:
            self._consumer.context.gate.reply(reply, b"")

    def take_position(self, consumer_seq: int, stream_seq: int) -> None:
        """Everything delivered up to here has arrived, says an answer to flow control."""
        state = self._consumer.state
        stream_seq = min(stream_seq, state.delivered_stream)
        if consumer_seq > state.floor_consumer and stream_seq > state.floor_stream:
            self._done(stream_seq, consumer_seq)

    def takes_many(self, body: bytes) -> bool:
        """Whether ``take_many`` is for acknowledgements with this body."""
        return body in _PLAIN and not self._acks_all and self._sampling is None

    def take_many(self, stream_seqs: Sequence[int]) -> None:
        """Take acknowledgements of single messages that ask for no answer."""
        state = self._consumer.state
        finished = state.acknowledge_many(stream_seqs)
        if finished:
            self._finished(finished)
        elif any([0 <= sequence < state.next_seq for sequence in stream_seqs]):  # noqa: C419
            self.last_ns = self._clock.now_ns()  # of something done before, but acks they are

    def _done(self, stream_seq: int, consumer_seq: int) -> None:
        state = self._consumer.state
        if self._acks_all:
            before = state.floor_stream
            finished = state.acknowledge_all(stream_seq, consumer_seq)
            if state.floor_stream != before:  # even if all before it was gone already
                self._consumer.touch()
        else:
            finished = [stream_seq] if state.acknowledge(stream_seq) else []
        if finished:
            self._finished(finished)
        else:
            self.last_ns = self._clock.now_ns()  # of something done before, but an ack it is

    def _finished(self, stream_seqs: list[int]) -> None:
        """The consumer is done with these."""
        if self._settles:
            self._settling += stream_seqs
            self._consumer.context.settling[self._consumer] = None
        self.last_ns = self._clock.now_ns()
        self._freed()

    def delivered(self, runs: Sequence[Run]) -> None:
        """Messages went out to a consumer that takes no acks: with that it is done with them."""
        if self._settles and runs:
            for run in runs:
                self._settling += run.stream_seqs
            self._consumer.context.settling[self._consumer] = None

    def _terminate(self, stream_seq: int, consumer_seq: int, reason: bytes) -> None:
        consumer = self._consumer
        if stream_seq in consumer.state.pending:
            deliveries = consumer.state.count_of(stream_seq)
            text = reason.decode(errors="replace")
            tell = consumer.context.advisories.terminated
            tell(consumer, stream_seq, consumer_seq, deliveries, text)
        self._done(stream_seq, consumer_seq)

    def _refuse(self, stream_seq: int, consumer_seq: int, body: bytes) -> None:
        consumer = self._consumer
        now_ns = self._clock.monotonic_ns()
        deliveries = consumer.state.count_of(stream_seq)
        if consumer.state.refuse(stream_seq, consumer_seq, now_ns, nak_delay_ns(body)):
            consumer.context.advisories.refused(consumer, stream_seq, consumer_seq, deliveries)
            consumer.touch()
            self.give_up_exhausted()
            consumer.wake()
            consumer.alarm.arm()

    def _freed(self) -> None:
        """Pending deliveries became fewer."""
        consumer = self._consumer
        consumer.touch()
        consumer.alarm.acked_lately = True
        if self.stalled:
            self.stalled = False
            consumer.wake()

    @property
    def unsettled(self) -> bool:
        """Whether the stream's retention has not been told everything."""
        return bool(self._settling)

    def settle(self) -> None:
        """Tell the stream's retention what this consumer is done with. Raises StoreReadError."""
        finished, self._settling = self._settling, []
        try:
            self._consumer.stream.retention.acknowledged(self._consumer, finished)
        except StoreReadError:
            self._settling = finished + self._settling
            raise

    def give_up_exhausted(self) -> None:
        """Messages delivered as often as allowed are not pending any more."""
        consumer = self._consumer
        if consumer.state.exhausted:
            for stream_seq, deliveries in consumer.state.exhausted:
                consumer.context.advisories.exhausted(consumer, stream_seq, deliveries)
            consumer.state.exhausted.clear()
            self._freed()

    def forget(self, stream_seqs: Sequence[int]) -> None:
        """Messages left the stream: deliveries of them are over."""
        consumer = self._consumer
        pending = consumer.state.pending
        for sequence in stream_seqs:
            if sequence in pending:
                position = (sequence, pending[sequence][0], consumer.state.count_of(sequence))
                consumer.context.advisories.terminated(consumer, *position, _DELETED)
        self._forget(stream_seqs)

    def forget_below(self, stream_seq: int) -> None:
        """Everything before ``stream_seq`` left the stream."""
        self._forget(self._consumer.state.pending_below(stream_seq))

    def forget_gone(self, stream_seqs: Sequence[int]) -> None:
        """These were purged from the stream."""
        pending = self._consumer.state.pending
        self._forget([sequence for sequence in stream_seqs if sequence in pending])

    def remember(self, entries: Sequence[Entry]) -> None:
        """A flush failed, and messages that had left the stream are back: they are pending again."""
        consumer = self._consumer
        consumer.state.remember([entry for entry in entries if self._is_there(entry[0])])
        if consumer.state.pending:
            consumer.stream.holding[consumer] = None

    def _is_there(self, stream_seq: int) -> bool:
        """Whether a message is in the stream; one that cannot be read has not been removed."""
        try:
            return self._consumer.stream.store.holds(stream_seq)
        except StoreReadError:
            return True

    def _forget(self, stream_seqs: Sequence[int]) -> None:
        consumer = self._consumer
        entries = consumer.state.entries(stream_seqs)
        if entries:
            consumer.context.forgotten.setdefault(consumer, []).extend(entries)
        if consumer.state.forget(stream_seqs):
            self.last_ns = self._clock.now_ns()
            self._freed()
        if not self._consumer.state.pending:
            self._consumer.stream.holding.pop(self._consumer, None)
