"""Counters and histograms as plain numbers, written in Prometheus's text format on request.

Labels are channels, consumers, outcomes, status classes: never ids of messages or jobs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from operator import add
from typing import Final

from ..exposition import Labels, described, label_text

__all__ = ["BOUNDS_S", "HELP", "Metrics", "Page"]

HELP: Final[dict[str, tuple[str, str]]] = {
    "jobs_published_total": ("counter", "Messages taken, by channel."),
    "jobs_enqueued_total": ("counter", "Jobs made by fan-out, by channel."),
    "jobs_claimed_total": ("counter", "Jobs handed out, under a lease or by the specified route."),
    "jobs_completed_total": (
        "counter",
        "Claims that ended with a word, by outcome; refused: items that were rejected.",
    ),
    "jobs_retries_total": ("counter", "Jobs that failed or timed out and will be tried again."),
    "jobs_dead_total": ("counter", "Jobs that became dead letters, by cause."),
    "jobs_lease_expired_total": ("counter", "Leases that ended without a word."),
    "jobs_queue_depth": ("gauge", "Jobs by state."),
    "jobs_oldest_ready_age_seconds": (
        "gauge",
        "Age of the oldest job that could be handed out now, whatever its priority.",
    ),
    "jobs_claim_duration_seconds": ("histogram", "Time of a claim in the database."),
    "jobs_end_to_end_seconds": ("histogram", "From the broadcast to the delivery of push jobs."),
    "jobs_events_total": ("counter", "Events, by kind."),
    "push_attempts_total": ("counter", "Calls of endpoints, by class of the status."),
    "push_attempt_duration_seconds": ("histogram", "Duration of calls of endpoints."),
    "push_unexpected_total": (
        "counter",
        "Push attempts that ended in an error nobody expected; the log has it.",
    ),
    "push_breaker_state": ("gauge", "0 closed, 1 half open, 2 open."),
    "jobs_audit_left_out_total": (
        "counter",
        "Refusals that the audit log does not tell: too many in a minute.",
    ),
    "jobs_wrong_tokens_total": (
        "counter",
        "Wrong tokens and keys, by what they were for; unseen: after too many from an address.",
    ),
    "jobs_part_failures_total": ("counter", "Failures of what works by itself, by part."),
    "jobs_part_failing": ("gauge", "1 while a part fails and waits to be tried again."),
    "jobs_feed_lag": ("gauge", "Messages of a stream that a feed has still to make jobs of."),
    "jobs_feed_sequence": ("gauge", "The sequence in its stream up to which a feed has made jobs."),
    "jobs_feed_blocked": (
        "gauge",
        "1 while a feed waits, since its channel has as many unfinished jobs as it may.",
    ),
    "scheduler_lag_seconds": ("gauge", "How late the last scheduled message was."),
    "prune_rows_total": ("counter", "Rows removed by retention, by table."),
    "jobs_left_out_series": ("gauge", "Series beyond those shown."),
}

BOUNDS_S: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)


_PARTS: Final = len(BOUNDS_S) + 3
"""Series of a histogram: its bounds, no bound, the sum, the count."""
_NAMING: Final = frozenset(("channel", "consumer", "feed", "part"))
_MOST: Final = frozenset(
    (
        "jobs_feed_sequence",
        "jobs_oldest_ready_age_seconds",
        "push_breaker_state",
        "scheduler_lag_seconds",
    )
)


class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total = 0.0


class Metrics:
    """The numbers of one process. Used from the event loop only."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], _Histogram] = {}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Increase a counter."""
        key = (name, tuple(labels.items()))
        self._numbers[key] = self._numbers.get(key, 0) + amount

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._numbers[name, tuple(labels.items())] = value

    def forget(self, name: str, **labels: str) -> None:
        """Drop every value of a gauge, before it is set again; with ``labels``, the one that has these."""
        wanted = tuple(labels.items())
        for key in [key for key in self._numbers if key[0] == name]:
            if not wanted or key[1] == wanted:
                del self._numbers[key]

    def named(self) -> frozenset[tuple[str, str]]:
        """The channels and consumers that numbers name; "" for a consumer where only a channel is named."""
        labels = {labels for _, labels in (*self._numbers, *self._histograms)}
        told = [dict(each) for each in labels]
        return frozenset(
            (each["channel"], each.get("consumer", "")) for each in told if "channel" in each
        )

    def retire(self, gone: Collection[tuple[str, str]]) -> None:
        """Take the names of these, as in ``named``, off what they have counted; their gauges go."""
        for key in [key for key in self._numbers if _names_one(key[1], gone)]:
            value = self._numbers.pop(key)
            if HELP[key[0]][0] == "counter":  # or the totals would begin anew
                self.add(key[0], value, **dict(_unnamed(key[1])))
        for key in [key for key in self._histograms if _names_one(key[1], gone)]:
            retired = self._histograms.pop(key)
            kept = self._histograms.setdefault((key[0], _unnamed(key[1])), _Histogram())
            kept.counts = [*map(add, kept.counts, retired.counts)]
            kept.total += retired.total

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a duration to a histogram."""
        key = (name, tuple(labels.items()))
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = _Histogram()
        histogram.counts[bisect_left(BOUNDS_S, seconds)] += 1
        histogram.total += seconds

    def numbers(self, name: str) -> dict[Labels, float]:
        """The values of a counter or a gauge, by its labels."""
        return {labels: value for (found, labels), value in self._numbers.items() if found == name}

    def histograms(self, name: str) -> dict[Labels, tuple[int, ...]]:
        """Count of each part of a histogram, by its labels: up to a bound, and above the last."""
        return {
            labels: tuple(histogram.counts)
            for (found, labels), histogram in self._histograms.items()
            if found == name
        }

    def page(self) -> Page:
        """Copy what is counted now; other threads may read it and add to it."""
        made = Page()
        for (name, labels), value in self._numbers.items():
            made.numbers.setdefault(name, {})[labels] = value
        for (name, labels), histogram in self._histograms.items():
            told = (*histogram.counts, histogram.total)
            made.histograms.setdefault(name, {})[labels] = told
        return made


class Page:
    """The numbers of a moment, by name and labels; of a histogram the counts of its parts, and its sum."""

    def __init__(self) -> None:
        self.numbers: dict[str, dict[Labels, float]] = {}
        self.histograms: dict[str, dict[Labels, tuple[float, ...]]] = {}
        self.left_out = 0

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self.numbers.setdefault(name, {})[tuple(labels.items())] = value

    def totals(self) -> Page:
        """Sums, of some gauges the most, without the names of channels, consumers, feeds and parts."""
        made = Page()
        for name, numbers in self.numbers.items():
            sums = made.numbers.setdefault(name, {})
            for labels, value in numbers.items():
                key = _unnamed(labels)
                before = sums.get(key, 0.0)
                sums[key] = max(before, value) if name in _MOST else before + value
        for name, histograms in self.histograms.items():
            parts = made.histograms.setdefault(name, {})
            for labels, counts in histograms.items():
                key = _unnamed(labels)
                known = parts.get(key, (0,) * len(counts))
                parts[key] = tuple(map(add, known, counts))
        return made

    def text(self, most: int) -> str:
        """Write all of it in Prometheus's text format 0.0.4; of each metric so many series at most."""
        lines = []
        left_out = self.left_out
        for name, (kind, help_text) in HELP.items():
            lines += described(name, kind, help_text)
            numbers = sorted(self.numbers.get(name, {}).items())
            lines += [
                f"{name}{label_text(labels)} {value:.10g}" for labels, value in numbers[:most]
            ]
            histograms = sorted(self.histograms.get(name, {}).items())
            whole = max(1, most // _PARTS)
            for labels, counts in histograms[:whole]:
                lines += _histogram_lines(name, labels, counts)
            left_out += max(0, len(numbers) - most) + max(0, len(histograms) - whole) * _PARTS
        lines.append(f"jobs_left_out_series {left_out}")  # the last one in HELP
        return "\n".join(lines) + "\n"


def _names_one(labels: Labels, gone: Collection[tuple[str, str]]) -> bool:
    told = dict(labels)
    return (told.get("channel", ""), told.get("consumer", "")) in gone


def _unnamed(labels: Labels) -> Labels:
    return tuple((name, value) for name, value in labels if name not in _NAMING)


def _histogram_lines(name: str, labels: Labels, counts: tuple[float, ...]) -> Iterable[str]:
    below = 0.0
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), counts[:-1], strict=True):
        below += count
        yield f"{name}_bucket{label_text((*labels, ('le', bound)))} {below:.0f}"
    yield f"{name}_sum{label_text(labels)} {counts[-1]:.10g}"
    yield f"{name}_count{label_text(labels)} {below:.0f}"
