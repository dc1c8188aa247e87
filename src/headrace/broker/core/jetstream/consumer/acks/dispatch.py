"""Finding the consumer an acknowledgement is for, by the front of its subject."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ......api.acks import ack_prefix, parse_ack_subject
from ......wire.frames import Frame
from ....ports import Origin

if TYPE_CHECKING:
    from ..consumer import Consumer

__all__ = ["AckDispatch"]

_POSITIONS: Final = 5  # delivered, stream sequence, consumer sequence, time, pending
_NUMBERS: Final = rb"\.[0-9]{1,19}\.([0-9]{1,19})(?:\.[0-9]{1,19}){3}\n"


class AckDispatch:
    """The sink on ``$JS.ACK.>``. A consumer that takes no acks looks as if nobody were there."""

    def __init__(self) -> None:
        self._consumers: dict[bytes, Consumer] = {}
        self._positions: dict[bytes, re.Pattern[bytes]] = {}  # finds their acks' stream sequences

    def add(self, consumer: Consumer) -> None:
        self._consumers[_key(consumer.stream.name, consumer.name)] = consumer

    def remove(self, consumer: Consumer) -> None:
        key = _key(consumer.stream.name, consumer.name)
        self._consumers.pop(key, None)
        self._positions.pop(key, None)

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
        bodies = [frame[4] for frame in acks]
        if bodies.count(body) != len(acks) or [frame[2] for frame in acks].count(b"") != len(acks):
            return acks
        pattern = self._positions.get(key)
        if pattern is None:
            pattern = self._positions[key] = re.compile(re.escape(key) + _NUMBERS)
        # One expression over all of them is quicker than taking each apart.
        sequences = pattern.findall(b"\n".join([frame[1] for frame in acks]) + b"\n")
        if len(sequences) != len(acks):
            return acks
        consumer.acks.take_many(list(map(int, sequences)))
        return ()


def _key(stream: str, consumer: str) -> bytes:
    return ack_prefix(stream, consumer)[:-1]
