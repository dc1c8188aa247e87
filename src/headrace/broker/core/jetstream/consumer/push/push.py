"""Push consumers: who listens where a consumer delivers to, and what holds deliveries back.

A push consumer delivers while somebody listens on its deliver subject (in its queue group, if it has
one). Flow control and a rate hold it back; idle heartbeats tell the listener that it is still there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from ......api import names
from ......api.consumers import ConsumerConfig
from ......limits import PAYLOAD_BYTES_MAX
from ....ports.bus import Origin, Watch
from ...headers import statuses
from ...headers.statuses import reached
from ..acks.acks import Acks
from ..view import ConsumerView
from .window import FlowWindow, RateLimit

FLOW: Final = b"$JS.FC.>"
_FLOW_TOKENS: Final = 5  # $JS, FC, stream, consumer, request
_NS: Final = 1_000_000_000
_ID_CHARS: Final = 8
_FLOW_REQUEST: Final = statuses.status(names.FLOW_CONTROL)


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
        if listened:
            consumer.wake()
        elif self.window is not None:
            self.window.forget()
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
        block = statuses.heartbeat(state.delivered_consumer, state.delivered_stream)
        if self.window is not None and self.window.request:
            stalled = b"Nats-Consumer-Stalled: %b\r\n" % self.window.request
            return statuses.with_headers(block, stalled)
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
