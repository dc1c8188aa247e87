"""What a server sends, for tests of what reads it."""

from __future__ import annotations

__all__ = ["msg"]


def msg(subject: bytes, sid: bytes, reply: bytes, headers: bytes, payload: bytes) -> bytes:
    """MSG, or HMSG if there are headers."""
    if headers:
        size = len(headers)
        total = size + len(payload)
        if reply:
            return b"HMSG %b %b %b %d %d\r\n%b%b\r\n" % (
                subject, sid, reply, size, total, headers, payload,
            )  # fmt: skip
        return b"HMSG %b %b %d %d\r\n%b%b\r\n" % (subject, sid, size, total, headers, payload)
    if reply:
        return b"MSG %b %b %b %d\r\n%b\r\n" % (subject, sid, reply, len(payload), payload)
    return b"MSG %b %b %d\r\n%b\r\n" % (subject, sid, len(payload), payload)
