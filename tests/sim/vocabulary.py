"""What the model of a pull consumer speaks of: statuses, requests, deliveries, messages."""

from __future__ import annotations

from dataclasses import dataclass

NOTHING_LEFT = "404 No Messages"
EXPIRED = "408 Request Timeout"
OTHERS_WAIT = "408 Requests Pending"
TOO_LARGE = "409 Message Size Exceeds MaxBytes"
COMPLETED = "409 Batch Completed"
MISMATCH = "423 Nats-Pin-Id mismatch"
WRONG_PIN = "423 Nats-Wrong-Pin-Id"
FULL = "409 Exceeded MaxWaiting"
HEARTBEAT = "100 Idle Heartbeat"
TOO_OFTEN = "400 Bad Request - heartbeat value too large"
SERVE, SKIP = "serve", "skip"


def nth(values: tuple[int, ...], number: int) -> int:
    """The value for the first, the second, …; the last one for all that follow."""
    return values[min(number, len(values)) - 1]


@dataclass
class Request:
    """A pull request, as long as it waits. ``pin`` is the number of a pin; without one None."""

    inbox: int
    left: int
    bytes_left: int | None = None
    no_wait: bool = False
    expires_at: int | None = None
    min_pending: int = 0
    min_ack_pending: int = 0
    priority: int = 0
    pin: int | None = None
    plain: bool = False
    delivered: int = 0
    heartbeat: int = 0
    quiet_since: int = 0


@dataclass
class Delivery:
    """A delivered message that is not acknowledged; ``postponed`` when refused with a delay."""

    consumer_seq: int
    deadline: int
    count: int = 1
    postponed: bool = False


@dataclass(frozen=True)
class Stored:
    """A message in the stream; ``time`` as its acknowledgement subject shows it."""

    subject: str
    size: int
    time: int
