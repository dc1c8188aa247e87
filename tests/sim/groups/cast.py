"""What a seed plays with: the kind of group, its sizes and times, who is there, what may happen."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from headrace.groups import Layout
from sim.groups.network import Far

__all__ = ["CHANGES", "FAULTS", "HANDLERS", "NEAR", "Cast", "draw", "draw_far", "draw_handler"]

NEAR = Far()
LINKS = (
    Far(0.01),
    Far(0.04),
    Far(0.04, jitter=0.02),
    Far(0.04, to_server_share=0.9),
    Far(0.04, to_server_share=0.1),
)
HANDLERS = ("awaits", "awaits", "blocks", "plain")
FAULTS = ("kill", "freeze", "sleep", "cut", "stall", "hang", "delete", "restart")
CHANGES = ("rejoin", "step down", "add", "drop", "map")


@dataclass
class Cast:
    """Durations are seconds, shares are of 1."""

    genre: str
    """``planned``: only changes somebody wants; ``crash``: one crash; ``wild``: everything."""
    kind: str
    layout: Layout
    partitions: int
    members: int
    instances: int
    """Of each member."""
    keys: int
    backlog: int
    """Messages of each key that are there before anybody joins."""
    ack_wait: float
    max_ack_pending: int
    concurrency: int
    handler_seconds: float
    slow_share: float
    failing_share: float
    on_failure: str
    sync_share: float
    delay: float
    faults: tuple[str, ...]
    """What happens that nobody wants; see ``faults``."""
    changes: tuple[str, ...]
    """What happens that somebody wants."""
    pin_handover: Literal["drain", "immediate"]
    handler: str = "awaits"
    """``awaits``: a coroutine function; ``blocks``: one that keeps its loop; ``plain``: a plain function."""
    far: Far = NEAR
    """The links of members and of who changes the group."""

    @property
    def disk(self) -> bool:
        """Whether the broker keeps what it is told when it is restarted."""
        return self.genre == "wild" and "restart" in self.faults

    @property
    def lease(self) -> float:
        return max(self.ack_wait, 1.0)


def draw(rng: random.Random) -> Cast:
    """The cast of a seed."""
    genre = rng.choice(("planned", "crash", "wild", "wild", "wild"))
    wild = genre == "wild"
    elastic = rng.random() < 0.7
    return Cast(
        genre=genre,
        kind="elastic" if elastic else "static",
        layout=rng.choice(get_args(Layout)),
        partitions=rng.randrange(2, 5),
        members=rng.choice((1, 2, 2, 3)),
        instances=2 if genre == "crash" else rng.choice((1, 2, 2)),
        keys=rng.randrange(3, 8),
        backlog=rng.choice((0, 2, 5)),
        ack_wait=rng.choice((1.0, 1.5, 2.0)),
        max_ack_pending=rng.choice((1, 50)),
        concurrency=rng.choice((1, 3)),
        handler_seconds=rng.choice((0.0, 0.005, 0.01))
        if not wild
        else rng.choice((0.0, 0.02, 0.1, 0.3)),
        slow_share=rng.choice((0.0, 0.0, 0.05)) if wild else 0.0,
        failing_share=rng.choice((0.0, 0.0, 0.05)) if wild else 0.0,
        on_failure=rng.choice(("stop", "retry", "retry")),
        sync_share=rng.choice((0.0, 0.5, 1.0)),
        delay=rng.choice((0.0002, 0.001, 0.01)) if wild else 0.0005,
        faults=_some(rng, FAULTS),
        changes=_some(rng, CHANGES if elastic else CHANGES[:2]),
        pin_handover=rng.choice(("drain", "immediate")),
    )


def draw_handler(seed: int) -> str:
    """What kind of handler a seed has."""
    return random.Random(f"handler of {seed}").choice(HANDLERS)


def draw_far(seed: int, genre: str) -> Far:
    """How far a seed's members are: as a rule beside the server; elsewhere only where no time is bounded."""
    rng = random.Random(f"link of {seed}")
    return rng.choice(LINKS) if genre == "wild" and rng.random() < 0.25 else NEAR


def _some(rng: random.Random, names: Sequence[str]) -> tuple[str, ...]:
    """A few of them, so that what is rare among many is frequent in some seeds."""
    return tuple(rng.sample(names, rng.randrange(1, min(4, len(names)) + 1)))
