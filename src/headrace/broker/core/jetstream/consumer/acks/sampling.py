"""Sampling of acknowledgements: how long they took, told to whoever listens on the metric's subject."""

from __future__ import annotations

from ..view import ConsumerView

__all__ = ["Sampling", "percentage"]


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
