"""A member at work: when it may begin, what it must not do twice, and when it must stop.

Begin reading at ``membership`` (what users hold). It is ``following`` the group's record, and has a
``MemberConsumer`` for each consumer whose pin it wants (``consumer``). From the pin follows who may begin and
must stop (``pinned``, ``lease``, ``intake``), and what comes is handled (``handlers``). ``shared`` is what
they have in common; ``reachability`` looks now and then whether messages can come at all. What ``handling``
has for consumers serves groups, too: ``key_order``, ``failure``.
"""

from __future__ import annotations

from ...handling.failure_policy import DeadLetter, OnFailure, Retry, Stop
from .membership import Membership

__all__ = ["DeadLetter", "Membership", "OnFailure", "Retry", "Stop"]
