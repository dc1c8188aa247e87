"""The metrics of a running pipeline, in Prometheus' text format, at an address of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...api.pipelines import STATES
from ...exposition import Labels, Metric, described, label_text
from ...spark.batches.lag import MetricsPage
from ..checkpoints.checkpoint import checkpoint_of
from ..checkpoints.totals import Totals
from .notes import QueryNotes, bystanders, this_process

if TYPE_CHECKING:
    from ...spark.lost_messages import Loss
    from ..checkpoints.totals import Batch
    from ..model import Declared
    from .recorder import Recorder

_PREFIX: Final = "headrace_pipeline_"


@dataclass
class Measured:
    """What is measured of a query. ``lost``: messages in this run, at most; ``last_batch``: its end."""

    totals: Totals = field(default_factory=lambda: Totals(None))
    lost: int = 0
    last_batch: float = 0.0


class _Query(NamedTuple):
    notes: QueryNotes
    measured: Measured


Read = Callable[[_Query], float | None]

METRICS: Final[tuple[tuple[Metric, Read], ...]] = (
    (Metric("behind_messages", "gauge", "The lag, in messages."), lambda q: q.notes.behind),
    (
        Metric("batch_seconds", "gauge", "How long the newest batch took."),
        lambda q: q.notes.batch_s if q.measured.last_batch else None,
    ),
    (
        Metric("last_batch_time_seconds", "gauge", "When a batch ended last, since 1970."),
        lambda q: q.measured.last_batch or None,
    ),
    (
        Metric("batches_total", "counter", "Batches of the generation."),
        lambda q: q.measured.totals.batches,
    ),
    (
        Metric("batch_seconds_total", "counter", "Time that these batches took."),
        lambda q: q.measured.totals.seconds,
    ),
    (Metric("rows_total", "counter", "Rows that were read."), lambda q: q.measured.totals.rows),
    (
        Metric("rows_out_total", "counter", "Rows that the sink was handed."),
        lambda q: q.measured.totals.rows_out,
    ),
    (
        Metric("late_rows_total", "counter", "Rows that came after the watermark."),
        lambda q: q.measured.totals.late,
    ),
    (
        Metric("lost_messages_total", "counter", "Messages removed unread, at most, in this run."),
        lambda q: q.measured.lost,
    ),
    (
        Metric("restarts_total", "counter", "Starts after a failure, in this run."),
        lambda q: q.notes.restarts,
    ),
    (
        Metric("failures", "gauge", "Failures since a batch ended; 0 if all is well."),
        lambda q: q.notes.failures,
    ),
)
STATE: Final = Metric("state", "gauge", "1 for the state that a query is in, 0 for others.")
STANDBYS: Final = Metric("standbys", "gauge", "Runners that stand by; ready: for taking over.")
FAILED: Final = Metric("failed_rows_total", "counter", "Rows that failed an expectation.")


class Meter:
    """Hears the events of a run, and serves its metrics while it is under way, if the file says where.

    Args:
        recorder: hears each event first; states are told as it has noted them.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        declared: Declared,
        recorder: Recorder,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._declared = declared
        self._recorder = recorder
        self._clock = clock
        self._queries = {name: Measured() for name in declared.sinks}
        self._page: MetricsPage | None = None

    @property
    def port(self) -> int:
        """Where the metrics are served; 0: nowhere."""
        return self._page.port if self._page is not None else 0

    def measured(self, query: str) -> Measured:
        """What was measured of a query so far."""
        return self._queries[query]

    def starting(self, what: str) -> None:
        """Serve. Raises ConfigurationError: the address cannot be used."""
        if self._declared.metrics is not None and self._page is None:
            others = "pipeline"
            where = "[metrics] address"
            self._page = MetricsPage(self._declared.metrics, where, others, self._standbys)
        self._show()

    def standby(self, holder: str, ready: object) -> None:
        self._show()

    def active(self, token: int, nobody_s: float | None) -> None:
        self._show()

    def started(self, query: str) -> None:
        measured = self._queries[query]
        if not measured.last_batch:
            generation = checkpoint_of(self._declared, query).current()
            measured.totals = Totals(generation.totals, is_new=generation.is_new)
        self._show()

    def waiting(self, query: str, why: str) -> None:
        self._show()

    def away(self, query: str, outage: object) -> None:
        self._show()

    def back(self, query: str) -> None:
        self._show()

    def restarting(self, query: str, attempt: int, cause: str, *more: object) -> None:
        self._show()

    def batch(self, batch: Batch, totals: Totals) -> None:
        measured = self._queries[batch.query]
        measured.totals, measured.last_batch = totals, self._clock()
        self._show()

    def lost(self, query: str, loss: Loss) -> None:
        self._queries[query].lost += loss.messages
        self._show()

    def ended(self, ended: Any) -> None:
        self._show()

    def close(self) -> None:
        """Stop serving."""
        if self._page is not None:
            self._page.close()
            self._page = None

    def _standbys(self) -> str:
        """How many runners stand by; nothing of a pipeline that has no lease."""
        if self._declared.lease is None:
            return ""
        there = bystanders(self._declared, this_process(), self._clock())
        ready = sum(each.is_ready for each in there)
        name = (("pipeline", self._declared.name),)
        counts = (("true", ready), ("false", len(there) - ready))
        samples = [((*name, ("ready", word)), float(count)) for word, count in counts]
        return "\n".join(_metric(STANDBYS, samples)) + "\n"

    def _show(self) -> None:
        if self._page is None:
            return
        notes = self._recorder.notes
        queries = {
            name: _Query(notes.of(name) if notes is not None else QueryNotes(), measured)
            for name, measured in self._queries.items()
        }
        self._page.text = prometheus(self._declared.name, queries)


def prometheus(pipeline: str, queries: Mapping[str, _Query]) -> str:
    """The page. A query of a runner that stands by is in no state; what is not known is left out."""
    lines: list[str] = []
    named = [((("pipeline", pipeline), ("query", name)), each) for name, each in queries.items()]
    for metric, read in METRICS:
        lines += _metric(metric, [(labels, read(each)) for labels, each in named])
    states = [
        ((*labels, ("state", state)), float(each.notes.state == state))
        for labels, each in named
        for state in STATES
    ]
    lines += _metric(STATE, states)
    failed = [
        ((*labels, ("view", view), ("expectation", expectation)), float(count))
        for labels, each in named
        for view, rows in each.measured.totals.views.items()
        for expectation, count in rows.failed.items()
    ]
    lines += _metric(FAILED, failed)
    return "\n".join(lines) + "\n"


def _metric(metric: Metric, samples: Iterable[tuple[Labels, float | None]]) -> list[str]:
    name = f"{_PREFIX}{metric.name}"
    shown = [
        f"{name}{label_text(labels)} {value}" for labels, value in samples if value is not None
    ]
    return [*described(name, metric.kind, metric.meaning), *shown]
