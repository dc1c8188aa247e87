"""What the log says of the time of day: that it jumped, and that streams are ahead of it."""

from __future__ import annotations

import logging
from typing import Final

from ...clock import BELIEVED_AFTER_NS, JUMP_NS, Jump
from ..core.hub import Hub

logger = logging.getLogger("headrace.broker")

_NS: Final = 1e9
_NAMED: Final = 5  # so many streams are named in one line


def tell_of_jump(jump: Jump) -> None:
    """Log what became of a jump of the time of day."""
    by = f"{abs(jump.by_ns) / _NS:.1f} s {'ahead' if jump.by_ns > 0 else 'back'}"
    if jump.what == "seen":
        lasting = f"{BELIEVED_AFTER_NS / _NS:.0f} s"
        logger.warning("Clock: it jumped %s; followed when that has lasted %s", by, lasting)
    elif jump.what == "followed":
        logger.warning(
            "Clock: the jump %s has lasted and is followed; ages, schedules and pauses go by it", by
        )
    else:
        logger.warning("Clock: the jump %s is over, and had no effect", by)


def tell_of_streams_ahead(hub: Hub) -> None:
    """Log which streams have messages from later than it is now."""
    now_ns = hub.clock.now_ns()
    ahead = [
        (stream.store.state.last_ns - now_ns, stream.name)
        for account in hub.accounts
        if account.engine is not None
        for stream in account.engine.registry.streams.values()
        if stream.store.state.last_ns >= now_ns + JUMP_NS
    ]
    if ahead:
        ahead.sort(reverse=True)
        names = ", ".join(name for _, name in ahead[:_NAMED])
        logger.warning(
            "Clock: %d streams have messages from up to %.1f s later than it is now (%s%s); what they "
            "hold ages by their own time until the clock has caught up",
            len(ahead),
            ahead[0][0] / _NS,
            names,
            ", …" if len(ahead) > _NAMED else "",
        )
