"""What workers of pull consumers say all day, cut out of a chunk as it came.

A chunk that is acknowledgements and then a pull request, or one of both, in the form in which client
libraries write them, goes to its consumer without being made frames, routes and calls first. Whatever is
written otherwise, or is for others, is parsed; nothing is done before that is clear. The bytes are the same,
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
_NOT_TAKEN: Final = (0, 0)


def take_short_way(router: Router, origin: Origin, chunk: bytes) -> tuple[int, int]:
    """Have a whole chunk taken; returns how many messages and bytes of payload it was, or nothing done.

    ``origin`` may publish anything without a check.
    """
    way = router.short_way
    if way is None:
        return _NOT_TAKEN
    at = chunk.rfind(_REQUEST_START)
    subject = inbox = body = b""
    if at >= 0:
        found = _REQUEST.fullmatch(chunk, at)
        if found is None:
            return _NOT_TAKEN
        subject, inbox, size, body = found.groups()
        route = router.exact.get(subject) or router.find_uncached(subject)
        if (
            route.only_sink is not way.request_sink
            or len(body) != int(size)
            or inbox[0] == 36  # "$": it may be reserved
            or (router.answers_others and inbox.startswith(ANOTHERS_REPLY))
        ):
            return _NOT_TAKEN
        chunk = chunk[:at]
    if chunk:
        acks = router.acks()
        if acks is None or acks.only_sink is not way.ack_sink:
            return _NOT_TAKEN
    count = way.take(chunk, subject, inbox, body, origin)
    return count, len(body) + len(_ACK) * chunk.count(b"\r\n+ACK\r\n")
