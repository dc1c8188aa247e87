"""Finding the consumer an acknowledgement is for, by the front of its subject."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ....api.acks import ack_prefix, parse_ack_subject
from ....wire.frames import Frame
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
            # Numbers that are none are ignored; what is no ack subject at all reaches nobody.
            return None if consumer is not None else False
        if consumer is None:
            return False
        consumer.acks.take(tokens.stream_seq, tokens.consumer_seq, payload, reply)
        return None

    def many(self, acks: Sequence[Frame], origin: Origin | None) -> Sequence[Frame]:
        """Take acknowledgements, if they are plain ones for one consumer; else leave them to ``sink``."""
        body = acks[0][4]
        key = acks[0][1].rsplit(b".", _POSITIONS)[0]
        consumer = self._consumers.get(key)
        if consumer is None or not consumer.acks.takes_many(body):
            return acks
        prefix = key + b"."
        start = len(prefix)
        positions = []
        for _op, subject, reply, _headers, payload in acks:
            if payload != body or reply or not subject.startswith(prefix):
                return acks
            positions.append(subject[start:].split(b"."))
        try:
            sequences = [int(stream_seq) for _, stream_seq, _, _, _ in positions]
        except ValueError:
            return acks
        consumer.acks.take_many(sequences)
        return ()


def _key(stream: str, consumer: str) -> bytes:
    return ack_prefix(stream, consumer)[:-1]
