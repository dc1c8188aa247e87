"""Acknowledgements of every kind, and deliveries that are over for other reasons.

``AckDispatch`` finds the consumer an acknowledgement is for, by the front of its subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from .....api.acks import ACK, IN_PROGRESS, NAK, NEXT, TERM, ack_prefix, parse_ack_subject
from .....errors import StoreReadError
from .....quantities import GO_UNITS, duration_ns
from .....wire.frames import Frame
from ...ports import Origin
from ..config.sizes import DURATION_NS_MAX
from .delivery_state import DeliveryBatch, Entry
from .view import ConsumerView

_DELETED: Final = "Unacknowledged message was deleted"
_PLAIN: Final = frozenset({b"", ACK, b"+OK"})


NextRequest = Callable[[bytes, bytes, bytes], None]
"""Receives the pull request, with its reply subject and headers, that an acknowledgement carries."""
_POSITIONS: Final = 5  # delivered, stream sequence, consumer sequence, time, pending
_NUMBERS: Final = (
    rb"\.[0-9]+\.([0-9]{1,19})\.[0-9]+\.[0-9]+\.[0-9]+ {1,2}(?:0\r\n\r\n|4\r\n\+ACK\r\n)"
)
_TOKENS: Final = 4  # before these numbers


class Acks:
    """What becomes of one consumer's deliveries."""

    def __init__(self, consumer: ConsumerView, next_request: NextRequest) -> None:
        self._consumer = consumer
        self._next_request = next_request
        self._clock = consumer.context.clock
        self._acks_all = False
        self._reports = False
        self._finished: list[int] = []
        """What the stream's retention has not been told of."""
        self._passed: list[int] = []
        """The same, of what was acknowledged though it is not pending."""
        self._sampling: Sampling | None = None
        self.takes_many = False
        """Whether plain acknowledgements may go to ``receive_many``."""
        self.stalled = False
        """Whether delivery waits for an ack to make room."""
        self.last_ns = 0
        """The wall-clock time of the last ack."""
        self.configure()

    def configure(self) -> None:
        """Take what the configurations of consumer and stream say."""
        self._acks_all = self._consumer.config.ack_policy in ("all", "flow_control")
        self._reports = self._consumer.stream.config.retention != "limits"
        percent = percentage(self._consumer.config.sample_freq)
        sampled = percent and self._consumer.config.ack_policy == "explicit"
        self._sampling = Sampling(self._consumer, percent) if sampled else None
        self.takes_many = not self._acks_all and self._sampling is None

    def receive(self, stream_seq: int, consumer_seq: int, body: bytes, reply: bytes) -> None:
        """Act on one acknowledgement.

        One of a message that was never delivered, or that lies behind a reset, gets no answer, as from
        the public server.
        """
        state = self._consumer.state
        if not 0 <= stream_seq < state.next_seq:
            return
        if body in _PLAIN:
            if self._sampling is not None:
                self._sampling.acked(stream_seq, consumer_seq)
            self._acknowledge(stream_seq, consumer_seq)
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
            self._acknowledge(stream_seq, consumer_seq)
            if reply:
                self._next_request(reply, b"", body[len(NEXT) :])
            return
        if reply:
            self._consumer.context.barrier.reply(reply, b"")

    def receive_position(self, consumer_seq: int, stream_seq: int) -> None:
        """An answer to flow control says that everything delivered up to here has arrived."""
        state = self._consumer.state
        stream_seq = min(stream_seq, state.delivered_stream)
        if consumer_seq > state.floor_consumer and stream_seq > state.floor_stream:
            self._acknowledge(stream_seq, consumer_seq)

    def receive_many(self, stream_seqs: Sequence[int]) -> None:
        """Act on plain acknowledgements of single messages that ask for no answer."""
        state = self._consumer.state
        finished = state.acknowledge_many(stream_seqs)
        if finished:
            self._done_with(finished)
        if len(finished) < len(stream_seqs):
            known = [sequence for sequence in stream_seqs if 0 <= sequence < state.next_seq]
            self._acked_without_need({*known} - {*finished})

    def _acknowledge(self, stream_seq: int, consumer_seq: int) -> None:
        state = self._consumer.state
        if self._acks_all:
            before = state.floor_stream
            finished = state.acknowledge_all(stream_seq, consumer_seq)
            if state.floor_stream != before:  # even if all before it was gone already
                self._consumer.touch()
        else:
            finished = [stream_seq] if state.acknowledge(stream_seq) else []
        if finished:
            self._done_with(finished)
        else:
            self._acked_without_need(() if self._acks_all else (stream_seq,))

    def _done_with(self, stream_seqs: list[int]) -> None:
        if self._reports:
            self._finished += stream_seqs
            self._consumer.report_later()
        self.last_ns = self._clock.now_ns()
        self._freed()

    def _acked_without_need(self, stream_seqs: Collection[int]) -> None:
        """Acks all the same, if not the first ones, or for a consumer of this name that is gone: what nobody
        needs leaves the stream."""
        if stream_seqs or self._acks_all:
            self.last_ns = self._clock.now_ns()
        if self._reports and stream_seqs:
            self._passed += stream_seqs
            self._consumer.report_later()

    def delivered(self, batches: Sequence[DeliveryBatch]) -> None:
        """Messages went out of a consumer without acks: it is done with them."""
        if self._reports and batches:
            for batch in batches:
                self._finished += batch.stream_seqs
            self._consumer.report_later()

    def _terminate(self, stream_seq: int, consumer_seq: int, reason: bytes) -> None:
        consumer = self._consumer
        if stream_seq in consumer.state.pending:
            deliveries = consumer.state.count_of(stream_seq)
            text = reason.decode(errors="replace")
            tell = consumer.context.advisories.terminated
            tell(consumer, stream_seq, consumer_seq, deliveries, text)
        self._acknowledge(stream_seq, consumer_seq)

    def _refuse(self, stream_seq: int, consumer_seq: int, body: bytes) -> None:
        consumer = self._consumer
        now_ns = self._clock.monotonic_ns()
        deliveries = consumer.state.count_of(stream_seq)
        if consumer.state.refuse(stream_seq, consumer_seq, now_ns, nak_delay_ns(body)):
            consumer.context.advisories.refused(consumer, stream_seq, consumer_seq, deliveries)
            consumer.touch()
            self.give_up_exhausted()
            consumer.wake()
            consumer.timer.arm()

    def _freed(self) -> None:
        consumer = self._consumer
        consumer.touch()
        consumer.inactivity.acked_lately = True
        if self.stalled:
            self.stalled = False
            consumer.wake()

    @property
    def has_unreported(self) -> bool:
        """Whether the stream's retention has not been told everything."""
        return bool(self._finished or self._passed)

    def report(self) -> None:
        """Tell the stream's retention what this consumer is done with. Raises StoreReadError."""
        retention = self._consumer.stream.retention
        finished, self._finished = self._finished, []
        try:
            retention.acknowledged(self._consumer, finished)
        except StoreReadError:
            self._finished = finished + self._finished
            raise
        passed, self._passed = self._passed, []
        try:
            if passed:
                retention.passed(passed)
        except StoreReadError:
            self._passed = passed + self._passed
            raise

    # -- time

    def next_time_ns(self) -> int | None:
        return self._consumer.state.next_deadline_ns()

    def run_due(self, now_ns: int) -> None:
        """Deliveries have run out of time: they are due again, or given up."""
        if self._consumer.state.expire(now_ns):
            self._consumer.wake()
        self.give_up_exhausted()

    # -- messages that leave

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
        state = self._consumer.state
        self._forget([seq for seq in stream_seqs if seq in state.pending or seq in state.dead])

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
            consumer.forgot(entries)
        if consumer.state.forget(stream_seqs):
            self.last_ns = self._clock.now_ns()
            self._freed()
        if not consumer.state.pending and not consumer.state.dead:
            consumer.stream.holding.pop(consumer, None)


