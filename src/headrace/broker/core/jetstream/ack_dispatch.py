"""Finding the consumer an acknowledgement is for, by the front of its subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....api.acks import ack_prefix, parse_ack_subject
from ..ports import Origin

if TYPE_CHECKING:
    from .consumer import Consumer

__all__ = ["AckDispatch"]

_POSITIONS: Final = 5  # delivered, stream sequence, consumer sequence, time, pending


class AckDispatch:
    """The sink on ``$JS.ACK.>``. A consumer that takes no acks looks as if nobody were there."""

    def __init__(self) -> None:
        self._consumers: dict[bytes, Consumer] = {}

    def add(self, consumer: Consumer) -> None:
        self._consumers[_key(consumer.stream.name, consumer.name)] = consumer

    def remove(self, consumer: Consumer) -> None:
        self._consumers.pop(_key(consumer.stream.name, consumer.name), None)

    def sink(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool | None:
        """Take one acknowledgement; False when its consumer does not exist."""
        parts = subject.rsplit(b".", _POSITIONS)
        consumer = self._consumers.get(parts[0])
        try:
            if consumer is not None:
                consumer.acks.take(int(parts[2]), int(parts[3]), payload, reply)
                return None
            tokens = parse_ack_subject(subject.decode())
            consumer = self._consumers.get(_key(tokens.stream, tokens.consumer))
        except ValueError:
            return None  # not an ack subject: ignored, as by the public server
        if consumer is None:
            return False
        consumer.acks.take(tokens.stream_seq, tokens.consumer_seq, payload, reply)
        return None


def _key(stream: str, consumer: str) -> bytes:
    return ack_prefix(stream, consumer)[:-1]
