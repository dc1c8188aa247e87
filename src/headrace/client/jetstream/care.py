"""What is asked of whoever looks after the messages of a consume."""

from __future__ import annotations

from typing import NamedTuple

from .following import Ask
from .gone import Gone


class Care(NamedTuple):
    """How a feed is looked after.

    Attributes:
        ack_wait: seconds after which what is held is delivered again; 0: never.
        max_deliver: how often in all; 0 or less: without limit.
        gone: sees to a consumer that is not there; None: it is waited for.
        ask: asks the server for ``ack_wait``, which may be changed meanwhile.
        is_managed: whether it is part of something that sees to its end.
    """

    ack_wait: float = 0.0
    max_deliver: int = 0
    gone: Gone | None = None
    ask: Ask | None = None
    is_managed: bool = False