class _Delay(msgspec.Struct):
    delay: int = 0


def nak_delay_ns(body: bytes) -> int:
    """The delay of ``-NAK {"delay": ns}`` or ``-NAK 5s``; 0 for one that cannot be read."""
    text = body[len(NAK) :].strip()
    if not text:
        return 0
    if text.startswith(b"{"):
        try:
            delay_ns = msgspec.json.decode(text, type=_Delay).delay
        except (msgspec.DecodeError, RecursionError):
            return 0
    else:
        delay_ns = duration_ns(text.decode(errors="replace"), GO_UNITS) or 0
    return min(max(delay_ns, 0), DURATION_NS_MAX)


def percentage(text: str) -> int:
    """What a checked ``sample_freq`` says: ``"50"`` and ``"50%"`` are 50, nothing is 0."""
    digits = text.strip().removesuffix("%").strip()
    return min(int(digits), 100) if digits else 0


class Sampling:
    """Tells of some of one consumer's acknowledgements, picked at random."""

    def __init__(self, consumer: ConsumerView, percent: int) -> None:
        self._consumer = consumer
        self._percent = percent

    def acked(self, stream_seq: int, consumer_seq: int) -> None:
        """A delivery is about to be acknowledged."""
        consumer = self._consumer
        state, context = consumer.state, consumer.context
        if stream_seq not in state.pending:
            return
        if self._percent < 100 and context.random.getrandbits(32) % 100 >= self._percent:
            return
        took_ns = context.clock.monotonic_ns() - state.delivered_ns(stream_seq)
        deliveries = state.count_of(stream_seq)
        context.advisories.acked(consumer, stream_seq, consumer_seq, deliveries, took_ns)


