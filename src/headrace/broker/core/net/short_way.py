"""What workers of pull consumers say all day, cut out of a chunk as it came.

Acknowledgements and the pull request behind them, in the form in which client libraries write them, go to
their consumer without being made frames, routes and calls first. Whatever is written otherwise, or is for
others, is parsed with all that follows; nothing of it is done before that is clear. The bytes are the same,
and so is what comes of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .publishing import ANOTHERS_REPLY

if TYPE_CHECKING:
    from ..ports import Origin
    from .router import Router

CHUNK_BYTES_MAX: Final = 4096
_REQUEST_START: Final = b"PUB $JS.API.CONSUMER.MSG.NEXT."
STARTS: Final = (b"PUB $JS.ACK.", _REQUEST_START)
"""What such a chunk begins with."""
_REQUEST: Final = re.compile(
    rb"PUB (\$JS\.API\.CONSUMER\.MSG\.NEXT\.[!-~]+) ([!-~]+) ([0-9]{1,3})\r\n([ -~]*)\r\n"
)
_ACK: Final = b"+ACK"
_NOTHING: Final = (0, 0, 0)


def take_short_way(router: Router, origin: Origin, chunk: bytes, at: int) -> tuple[int, int, int]:
    """Have acknowledgements and the request behind them taken that stand in a chunk from ``at`` on.

    Returns where they end, how many messages and how many bytes of payload they were; zeros if there is
    something else, and nothing is done. ``origin`` may publish anything without a check.
    """
    way = router.short_way
    if way is None:
        return _NOTHING
    begin = chunk.find(_REQUEST_START, at)
    end = begin if begin >= 0 else len(chunk)
    acks = chunk[at:end]
    subject = inbox = body = b""
    if begin >= 0:
        found = _REQUEST.match(chunk, begin)
        if found is None:
            return _NOTHING
        subject, inbox, size, body = found.groups()
        end = found.end()
        route = router.exact.get(subject) or router.find_uncached(subject)
        if (
            route.only_sink is not way.request_sink
            or len(body) != int(size)
            or inbox[0] == 36  # "$": it may be reserved
            or (router.answers_others and inbox.startswith(ANOTHERS_REPLY))
        ):
            return _NOTHING
    if acks:
        receivers = router.acks()
        if receivers is None or receivers.only_sink is not way.ack_sink:
            return _NOTHING
    count = way.take(acks, subject, inbox, body, origin)
    return end, count, len(body) + len(_ACK) * acks.count(b"\r\n+ACK\r\n")
