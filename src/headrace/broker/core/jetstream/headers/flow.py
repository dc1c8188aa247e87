"""How far a push consumer's client has come, as it says in its answers to flow control.

The ack policy ``flow_control`` acknowledges by these alone: everything delivered up to there is done.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .published import header_value

__all__ = ["Reached", "position_block", "reached"]

_LAST_CONSUMER: Final = b"Nats-Last-Consumer"
_LAST_STREAM: Final = b"Nats-Last-Stream"
_DIGITS_MAX: Final = 19


class Reached(NamedTuple):
    """How far a client has come: the sequence of its last delivery, and of the message in it."""

    consumer_seq: int
    stream_seq: int


def reached(headers: bytes) -> Reached | None:
    """What an answer, or a heartbeat, says; None if it speaks of no message."""
    stream_seq = _number(headers, _LAST_STREAM)
    if not stream_seq:
        return None
    return Reached(_number(headers, _LAST_CONSUMER), stream_seq)


def position_block(consumer_seq: int, stream_seq: int) -> bytes:
    """The headers of an answer that says this."""
    return b"NATS/1.0\r\n%b: %d\r\n%b: %d\r\n\r\n" % (
        _LAST_CONSUMER,
        consumer_seq,
        _LAST_STREAM,
        stream_seq,
    )


def _number(headers: bytes, name: bytes) -> int:
    text = header_value(headers, name)
    return int(text) if text.isdigit() and len(text) <= _DIGITS_MAX else 0
