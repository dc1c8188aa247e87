"""Push consumers: who listens where a consumer delivers to, and what holds deliveries back.

A push consumer delivers while somebody listens on its deliver subject (in its queue group, if it has one).
Flow control and a rate hold it back; idle heartbeats tell the listener that it is still there.

``PushRecipients`` are the listeners on the deliver subject, as a delivery pass knows them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final, Protocol

from .....api import names
from .....api.consumers import ConsumerConfig
from .....limits import (
    FLOW_WINDOW_BYTES_FIRST,
    FLOW_WINDOW_BYTES_MAX,
    INGEST_PENDING_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
)
from .....message import StoredRow
from ...deliveries import Outgoing
from ...ports import Origin, Target, Watch
from ..headers import reached, with_headers
from ..statuses import heartbeat, status
from .acks import Acks
from .delivery_pass import PassEnd, Sender
from .view import ConsumerView

FLOW: Final = b"$JS.FC.>"
_FLOW_TOKENS: Final = 5  # $JS, FC, stream, consumer, request
_NS: Final = 1_000_000_000
_ID_CHARS: Final = 8
_FLOW_REQUEST: Final = status(names.FLOW_CONTROL)
_REST_NS: Final = 20_000_000


class FlowWindow:
    """Flow control: the client is asked to say when it has come so far.

    Half-way through the window a request goes behind the messages; its answer proves that everything
    before it arrived, and doubles the window up to its limit. With the window full nothing is sent.
    """

    __slots__ = ("_asked_at", "_size", "outstanding", "request")

    def __init__(self) -> None:
        self._size = FLOW_WINDOW_BYTES_FIRST
        self._asked_at = 0
        self.outstanding = 0
        """Bytes sent that no answer has covered yet."""
        self.request = b""
        """Where the answer to the open request goes; empty when there is none."""

    @property
    def is_full(self) -> bool:
        return self.outstanding > self._size

    @property
    def should_ask(self) -> bool:
        """Whether it is time to ask, and nobody has."""
        return not self.request and self.outstanding > self._size // 2

    @property
    def slack(self) -> int:
        """So many bytes go out before it is time to ask, or the window is full; at least 1."""
        edge = self._size if self.request else self._size // 2
        return max(edge - self.outstanding, 0) + 1

    def sent(self, size: int) -> None:
        self.outstanding += size

    def ask(self, request: bytes) -> None:
        """A request goes out behind everything sent so far."""
        self.request = request
        self._asked_at = self.outstanding

    def answered(self, request: bytes) -> bool:
        """An answer came; False when it is not to the open request."""
        if not request or request != self.request:
            return False
        self._size = min(self._size * 2, FLOW_WINDOW_BYTES_MAX)
        self.outstanding -= self._asked_at
        self.request = b""
        return True

    def forget(self) -> None:
        """The client is gone: the next one begins with nothing on its way."""
        self.outstanding = 0
        self.request = b""


class RateLimit:
    """So many bits per second on average, and one burst on top.

    A message may go while the burst is not used up, and is charged afterwards: so one that is larger than
    the whole burst gets through, too.
    """

    __slots__ = ("_burst_ns", "_bytes_per_second", "due_ns")

    def __init__(self, bits_per_second: int, burst_bytes: int, now_ns: int) -> None:
        self._bytes_per_second = max(bits_per_second // 8, 1)
        self._burst_ns = burst_bytes * _NS // self._bytes_per_second
        self.due_ns = now_ns - self._burst_ns
        """From when on the next message may go."""

    def sent(self, size: int, now_ns: int) -> None:
        earliest_ns = max(self.due_ns, now_ns - self._burst_ns)
        self.due_ns = earliest_ns + size * _NS // self._bytes_per_second


class Push:
    """The push side of one consumer."""

    def __init__(self, consumer: ConsumerView, acks: Acks) -> None:
        self._consumer = consumer
        self._acks = acks
        self._bus = consumer.context.bus
        self._clock = consumer.context.clock
        self._flow_prefix = f"$JS.FC.{consumer.stream.name}.{consumer.name}.".encode()
        self._quiet_since_ns = self._clock.monotonic_ns()
        self._rests_until_ns = 0
        self.window: FlowWindow | None = None
        self.rate: RateLimit | None = None
        self._bits_per_second = 0
        self._watch = Watch(b"", b"", self._interest_changed)
        self.configure(consumer.config)

    # -- lifecycle

    def configure(self, config: ConsumerConfig) -> None:
        """Take a checked configuration; what is pending goes to another deliver subject once more."""
        subject, group = config.deliver_subject.encode(), config.deliver_group.encode()
        moved = bool(self.subject) and subject != self.subject
        self._heartbeat_ns = round(config.idle_heartbeat * _NS)
        if config.flow_control and self.window is None:
            self.window = FlowWindow()
        self._acks_by_flow = config.ack_policy == "flow_control"
        self._limit_rate(config.rate_limit_bps)
        self.is_metered = self.window is not None or self.rate is not None
        """Whether each message is to be reported with ``sent``."""
        if (subject, group) != (self.subject, self.group):
            self.close()
            self._watch = Watch(subject, group, self._interest_changed)
            self._bus.watch(self._watch)
            if self.window is not None:
                self.window.forget()
        if moved:
            self._redeliver_all()

    def _limit_rate(self, bits_per_second: int) -> None:
        """Take a rate, 0 for none; one that stays the same goes on as it is."""
        if bits_per_second == self._bits_per_second:
            return
        self._bits_per_second = bits_per_second
        burst = self._consumer.stream.config.max_msg_size
        burst = burst if burst > 0 else PAYLOAD_BYTES_MAX
        now_ns = self._clock.monotonic_ns()
        self.rate = RateLimit(bits_per_second, burst, now_ns) if bits_per_second else None

    def close(self) -> None:
        self._bus.unwatch(self._watch)

    def let_go(self) -> None:
        """The consumer is closed, and is not told of interest any more."""
        self._watch.changed = _ignore

    @property
    def subject(self) -> bytes:
        """Where messages go."""
        return self._watch.subject

    @property
    def group(self) -> bytes:
        """The queue group whose members share them, or ``b""``."""
        return self._watch.queue

    @property
    def active(self) -> bool:
        """Whether somebody listens."""
        return self._watch.listened

    def _interest_changed(self, listened: bool) -> None:
        consumer = self._consumer
        now_ns = self._clock.monotonic_ns()
        consumer.inactivity.last_active_ns = self._quiet_since_ns = now_ns
        if self.window is not None:
            # On both occasions: of who left in the midst of what was sent, that is counted behind it.
            self.window.forget()
        if listened:
            consumer.wake()
        consumer.timer.arm()

    def _redeliver_all(self) -> None:
        """Those who listen now have not seen what is pending."""
        state = self._consumer.state
        now_ns = self._clock.monotonic_ns()
        for stream_seq, (consumer_seq, _) in sorted(state.pending.items()):
            state.refuse(stream_seq, consumer_seq, now_ns)
        if state.pending:
            self._consumer.touch()
        self._acks.give_up_exhausted()

    # -- what holds back

    def rest_until(self, at_ns: int) -> None:
        """Make the next delivery pass only then."""
        self._rests_until_ns = at_ns

    def is_held(self, now_ns: int) -> bool:
        """Whether the next message has to wait for an answer, or for its time."""
        if self.window is not None and self.window.is_full:
            return True
        return self.rate is not None and self.rate.due_ns > now_ns

    def sent(self, size: int, now_ns: int) -> None:
        """Messages of this size went out: account for them, and ask the client how far it is."""
        if self.rate is not None:
            self.rate.sent(size, now_ns)
        if self.window is not None:
            self.window.sent(size)
            self._ask()

    def answered(self, request: bytes, headers: bytes) -> bool:
        """The client has come to a request; ``headers`` may say how far. False without flow control."""
        if self.window is None:
            return False
        if not self.window.answered(request):
            return True
        position = reached(headers) if self._acks_by_flow else None
        if position is not None:
            self._acks.receive_position(*position)
        self._ask()
        self._consumer.wake()
        return True

    def _ask(self, *, at_once: bool = False) -> None:
        window = self.window
        if window is None or not self.active:
            return  # nobody would answer
        if window.should_ask or (at_once and not window.request):
            request = self._flow_prefix + self._consumer.context.new_name(_ID_CHARS).encode()
            window.ask(request)
            self._bus.publish(self.subject, request, _FLOW_REQUEST, b"")

    # -- time

    def delivered(self, now_ns: int) -> None:
        """A pass delivered something: heartbeats are due that much later."""
        self._quiet_since_ns = now_ns
        if self._acks_by_flow and self._consumer.backlog.is_full:
            self._ask(at_once=True)  # nothing else would ever make room

    def next_time_ns(self) -> int | None:
        if not self.active:
            return None
        times = []
        if self._heartbeat_ns:
            times.append(self._quiet_since_ns + self._heartbeat_ns)
        if self.rate is not None and self.rate.due_ns > self._clock.monotonic_ns():
            times.append(self.rate.due_ns)
        if self._rests_until_ns:
            times.append(self._rests_until_ns)
        return min(times, default=None)

    def run_due(self, now_ns: int) -> None:
        """Send a heartbeat after a long silence, and go on if the rate allows it."""
        if not self.active:
            return
        if self._heartbeat_ns and self._quiet_since_ns + self._heartbeat_ns <= now_ns:
            self._quiet_since_ns = now_ns
            self._bus.publish(self.subject, b"", self._heartbeat(), b"")
            if self._acks_by_flow and self._consumer.state.pending:
                self._ask(at_once=True)
        if 0 < self._rests_until_ns <= now_ns:
            self._rests_until_ns = 0
            self._consumer.wake()
        if self.rate is not None and self.rate.due_ns <= now_ns:
            self._consumer.wake()

    def _heartbeat(self) -> bytes:
        state = self._consumer.state
        block = heartbeat(state.delivered_consumer, state.delivered_stream)
        if self.window is not None and self.window.request:
            stalled = b"Nats-Consumer-Stalled: %b\r\n" % self.window.request
            return with_headers(block, stalled)
        return block


class _Pushing(Protocol):
    push: Push | None


class _Streaming(Protocol):
    @property
    def consumers(self) -> Mapping[str, _Pushing]: ...


class FlowDispatch:
    """The sink on ``$JS.FC.>``: answers to flow control, by the consumer they are for."""

    def __init__(self, streams: Mapping[str, _Streaming]) -> None:
        self._streams = streams

    def sink(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool | None:
        """Receive one answer; False when its consumer does not exist, or wants none."""
        tokens = subject.split(b".")
        if len(tokens) != _FLOW_TOKENS:
            return False
        stream = self._streams.get(tokens[2].decode(errors="replace"))
        name = tokens[3].decode(errors="replace")
        consumer = stream.consumers.get(name) if stream is not None else None
        if consumer is None or consumer.push is None:
            return False
        return None if consumer.push.answered(subject, headers) else False


def _ignore(_listened: bool) -> None:
    """What somebody listens to who is no more."""


class PushRecipients:
    """Sends to whoever listens, as far as flow control and the rate allow."""

    def __init__(self, consumer: ConsumerView, sender: Sender, push: Push) -> None:
        self._storage = consumer.context.storage
        self._resolve = consumer.context.bus.resolve
        self._sender = sender
        self._push = push
        self._target: Target | None = None

    # -- the pass

    def begin(self) -> PassEnd | None:
        if self._storage.pending_bytes > INGEST_PENDING_BYTES_MAX:
            # What is pushed may end in another stream: it waits for the disk as publishers do.
            self._push.rest_until(self._sender.now_ns + _REST_NS)
            return PassEnd.HELD
        self._target = self._resolve(self._push.subject)
        return None

    def end(self) -> None:
        if self._sender.delivered:
            self._push.delivered(self._sender.now_ns)

    def obstacle(self) -> PassEnd | None:
        push = self._push
        if not push.active:
            return PassEnd.NO_REQUESTS
        if push.group:
            self._target = self._resolve(push.subject)  # each message is another member's
        if self._target is None:
            return PassEnd.NO_REQUESTS
        if self._target.blocked:
            return PassEnd.BLOCKED
        if push.is_metered and push.is_held(self._sender.now_ns):
            return PassEnd.HELD
        return PassEnd.BUDGET if self._sender.left <= 0 else None

    def wanted(self) -> int:
        return self._sender.left

    def stopped(self) -> PassEnd:
        return PassEnd.NO_REQUESTS

    # -- new messages

    def hand_out(self, rows: list[StoredRow]) -> PassEnd | None:
        push = self._push
        if push.rate is not None or push.group:
            return self._send_each(rows)
        if push.window is not None:
            self._send_by_window(rows, push.window)
        else:
            self._send(rows)
        return None

    def _send(self, rows: list[StoredRow]) -> int:
        """Send messages, up to the last one that somebody listens to; returns how many went out."""
        sender, target = self._sender, self._target
        assert target is not None
        if target.steady:
            sender.send_stored(target, rows)
            return len(rows)
        sent: list[StoredRow] = []
        target.send_many(self._while_listened(rows, sent))
        if sent:
            sender.record(sent)
        return len(sent)

    def _while_listened(self, rows: list[StoredRow], sent: list[StoredRow]) -> Iterator[Outgoing]:
        """What is sent of messages until nobody listens; ``sent`` says how far that went."""
        push = self._push
        for row, message in zip(rows, self._sender.outgoing(rows), strict=True):
            if not push.active:
                return
            sent.append(row)
            yield message

    def _send_by_window(self, rows: list[StoredRow], window: FlowWindow) -> None:
        """Send messages in pieces: each up to where it is time to ask, or to wait."""
        start, behind = 0, 0
        ends = list(accumulate(self._sizes(rows)))
        while start < len(rows) and not window.is_full:
            stop = min(bisect_left(ends, behind + window.slack) + 1, len(rows))
            sent = self._send(rows[start:stop])
            if sent:
                self._push.sent(ends[start + sent - 1] - behind, self._sender.now_ns)
            if start + sent < stop:
                return
            start, behind = stop, ends[stop - 1]

    def _sizes(self, rows: list[StoredRow]) -> list[int]:
        """What each of these counts when it is sent, with its reply subject."""
        sender = self._sender
        size = sender.reply_size(rows)
        if size is not None:
            return [size + len(row[1]) + len(row[2]) + len(row[3]) for row in rows]
        return [sum(map(len, message)) for message in sender.outgoing(rows)]

    def _send_each(self, rows: list[StoredRow]) -> PassEnd | None:
        """Send messages one by one: each waits for its time, or is another member's."""
        push, sender = self._push, self._sender
        for row in rows:
            end = self.obstacle()
            if end is not None:
                return end
            assert self._target is not None
            _, subject, headers, payload, _ = row
            reply = sender.reply_of(row)
            self._target.send(subject, reply, headers, payload)
            sender.record_one(row)
            if push.is_metered:
                size = len(subject) + len(reply) + len(headers) + len(payload)
                push.sent(size, sender.now_ns)
        return None

    # -- redeliveries

    def resend(self, row: StoredRow) -> PassEnd | None:
        sender = self._sender
        assert self._target is not None
        message = sender.redelivery(row)
        sender.record_redelivery(row[0])
        self._target.send(*message)
        if self._push.is_metered:
            self._push.sent(sum(map(len, message)), sender.now_ns)
        return None
