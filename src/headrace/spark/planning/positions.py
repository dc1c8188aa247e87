"""Where a position lies in a stream: asked of the server where it is a time."""

from __future__ import annotations

from ...errors import ConfigurationError
from ..links.control import Control
from ..offsets import StreamHead
from ..options import StartPosition


def locate(control: Control, position: StartPosition, head: StreamHead, *, as_end: bool) -> int:
    """A position as an offset: the sequence before the first one to read.

    As the end of a batch (``as_end``) a given sequence is included, so it is its own offset.
    """
    if position.kind == "earliest":
        return max(0, head.first_seq - 1)
    if position.kind == "latest":
        return head.last_seq
    if position.kind == "sequence":
        if as_end:
            return position.sequence
        if position.sequence > head.last_seq + 1:
            raise ConfigurationError(
                f"jetstream source: startingOffsets is {position.sequence}, but stream {control.stream!r} "
                f"ends at sequence {head.last_seq}"
            )
        return max(0, position.sequence - 1)
    info = control.create_ephemeral(
        deliver_policy="by_start_time", opt_start_time=position.time, inactive_threshold=5.0
    )
    control.delete_consumer(info.name)
    found = info.delivered.stream_seq
    if position.must_exist and not as_end and found >= head.last_seq:
        raise ConfigurationError(
            f"jetstream source: stream {control.stream!r} has no message stored at or after {position.time}; "
            "set startingOffsetsByTimestampStrategy=latest to begin with the next one"
        )
    return found
