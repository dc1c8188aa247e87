"""Header blocks of statuses, of messages with added headers, and of answers to flow control.

The ack policy ``flow_control`` acknowledges by such answers alone: everything delivered up to there is done.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .....api import names
from .published import header_value

_VERSION: Final = b"NATS/1.0\r\n"


def status(row: tuple[int, str]) -> bytes:
    """The header block of a status, without further headers."""
    code, text = row
    return f"NATS/1.0 {code} {text}\r\n\r\n".encode()


def bad_request(detail: str) -> bytes:
    """``400 Bad Request - <detail>``; line ends inside the detail become blanks."""
    return status((400, "Bad Request - " + " ".join(detail.split())))


def with_pending(block: bytes, messages: int, size: int) -> bytes:
    """A status with what was left of a pull request: messages and bytes."""
    return b"%bNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n" % (
        block[:-2],
        messages,
        size,
    )


def heartbeat(consumer_seq: int, stream_seq: int) -> bytes:
    """An idle heartbeat: the last delivered positions."""
    return b"%bNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n" % (
        _HEARTBEAT[:-2],
        consumer_seq,
        stream_seq,
    )


def with_headers(block: bytes, added: bytes) -> bytes:
    """A message's header block with further ``Name: value\\r\\n`` lines at its end."""
    return (block[:-2] if block else _VERSION) + added + b"\r\n"


def unreadable(error: Exception) -> bytes:
    """The status of a request for something the store cannot read now."""
    return status((500, " ".join(str(error).split())))


_HEARTBEAT: Final = status(names.IDLE_HEARTBEAT)
NO_MESSAGES: Final = status(names.NO_MESSAGES)
REQUEST_TIMEOUT: Final = status(names.REQUEST_TIMEOUT)
SIZE_EXCEEDS: Final = status(names.MESSAGE_SIZE_EXCEEDS)
BATCH_COMPLETED: Final = status(names.BATCH_COMPLETED)
CONSUMER_DELETED: Final = status(names.CONSUMER_DELETED)
SERVER_SHUTDOWN: Final = status(names.SERVER_SHUTDOWN)
WRONG_PIN_ID: Final = status(names.WRONG_PIN_ID)


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
