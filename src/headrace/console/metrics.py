"""The newest look in Prometheus' text format: names are stable, documented in docs/metrics.md. Pure.

They begin with ``headrace_console_``, apart from the broker's own: with nats-server these are the only ones,
and with our broker both may be scraped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..api.pipelines import STATES as RUNNERS_STATES
from ..api.pipelines import PipelineRecord
from ..api.roles import shows_progress
from ..api.times import parse_time
from ..exposition import Labels, Metric, described, label_text
from ..findings.finding import Finding, samples
from .look import GroupKey, Look
from .pipelines import queries_of, state_of

__all__ = ["METRICS", "SERIES_MAX", "Console", "prometheus"]

STATES: Final = (*RUNNERS_STATES, "silent")
"""States of a pipeline's query. ``silent``: its runner was killed, or cannot reach the server."""
SERIES_MAX: Final = (
    1_000  # streams, and as many consumers, groups and queries; the others are counted
)


class Console(NamedTuple):
    """Parts of a page.

    Attributes:
        look: the newest that succeeded.
        age_s: seconds since it was taken.
        looks: how many were tried.
        healthy: whether the newest try succeeded.
        followers: browsers that are kept up to date.
        found: what is wrong in it.
    """

    look: Look
    age_s: float
    looks: int
    healthy: bool
    followers: int
    found: Sequence[Finding] = ()


Sample = tuple[Labels, float | None]
Read = Callable[["_Page"], Iterable[Sample]]


class _Page(NamedTuple):
    console: Console
    streams: Sequence[tuple[Labels, Any]]
    consumers: Sequence[tuple[Labels, Any]]
    groups: Sequence[tuple[Labels, Any]]
    queries: Sequence[tuple[Labels, Any]]
    runs: Sequence[tuple[Labels, Any]]
    pipelines: Sequence[tuple[Labels, Any]]


def _console(read: Callable[[Console], float]) -> Read:
    return lambda page: [((), read(page.console))]


def _streams(read: Callable[[Any], float]) -> Read:
    return lambda page: [(labels, read(each)) for labels, each in page.streams]


def _consumers(read: Callable[[Any], float]) -> Read:
    return lambda page: [(labels, read(each)) for labels, each in page.consumers]


def _groups(read: Callable[[Any], float | None]) -> Read:
    return lambda page: [(labels, read(each)) for labels, each in page.groups]


def _queries(read: Callable[[Any], float | None]) -> Read:
    return lambda page: [(labels, read(each)) for labels, each in page.queries]


def _runs(read: Callable[[Any], float | None]) -> Read:
    return lambda page: [(labels, read(each)) for labels, each in page.runs]


def _pipelines(read: Callable[[Any, float], float | None]) -> Read:
    def samples(page: _Page) -> Iterable[Sample]:
        now = page.console.look.at_s + page.console.age_s
        return [(labels, read(each, now)) for labels, each in page.pipelines]

    return samples


def _states(page: _Page) -> Iterable[Sample]:
    now = page.console.look.at_s
    for labels, (record, query) in page.runs:
        state = state_of(record, query, now)
        yield from ((((*labels, ("state", each)), float(each == state))) for each in STATES)


def _left_out(page: _Page) -> Iterable[Sample]:
    look = page.console.look
    for of, count, shown in (
        ("streams", len(look.streams), page.streams),
        ("consumers", len(look.consumers) + look.unseen, page.consumers),
        ("groups", len(look.groups), page.groups),
        ("queries", len(look.ages), page.queries),
        ("pipeline queries", sum(1 for _ in queries_of(look.pipelines)), page.runs),
        ("findings", len(page.console.found), samples(page.console.found)),
    ):
        yield (("of", of),), float(count - len(shown))


