"""What happened in a seed, line by line: ``python tests/sim/groups/story.py <seed> [--wire] [<cast>]``.

``<cast>`` is a dictionary of fields of the cast that are forced.
"""

from __future__ import annotations

import re
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from sim.groups.simulation import Simulation

__all__ = ["tell"]

_WIRE = re.compile(r"^\s*\S+ \d+ [<>]")


def tell(seed: int, *, wire: bool, **forced: Any) -> None:
    """Print the story of a seed, with what went over the wires or without."""
    simulation = Simulation(seed, **forced)
    universe = simulation.world.universe
    universe.story = []
    print(simulation.world.cast)
    failed = ""
    try:
        simulation.play()
    except AssertionError as error:
        failed = f"FAILED: {error}"
    finally:
        universe.bury()
    for line in universe.story:
        if wire or not _WIRE.match(line):
            print(line)
    print(failed or "held", f"(trace {universe.trace_hash:08x})")


if __name__ == "__main__":
    casts = [literal_eval(argument) for argument in sys.argv[2:] if argument[0] == "{"]
    tell(int(sys.argv[1]), wire="--wire" in sys.argv, **(casts[0] if casts else {}))
