"""What a scenario is, and where all of them stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.driver import Step

__all__ = ["Scenario", "Table"]


@dataclass(frozen=True)
class Scenario:
    """A named sequence of steps, run against both servers.

    ``config`` is a configuration in nats-server's own format, for scenarios that need one; both
    servers read it from a file given with ``-c``.
    """

    name: str
    steps: Sequence[Step]
    config: str = ""


Table = list[Scenario]
