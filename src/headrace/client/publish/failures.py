"""Messages of a windowed publisher that failed."""

from __future__ import annotations

from dataclasses import dataclass

from ...api.base import DocumentError
from ...api.envelope import decode_pub_ack
from ...errors import HeadraceError, ProtocolError

__all__ = ["PublishError", "PublishFailure", "refusal_of"]


@dataclass(frozen=True, slots=True)
class PublishFailure:
    """One message that is not known to be stored: which (from 0, in the order sent), and why.

    After a TimeoutError, DisconnectedError or ConnectionClosedError it may be stored all the same.
    """

    index: int
    subject: str
    error: Exception


def refusal_of(payload: bytes) -> Exception:
    """What an answer to a publish says that is no acknowledgement."""
    error = ProtocolError("the answer to a publish is no stream's: somebody answers there")
    try:
        decode_pub_ack(payload)
    except HeadraceError as refusal:
        return refusal
    except DocumentError as unread:
        error.__cause__ = unread
    return error


class PublishError(HeadraceError):
    """Messages of a windowed publisher failed.

    Attributes:
        failures: the failures since the last ``flush``, at most 10,000 of them.
        count: how many there were.
    """

    def __init__(self, failures: list[PublishFailure], count: int) -> None:
        first = failures[0]
        super().__init__(
            f"{count} message(s) were not acknowledged; the first is number {first.index} "
            f"on {first.subject!r}: {first.error}"
        )
        self.failures = failures
        self.count = count
