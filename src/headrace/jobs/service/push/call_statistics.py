"""Statistics of calls of endpoints over the last day, from all processes: how long, how many failed.

A process counts its calls in its metrics anyhow. What has been added since it last told is added to the
database every few seconds, in slots of some minutes: nothing is written for a call by itself, and nothing
where no call was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ... import limits
from ...metrics import BOUNDS_S, Metrics
from ...store import Tx

__all__ = ["Slot", "Teller", "add", "prune", "slots_of"]

FAILED: Final = -1
"""Instead of a number of a part of the histogram."""

_SLOT_US: Final = limits.CALLS_SLOT_S * 1_000_000
_WELL: Final = "2xx"

Key = tuple[str, str, int]
"""Channel, consumer, and the part of the histogram, or ``FAILED``."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Calls from ``at_us`` on. Half of them took ``p50_s`` at most, 95 % ``p95_s``."""

    at_us: int
    calls: int
    failed: int
    p50_s: float
    p95_s: float


class Teller:
    """Tells the database what one process has counted."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._told: dict[Key, int] = {}

    def news(self) -> tuple[str, dict[Key, int]]:
        """Return what to add, empty if there is nothing; and what has been told once it is stored."""
        counted = _counted(self._metrics)
        items = [
            {
                "channel": key[0],
                "consumer": key[1],
                "bucket": key[2],
                "n": n - self._told.get(key, 0),
            }
            for key, n in sorted(counted.items())
            if n > self._told.get(key, 0)
        ]
        return json.dumps(items) if items else "", counted

    def told(self, counted: dict[Key, int]) -> None:
        """Note that all of this is stored."""
        self._told = counted


def _counted(metrics: Metrics) -> dict[Key, int]:
    counted: dict[Key, int] = {}
    for labels, counts in metrics.histograms("push_attempt_duration_seconds").items():
        named = dict(labels)
        for bucket, n in enumerate(counts):
            if n and "channel" in named:  # else of what was deleted
                counted[named["channel"], named["consumer"], bucket] = n
    for labels, value in metrics.numbers("push_attempts_total").items():
        named = dict(labels)
        if named["code_class"] != _WELL and "channel" in named:
            key = (named["channel"], named["consumer"], FAILED)
            counted[key] = counted.get(key, 0) + int(value)
    return counted


def add(tx: Tx, items: str) -> None:
    """Add what :meth:`Teller.news` returned; of consumers that are gone, nothing."""
    tx.run("add_calls", items=items, at_us=tx.now_us() // _SLOT_US * _SLOT_US)


def slots_of(tx: Tx, consumer_seq: int, seconds: int) -> list[Slot]:
    """The slots of the last ``seconds`` in which calls ended, oldest first."""
    since = (tx.now_us() - seconds * 1_000_000) // _SLOT_US * _SLOT_US
    slots: dict[int, dict[int, int]] = {}
    for row in tx.all("calls_of_consumer", consumer_seq=consumer_seq, since=since):
        slots.setdefault(row["at_us"], {})[row["bucket"]] = int(row["n"])
    return [_slot(at_us, counts) for at_us, counts in slots.items()]


def _slot(at_us: int, counts: Mapping[int, int]) -> Slot:
    took = [counts.get(bucket, 0) for bucket in range(len(BOUNDS_S) + 1)]
    return Slot(at_us, sum(took), counts.get(FAILED, 0), _share(took, 0.5), _share(took, 0.95))


def _share(took: Sequence[int], share: float) -> float:
    """Within how many seconds this share of calls ended, as evenly spread within each part."""
    left = share * sum(took)
    low = 0.0
    for count, bound in zip(took, BOUNDS_S, strict=False):
        if count and left <= count:
            return low + (bound - low) * left / count
        left -= count
        low = bound
    return low


def prune(tx: Tx, now: int) -> int:
    """Remove a limited number of rows that are too old. Returns how many."""
    before = now - limits.CALLS_KEPT_S * 1_000_000 - _SLOT_US
    return tx.run("prune_calls", before=before, n=limits.SWEEP_ROWS)
