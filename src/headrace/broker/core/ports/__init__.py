"""What the core is handed, as protocols without behaviour.

``storage`` is durability (``broker.store`` matches it by shape), ``bus`` is the router as JetStream sees it,
``interest`` the question whether somebody listens, ``time`` timers and randomness. Begin with ``Bus`` and
``Storage``.
"""

from __future__ import annotations

from .bus import Bus, ManySink, Origin, RunSink, Sink, Target
from .interest import Elsewhere, Watch
from .storage import Finding, MetaJournal, Removal, Storage, StreamStore, Thinning
from .time import Randomness, Timer, Timers

__all__ = [
    "Bus",
    "Elsewhere",
    "Finding",
    "ManySink",
    "MetaJournal",
    "Origin",
    "Randomness",
    "Removal",
    "RunSink",
    "Sink",
    "Storage",
    "StreamStore",
    "Target",
    "Thinning",
    "Timer",
    "Timers",
    "Watch",
]
