"""Encoding: each function returns the bytes of one frame, line ends included.

Nothing is checked here, because these functions run once per message. Subjects, replies, queues and
sids must be valid (see ``headrace.subjects``), and header blocks complete (see ``headers``).
"""

from __future__ import annotations

from typing import Final

_OK: Final = b"+OK\r\n"
_PING: Final = b"PING\r\n"
_PONG: Final = b"PONG\r\n"


def pub(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> bytes:
    """PUB, or HPUB if there are headers."""
    if headers:
        size = len(headers)
        total = size + len(payload)
        if reply:
            return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, size, total, headers, payload)
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, size, total, headers, payload)
    if reply:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload)


def sub(subject: bytes, queue: bytes, sid: bytes) -> bytes:
    """SUB; an empty queue means none."""
    if queue:
        return b"SUB %b %b %b\r\n" % (subject, queue, sid)
    return b"SUB %b %b\r\n" % (subject, sid)


def unsub(sid: bytes, max_msgs: int = 0) -> bytes:
    """UNSUB: now, or after ``max_msgs`` messages have been received since the subscribe."""
    if max_msgs:
        return b"UNSUB %b %d\r\n" % (sid, max_msgs)
    return b"UNSUB %b\r\n" % sid


def connect(json: bytes) -> bytes:
    """CONNECT with a JSON object, on one line."""
    return b"CONNECT %b\r\n" % json


def info(json: bytes) -> bytes:
    """INFO with a JSON object, on one line."""
    return b"INFO %b\r\n" % json


def ping() -> bytes:
    """PING."""
    return _PING


def pong() -> bytes:
    """PONG."""
    return _PONG


def ok() -> bytes:
    """+OK."""
    return _OK


def err(text: str) -> bytes:
    """-ERR with the text in single quotes; a line break in it becomes a space."""
    return b"-ERR '%b'\r\n" % " ".join(text.splitlines()).encode(errors="backslashreplace")
