"""The numbers of a worker, in Prometheus' text format. Its handlers count, on whatever thread they run."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..exposition import Labels, Metric, described, label_text

BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
PREFIX: Final = "headrace_worker_"
SECONDS: Final = Metric("handler_seconds", "histogram", "How long handlers ran.")


class Tally:
    """What the handlers of one source have done."""

    __slots__ = ("_lock", "buckets", "failed", "handled", "in_hand", "misfits", "seconds")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0
        self.handled = self.failed = self.misfits = self.in_hand = 0

    def began(self) -> None:
        """A handler was called."""
        with self._lock:
            self.in_hand += 1

    def ended(self, seconds: float, *, failed: bool, misfit: bool = False) -> None:
        """It has returned, or raised."""
        with self._lock:
            self.in_hand -= 1
            self.seconds += seconds
            self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
            self.handled += not failed
            self.failed += failed
            self.misfits += misfit


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNumbers:
    """What else is known of a source, as far as it is.

    Attributes:
        is_well: whether messages can come.
        buffered, retries, dead_letters: of a consumer; None of a group.
        lag, unacknowledged: what the server said last; None: nothing yet.
    """

    is_well: bool
    buffered: int | None = None
    retries: int | None = None
    dead_letters: int | None = None
    lag: int | None = None
    unacknowledged: int | None = None


class Row(NamedTuple):
    """One source: its labels, its tally, its numbers."""

    labels: Labels
    tally: Tally
    numbers: SourceNumbers


METRICS: Final = (
    Metric("up", "gauge", "1 if messages can come from the source, else 0."),
    Metric("handled_total", "counter", "Messages whose handler returned."),
    Metric("failed_total", "counter", "How often a handler raised, misfits among them."),
    Metric("misfits_total", "counter", "Messages that did not fit what the handler takes."),
    Metric("in_hand", "gauge", "Messages that are being handled."),
    Metric("buffered", "gauge", "Messages that came and wait for a handler."),
    Metric("retries_total", "counter", "How often a message waited for another attempt."),
    Metric("dead_letters_total", "counter", "Messages that were put elsewhere."),
    Metric("lag_messages", "gauge", "Messages that wait: not delivered yet."),
    Metric("unacknowledged_messages", "gauge", "Messages delivered and not acknowledged."),
)
"""Beside the histogram. The names stay as they are."""


def prometheus(rows: Iterable[Row]) -> str:
    """The page of these sources; what is not known is left out."""
    taken = list(rows)
    lines: list[str] = []
    for metric in METRICS:
        name = PREFIX + metric.name
        lines += described(name, metric.kind, metric.meaning)
        for row in taken:
            if (value := _value(row, metric.name)) is not None:
                lines.append(f"{name}{label_text(row.labels)} {value}")
    lines += described(PREFIX + SECONDS.name, SECONDS.kind, SECONDS.meaning)
    for row in taken:
        lines += _histogram(row)
    return "\n".join(lines) + "\n"


def _value(row: Row, name: str) -> int | None:
    tally, numbers = row.tally, row.numbers
    values: dict[str, int | None] = {
        "up": int(numbers.is_well),
        "handled_total": tally.handled,
        "failed_total": tally.failed,
        "misfits_total": tally.misfits,
        "in_hand": tally.in_hand,
        "buffered": numbers.buffered,
        "retries_total": numbers.retries,
        "dead_letters_total": numbers.dead_letters,
        "lag_messages": numbers.lag,
        "unacknowledged_messages": numbers.unacknowledged,
    }
    return values[name]


def _histogram(row: Row) -> Iterator[str]:
    name, count = PREFIX + SECONDS.name, 0
    for bound, many in zip((*map(str, BOUNDS_S), "+Inf"), row.tally.buckets, strict=True):
        count += many
        yield f"{name}_bucket{label_text((*row.labels, ('le', bound)))} {count}"
    yield f"{name}_sum{label_text(row.labels)} {row.tally.seconds:.6f}"
    yield f"{name}_count{label_text(row.labels)} {count}"
