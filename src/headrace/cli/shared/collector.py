"""The garbage collector of a broker's process: it passes over few objects at once, and seldom over all."""

from __future__ import annotations

import gc
from typing import Final

__all__ = ["tune_collector"]

YOUNG: Final = 2_000
"""Objects more than there were, for a pass over the youngest."""
YOUNG_PASSES: Final = 2
"""After so many the next pass is over those that outlived them, too. One over 100,000 objects stops everybody
for 15 to 70 ms, one over 6,000 for a millisecond or two; it takes less for each, as they are in the cache."""
OLD_PASSES: Final = 125_000
"""After so many of those the next one is over all objects."""


def tune_collector() -> None:
    """Collect garbage in small passes: there are millions of messages, and what ends in a broker is no cycle.

    What is one, and outlives two passes, stays until the pass over all objects. The settings are the whole
    process's, so a broker within another program leaves them alone.
    """
    gc.freeze()
    gc.set_threshold(YOUNG, YOUNG_PASSES, OLD_PASSES)
