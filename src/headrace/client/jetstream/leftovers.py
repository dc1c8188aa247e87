"""Messages of a deleted stream in the one made after it: a fault of nats-server, seen by their times.

It removes the files of a deleted stream in the background, under another name. A second stream that is
deleted meanwhile keeps its files under its own name, and a third one finds them.
"""

from __future__ import annotations

from typing import Final

from ...api.streams import StreamInfo
from ...api.times import parse_time
from ...errors import StreamLeftoversError

__all__ = ["leftovers_in"]

JUST_MADE_NS: Final = 5_000_000_000


def leftovers_in(made: StreamInfo) -> StreamLeftoversError | None:
    """What to say of a stream that the server has just ``made``, if all its messages are older than it is.

    Mirrors keep the times of their origin, and a restored stream those it had: so one that has existed for a
    while, and a mirror, are not judged.
    """
    state, created = made.state, parse_time(made.created)
    if not state.messages or made.config.mirror is not None or not created or not made.ts:
        return None
    if parse_time(made.ts) - created > JUST_MADE_NS or parse_time(state.last_ts) >= created:
        return None
    return StreamLeftoversError(made.config.name, state.messages, state.first_seq, state.last_seq)
