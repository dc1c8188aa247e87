"""Finding the consumer an acknowledgement is for, by the front of its subject."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ......api.acks import ack_prefix, parse_ack_subject
from ......wire.frames import Frame
from ....ports.bus import Origin
from .acks import Acks

_POSITIONS: Final = 5  # delivered, stream sequence, consumer sequence, time, pending
_NUMBERS: Final = rb"\.[0-9]{1,19}\.([0-9]{1,19})(?:\.[0-9]{1,19}){3}\n"


class AckDispatch:
    """The sink on ``$JS.ACK.>``. A consumer without acks looks as if it did not exist."""

    def __init__(self) -> None:
        self._acks: dict[bytes, Acks] = {}
        self._positions: dict[bytes, re.Pattern[bytes]] = {}  # finds their acks' stream sequences

    def add(self, stream: str, consumer: str, acks: Acks) -> None:
        self._acks[_key(stream, consumer)] = acks

    def remove(self, stream: str, consumer: str) -> None:
        key = _key(stream, consumer)
        self._acks.pop(key, None)
        self._positions.pop(key, None)

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
        if len(frames) == 1 and not frames[0][2]:  # as before a pull of one
            _op, subject, reply, headers, payload = frames[0]
            return frames if self.sink(subject, reply, headers, payload, origin) is False else ()
        body = frames[0][4]
        key = frames[0][1].rsplit(b".", _POSITIONS)[0]
        acks = self._acks.get(key)
        if acks is None or not acks.can_receive_many(body):
            return frames
        count = len(frames)
        if [frame[4] for frame in frames].count(body) != count:
            return frames
        if [frame[2] for frame in frames].count(b"") != count:
            return frames
        pattern = self._positions.get(key)
        if pattern is None:
            pattern = self._positions[key] = re.compile(re.escape(key) + _NUMBERS)
        # One expression over all of them is quicker than taking each apart.
        sequences = pattern.findall(b"\n".join([frame[1] for frame in frames]) + b"\n")
        if len(sequences) != count:
            return frames
        acks.receive_many(list(map(int, sequences)))
        return ()


def _key(stream: str, consumer: str) -> bytes:
    return ack_prefix(stream, consumer)[:-1]
