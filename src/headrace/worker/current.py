"""The message that is being handled here: for whoever logs, traces, or asks deep inside a handler."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ..api.acks import AckTokens
    from ..client.message import Headers

__all__ = ["Delivered", "current"]


class Delivered(Protocol):
    """A message of a consumer or of a group: what both have."""

    @property
    def subject(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def metadata(self) -> AckTokens: ...
    @property
    def is_answered(self) -> bool: ...
    def ack(self) -> Awaitable[None]: ...
    def nak(self, delay: float = ...) -> Awaitable[None]: ...
    def term(self, reason: str = "") -> Awaitable[None]: ...
    def in_progress(self) -> Awaitable[None]: ...
    async def ack_sync(self, timeout: float | None = None) -> None: ...


handled: ContextVar[Delivered | None] = ContextVar("headrace_worker_message", default=None)


def current() -> Delivered | None:
    """The message that is being handled in this task or thread; None outside of a handler."""
    return handled.get()


class OfMessage(logging.Filter):
    """Gives log records that a handler makes ``stream``, ``consumer``, ``subject``, ``sequence`` and
    ``delivery``."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes."""
        message = handled.get()
        if message is not None:
            about = message.metadata
            record.stream, record.consumer = about.stream, about.consumer
            record.subject, record.sequence = message.subject, about.stream_seq
            record.delivery = about.delivered
        return True