class AckDispatch:
    """The sink on ``$JS.ACK.>``. A consumer without acks looks as if it did not exist."""

    def __init__(self) -> None:
        self._acks: dict[bytes, Acks] = {}
        self._plain: dict[bytes, tuple[Acks, re.Pattern[bytes]]] = {}
        """By the front of a line; what finds the stream sequences of their acks."""

    def add(self, stream: str, consumer: str, acks: Acks) -> None:
        key = _key(stream, consumer)
        self._acks[key] = acks
        line = b"PUB " + key
        self._plain[line] = acks, re.compile(b"(?m)^" + re.escape(line) + _NUMBERS)

    def remove(self, stream: str, consumer: str) -> None:
        key = _key(stream, consumer)
        self._acks.pop(key, None)
        self._plain.pop(b"PUB " + key, None)

    def sink(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool | None:
        """Receive one acknowledgement; False when its consumer does not exist."""
        parts = subject.rsplit(b".", _POSITIONS)
        acks = self._acks.get(parts[0])
        try:
            if acks is not None:
                acks.receive(int(parts[2]), int(parts[3]), payload, reply)
                return None
            tokens = parse_ack_subject(subject.decode())
            acks = self._acks.get(_key(tokens.stream, tokens.consumer))
        except ValueError:
            # Numbers that are none are ignored; what is no ack subject at all reaches nobody.
            return None if acks is not None else False
        if acks is None:
            return False
        acks.receive(tokens.stream_seq, tokens.consumer_seq, payload, reply)
        return None

    def many(self, frames: Sequence[Frame], origin: Origin | None) -> Sequence[Frame]:
        """Receive plain acknowledgements for one consumer; leave any others to ``sink``."""
        body = frames[0][4]
        count = len(frames)
        if body not in _PLAIN or [frame[4] for frame in frames].count(body) != count:
            return frames
        if [frame[2] for frame in frames].count(b"") != count:
            return frames
        found = self.read(b"".join([b"PUB %b 0\r\n\r\n" % frame[1] for frame in frames]))
        if found is None:
            return frames
        acks, sequences = found
        acks.receive_many(sequences)
        return ()

    def read(self, block: bytes) -> tuple[Acks, list[int]] | None:
        """Whose plain acknowledgements these are, as clients write them, and of which messages.

        None if they are not all of one consumer, or have to be looked at one by one.
        """
        key = block[: -len(block.split(b".", _TOKENS)[-1]) - 1]
        entry = self._plain.get(key)
        if entry is None or not entry[0].takes_many:
            return None
        # One expression over all of them is quicker than taking each apart. A match is two lines from their
        # begin to their end: there is nothing else if these are all lines, and none is incomplete.
        sequences = entry[1].findall(block)
        if 2 * len(sequences) != block.count(b"\n") or not block.endswith(b"\n"):
            return None
        return entry[0], list(map(int, sequences))


def _key(stream: str, consumer: str) -> bytes:
    return ack_prefix(stream, consumer)[:-1]