_READ: Final[dict[Metric, Read]] = {
    Metric("healthy", "gauge", "1 if the server answered the newest look, else 0."): _console(
        lambda console: float(console.healthy)
    ),
    Metric("look_age_seconds", "gauge", "How old these numbers are."): _console(
        lambda console: console.age_s
    ),
    Metric("looks_total", "counter", "Looks at the server, failed ones included."): _console(
        lambda console: float(console.looks)
    ),
    Metric("followers", "gauge", "Browsers that are kept up to date."): _console(
        lambda console: float(console.followers)
    ),
    Metric("stream_messages", "gauge", "Messages of a stream."): _streams(
        lambda info: float(info.state.messages)
    ),
    Metric("stream_bytes", "gauge", "Bytes of a stream."): _streams(
        lambda info: float(info.state.bytes)
    ),
    Metric("stream_last_sequence", "gauge", "The sequence of the newest message."): _streams(
        lambda info: float(info.state.last_seq)
    ),
    Metric(
        "stream_last_message_time_seconds", "gauge", "When the newest message came, since 1970."
    ): _streams(lambda info: parse_time(info.state.last_ts) / 1e9 if info.state.messages else 0.0),
    Metric("stream_consumers", "gauge", "Consumers of a stream."): _streams(
        lambda info: float(info.state.consumer_count)
    ),
    Metric(
        "consumer_pending_messages", "gauge", "Messages that wait: not delivered yet."
    ): _consumers(lambda info: float(info.num_pending)),
    Metric("consumer_ack_pending_messages", "gauge", "Delivered and not acknowledged."): _consumers(
        lambda info: float(info.num_ack_pending)
    ),
    Metric(
        "consumer_redelivered_messages", "gauge", "Of these, delivered more than once."
    ): _consumers(lambda info: float(info.num_redelivered)),
    Metric(
        "consumer_waiting_pulls", "gauge", "Pull requests that wait; 0: nobody asks."
    ): _consumers(lambda info: float(info.num_waiting)),
    Metric(
        "consumer_delivered_messages_total", "counter", "Deliveries, repeated ones included."
    ): _consumers(lambda info: float(info.delivered.consumer_seq)),
    Metric("consumer_paused", "gauge", "1 while a consumer is paused, else 0."): _consumers(
        lambda info: float(info.paused)
    ),
    Metric(
        "consumer_shows_progress",
        "gauge",
        "1 where a Spark query shows its progress, which nobody pulls, else 0.",
    ): _consumers(lambda info: float(shows_progress(info.config.metadata))),
    Metric(
        "group_lag_messages", "gauge", "Messages not handled yet: the lag, at the source too."
    ): _groups(lambda look: look.lag),
    Metric("group_oldest_seconds", "gauge", "How long the first message has waited."): _groups(
        lambda look: 0.0 if look.lag == 0 else look.oldest_s
    ),
    Metric(
        "query_behind_messages", "gauge", "Messages that wait for a Spark query: its lag."
    ): _queries(lambda each: float(each[0].num_pending)),
    Metric("query_behind_seconds", "gauge", "How old the first of these is."): _queries(
        lambda each: each[1]
    ),
    Metric(
        "pipeline_silent_seconds", "gauge", "How long a pipeline that runs has said nothing."
    ): _pipelines(lambda each, now: each.silent_s(now)),
    Metric("pipeline_state", "gauge", "1 for the state that a query is in, 0 for others."): _states,
    Metric("pipeline_behind_messages", "gauge", "Lag of a pipeline's query, in messages."): _runs(
        lambda each: each[1].behind
    ),
    Metric("pipeline_batch_seconds", "gauge", "How long its newest batch took."): _runs(
        lambda each: each[1].batch_s if each[1].last_batch else None
    ),
    Metric("pipeline_last_batch_time_seconds", "gauge", "When that ended, since 1970."): _runs(
        lambda each: each[1].last_batch or None
    ),
    Metric("pipeline_rows_total", "counter", "Rows that it read."): _runs(
        lambda each: each[1].rows
    ),
    Metric("pipeline_restarts_total", "counter", "Starts after a failure, in its run."): _runs(
        lambda each: each[1].restarts
    ),
    Metric("pipeline_failures", "gauge", "Failures since a batch ended; 0 if all is well."): _runs(
        lambda each: each[1].failures
    ),
    Metric(
        "pipeline_lost_messages_total", "counter", "Messages removed unread, at most, in its run."
    ): _runs(lambda each: each[1].lost),
    Metric(
        "finding", "gauge", "1 for each finding: what headrace doctor would say."
    ): lambda page: samples(page.console.found),
    Metric("left_out_series", "gauge", "Series beyond those shown, or not looked at."): _left_out,
}

METRICS: Final = tuple(_READ)
"""Every metric. The names stay as they are."""


def prometheus(console: Console) -> str:
    """The page. Series are shown in the order of their names; what is not known is left out."""
    page = _page(console)
    lines: list[str] = []
    for metric, read in _READ.items():
        name = f"headrace_console_{metric.name}"
        lines += described(name, metric.kind, metric.meaning)
        lines += [
            f"{name}{label_text(labels)} {value:.15g}"
            for labels, value in read(page)
            if value is not None
        ]
    return "\n".join(lines) + "\n"


def _page(console: Console) -> _Page:
    look = console.look

    def first(items: Mapping[Any, Any]) -> list[Any]:
        return sorted(items)[:SERIES_MAX]

    def consumer(key: tuple[str, str]) -> Labels:
        return ("stream", key[0]), ("consumer", key[1])

    def group(key: GroupKey) -> Labels:
        return ("stream", key.stream), ("group", key.group), ("kind", key.kind)

    def pipeline(key: str, record: PipelineRecord) -> Labels:
        return ("pipeline", record.name), ("key", key)

    return _Page(
        console,
        [((("stream", name),), look.streams[name]) for name in first(look.streams)],
        [(consumer(key), look.consumers[key]) for key in first(look.consumers)],
        [(group(key), look.groups[key]) for key in first(look.groups)],
        [
            ((("stream", key[0]), ("query", key[1])), (look.consumers[key], look.ages[key]))
            for key in first(look.ages)
        ],
        [
            ((*pipeline(key, record), ("query", name)), (record, query))
            for key, name, record, query in list(queries_of(look.pipelines))[:SERIES_MAX]
        ],
        [
            (pipeline(key, look.pipelines[key]), look.pipelines[key])
            for key in first(look.pipelines)
        ],
    )
