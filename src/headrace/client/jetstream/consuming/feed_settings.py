"""The settings of a feed: how messages that wait in it are looked after."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .ack_wait_changes import Ask
from .missing_consumer import MissingConsumer

Failed = Callable[[Exception], object]


def unheard(error: Exception) -> None:
    """Whoever sees to the end of a feed hears of it where it takes what came."""


class FeedSettings(NamedTuple):
    """How the messages of a feed are looked after.

    Attributes:
        ack_wait: seconds after which what is held is delivered again; 0: never.
        max_deliver: how often in all; 0 or less: without limit.
        gone: sees to a consumer that is not there; None: it is waited for.
        ask: asks the server for ``ack_wait``, which may be changed meanwhile.
        on_failed: hears of an end that nobody asked for, where somebody sees to that; None: its user is.
    """

    ack_wait: float = 0.0
    max_deliver: int = 0
    gone: MissingConsumer | None = None
    ask: Ask | None = None
    on_failed: Failed | None = None
