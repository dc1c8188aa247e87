"""Whether something works at this moment: for a readiness probe, a page, a line in a log. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ConnectionState = Literal["connecting", "connected", "disconnected", "draining", "closed"]


@dataclass(frozen=True, slots=True)
class Health:
    """Whether something works, and if it does not, why. It is true where it does.

    Attributes:
        is_ok: whether it works now.
        reason: what is wrong, as a sentence; "" if nothing is.
    """

    is_ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.is_ok

    def __str__(self) -> str:
        return self.reason or "ok"


WELL = Health(True)


def unwell(reason: str) -> Health:
    """It does not work."""
    return Health(False, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumptionStats:
    """The numbers of one consume, as they are at one moment. They cost nothing per message.

    Attributes:
        buffered: messages that came and were not taken yet.
        in_hand: messages that callbacks were called with, or an iteration handed out, as far as is known.
        failures: how often a callback raised.
        retries: how often a message was sent back for another attempt, or waited for it here.
        dead_letters: messages that were put elsewhere.
    """

    buffered: int = 0
    in_hand: int = 0
    failures: int = 0
    retries: int = 0
    dead_letters: int = 0
