"""Republishing: what a stream has stored goes out again, under another subject, once it is on disk.

Whoever listens sees the sequence, and the one before on the same subject, and so notices a gap. Nobody is
told of a message that a power cut could still take back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from .....api.streams import StreamConfig
from .....api.times import format_time
from .....subjects import is_literal, is_valid_subject
from .....transforms import SubjectTransform
from ...ports import Bus, Randomness
from ...server_headers import with_new_place
from ..config.stream import compile_republish


class _Republished(NamedTuple):
    sequence: int
    target: bytes
    subject: bytes
    headers: bytes
    payload: bytes
    timestamp_ns: int
    before: int


class Republisher:
    """Holds what was stored until it is durable. It holds no more than the batch that is not."""

    def __init__(self, name: str, transform: SubjectTransform, headers_only: bool) -> None:
        self._name = name.encode()
        self._apply: Callable[[bytes], bytes | None] = transform.apply
        self._headers_only = headers_only
        self._waiting: deque[_Republished] = deque()

    def succeeded_by(self, other: Republisher | None) -> Republisher | None:
        """Hand what waits to the one of another configuration; without one, send that and no more."""
        if not self._waiting:
            return other
        if other is None:
            self._apply = lambda subject: None
            return self
        other._waiting = self._waiting
        return other

    def target(self, subject: bytes) -> bytes:
        """Where a message goes, or ``b""`` for nowhere."""
        target = self._apply(subject)
        if target is None or not is_valid_subject(target) or not is_literal(target):
            return b""
        return target

    def note(
        self, sequence: int, target: bytes, message: tuple[bytes, bytes, bytes, int], before: int
    ) -> None:
        """``(subject, headers, payload, timestamp_ns)`` was staged; ``before`` precedes it there."""
        self._waiting.append(_Republished(sequence, target, *message, before))

    def release(self, durable_seq: int, bus: Bus) -> None:
        waiting = self._waiting
        while waiting and waiting[0].sequence <= durable_seq:
            entry = waiting.popleft()
            added = (
                b"Nats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\n"
                b"Nats-Time-Stamp: %b\r\nNats-Last-Sequence: %d\r\n"
            ) % (
                self._name,
                entry.subject,
                entry.sequence,
                format_time(entry.timestamp_ns).encode(),
                entry.before,
            )
            payload = entry.payload
            if self._headers_only:
                added += b"Nats-Msg-Size: %d\r\n" % len(payload)
                payload = b""
            bus.publish(entry.target, b"", with_new_place(entry.headers, added), payload)

    def roll_back(self, last_seq: int) -> None:
        """Messages after ``last_seq`` were not kept after all."""
        while self._waiting and self._waiting[-1].sequence > last_seq:
            self._waiting.pop()


def republisher_of(config: StreamConfig, random: Randomness) -> Republisher | None:
    """What a checked configuration asks for."""
    transform = compile_republish(config, random)
    if transform is None or config.republish is None:
        return None
    return Republisher(config.name, transform, config.republish.headers_only)
