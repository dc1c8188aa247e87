"""A member at work: when it may begin, what it must not do twice, and when it must stop.

Begin reading at ``membership`` (what users hold). It is ``following`` the group's record, and has a ``seat``
for each consumer whose pin it wants: ``machine`` decides what a seat does next, ``consuming`` is the time
between the first pull and the loss of the pin, ``work`` handles what comes. Decisions are pure: ``machine``,
``lease``, ``takeover``, ``silence``, ``config``, ``keys``; and what ``client.handlers`` has for consumers,
too: ``lanes``, ``failure``.
"""

from __future__ import annotations

from ...client.handlers.failure import DeadLetter, OnFailure, Retry, Stop
from .membership import Membership

__all__ = ["DeadLetter", "Membership", "OnFailure", "Retry", "Stop"]
