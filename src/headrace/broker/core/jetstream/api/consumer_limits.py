"""What a stream's configuration allows its consumers, when it changes under them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....api.errors import Errors
from .....api.streams import StreamConfig
from ..config.refused import Refused

if TYPE_CHECKING:
    from ..stream.stream import Stream

__all__ = ["check_consumer_limits"]


def check_consumer_limits(stream: Stream, new: StreamConfig) -> None:
    """Refuse new limits that a consumer there is already exceeds."""
    old, limits = stream.config.consumer_limits, new.consumer_limits
    if old == limits:
        return
    exceeding = [
        name
        for name, consumer in sorted(stream.consumers.items())
        if 0 < limits.inactive_threshold < consumer.config.inactive_threshold
        or 0 < limits.max_ack_pending < consumer.config.max_ack_pending
    ]
    if exceeding:
        raise Refused(
            Errors.STREAM_UPDATE,
            err=f"change to limits violates consumers: {', '.join(exceeding)}",
        )
