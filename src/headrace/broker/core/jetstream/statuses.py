"""Statuses, as those get them who pull and listen: messages without a payload, all in their headers."""

from __future__ import annotations

from typing import Final

from ....api import names


def status(row: tuple[int, str]) -> bytes:
    """The header block of a status, without further headers."""
    code, text = row
    return f"NATS/1.0 {code} {text}\r\n\r\n".encode()


def bad_request(detail: str) -> bytes:
    """``400 Bad Request - <detail>``; line ends inside the detail become blanks."""
    return status((400, "Bad Request - " + " ".join(detail.split())))


def telling_pending(block: bytes, messages: int, size: int) -> bytes:
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
