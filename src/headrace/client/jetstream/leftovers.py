"""Messages of a deleted stream in the one made after it: a fault of nats-server, seen by their times.

It removes the files of a deleted stream in the background, under another name. A second stream that is
deleted meanwhile keeps its files under its own name, and a third one finds them.
"""

from __future__ import annotations

from ...api.streams import StreamInfo
from ...api.times import parse_time
from ...errors import StreamLeftoversError

__all__ = ["leftovers_in"]


def leftovers_in(made: StreamInfo, waited_ns: int) -> StreamLeftoversError | None:
    """What to say of a stream if it was ``made`` within the time that its creation was waited for, and all
    its messages are older than it is.

    A mirror keeps the times of its origin, and a restored stream those it had: the one is not judged, and the
    other was there before it was asked for.
    """
    state, created = made.state, parse_time(made.created)
    if not state.messages or made.config.mirror is not None or not created or not made.ts:
        return None
    if parse_time(made.ts) - created > waited_ns or parse_time(state.last_ts) >= created:
        return None
    return StreamLeftoversError(made.config.name, state.messages, state.first_seq, state.last_seq)
