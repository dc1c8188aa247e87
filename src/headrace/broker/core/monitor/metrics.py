"""The server's numbers in Prometheus' text format: stable names, documented in docs/metrics.md.

What can be many, streams and consumers, is shown up to a number each and counted beyond it, so that one page
costs a bounded time of the loop that serves everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ...._version import __version__
from ....api.consumers import ConsumerInfo
from ....api.roles import shows_progress
from ....api.streams import StreamInfo
from ....api.times import parse_time
from ....exposition import Labels, Metric, described, label_text
from ....findings.account import judge_account
from ....findings.consumers import judge_consumer
from ....findings.finding import Finding, Findings, samples
from ....findings.streams import judge_stream
from .connections import Monitored
from .server import jsz, varz

STREAMS_MAX: Final = 500
CONSUMERS_MAX: Final = 500  # with as many streams, some 30 ms of the loop for a page

Sample = tuple[Labels, float]


class _Look(NamedTuple):
    """What one page is made of."""

    server: Mapping[str, Any]
    jetstream: Mapping[str, Any]
    streams: list[tuple[Labels, Mapping[str, Any]]]
    consumers: list[tuple[Labels, Mapping[str, Any]]]
    healthy: bool
    now_s: float
    clock_jumps: int
    clock_held_s: float
    found: dict[str, list[Finding]]
    """By account."""


Read = Callable[[_Look], Iterable[Sample]]


def _server(key: str) -> Read:
    return lambda look: [((), look.server[key])] if key in look.server else []


def _jetstream(key: str) -> Read:
    return lambda look: [((), look.jetstream[key])] if key in look.jetstream else []


def _stream(read: Callable[[Mapping[str, Any]], float]) -> Read:
    return lambda look: [(labels, read(each["state"])) for labels, each in look.streams]


def _limit(name: str) -> Read:
    """A limit of the streams that have one."""
    return lambda look: [
        (labels, float(limit))
        for labels, each in look.streams
        if (limit := (each.get("config") or {}).get(name, -1)) > 0
    ]


def _consumer(read: Callable[[Mapping[str, Any]], float]) -> Read:
    return lambda look: [(labels, read(each)) for labels, each in look.consumers]


def _number(name: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda document: float(document.get(name, 0))


def _lost(state: Mapping[str, Any]) -> float:
    return float(len((state.get("lost") or {}).get("msgs") or ()))


def _time_of(name: str) -> Callable[[Mapping[str, Any]], float]:
    def read(state: Mapping[str, Any]) -> float:
        text = state.get(name, "")
        return parse_time(text) / 1e9 if state.get("messages") and text else 0.0

    return read


def _ahead(look: _Look) -> Iterator[Sample]:
    newest = _time_of("last_ts")
    for labels, each in look.streams:
        yield labels, max(0.0, newest(each["state"]) - look.now_s)


def _pinned(look: _Look) -> Iterator[Sample]:
    for labels, each in look.consumers:
        for group in each.get("priority_groups", ()):
            yield (*labels, ("group", group["group"])), float(bool(group.get("pinned_client_id")))


_READ: Final[dict[Metric, Read]] = {
    Metric("info", "gauge", "1, with the version."): lambda look: [
        ((("version", __version__), ("server", look.server["server_name"])), 1.0)
    ],
    Metric("healthy", "gauge", "1 while the store takes messages, else 0."): lambda look: [
        ((), float(look.healthy))
    ],
    Metric("start_time_seconds", "gauge", "When the broker started, since 1970."): lambda look: [
        ((), parse_time(look.server["start"]) / 1e9)
    ],
    Metric(
        "clock_jumps_total", "counter", "Times that the time of day was set, and followed."
    ): lambda look: [((), look.clock_jumps)],
    Metric(
        "clock_held_seconds",
        "gauge",
        "How much a jump of the time of day is that is not followed yet.",
    ): lambda look: [((), look.clock_held_s)],
    Metric("memory_bytes", "gauge", "Memory of the process."): _server("mem"),
    Metric("connections", "gauge", "Clients connected now."): _server("connections"),
    Metric("connections_total", "counter", "Clients that have connected."): _server(
        "total_connections"
    ),
    Metric("subscriptions", "gauge", "Subscriptions of all clients."): _server("subscriptions"),
    Metric(
        "slow_consumers_total", "counter", "Clients cut off because they did not read."
    ): _server("slow_consumers"),
    Metric("in_messages_total", "counter", "Messages from clients."): _server("in_msgs"),
    Metric("in_bytes_total", "counter", "Bytes of messages from clients."): _server("in_bytes"),
    Metric("out_messages_total", "counter", "Messages to clients."): _server("out_msgs"),
    Metric("out_bytes_total", "counter", "Bytes of messages to clients."): _server("out_bytes"),
    Metric("store_streams", "gauge", "Streams of all accounts."): _jetstream("streams"),
    Metric("store_consumers", "gauge", "Consumers of all accounts."): _jetstream("consumers"),
    Metric("store_messages", "gauge", "Messages stored."): _jetstream("messages"),
    Metric("store_bytes", "gauge", "Bytes stored, by the accounting of JetStream."): _jetstream(
        "bytes"
    ),
    Metric("stream_messages", "gauge", "Messages of a stream."): _stream(_number("messages")),
    Metric("stream_bytes", "gauge", "Bytes of a stream."): _stream(_number("bytes")),
    Metric("stream_last_sequence", "gauge", "The sequence of the newest message."): _stream(
        _number("last_seq")
    ),
    Metric(
        "stream_last_message_time_seconds", "gauge", "When the newest message came, since 1970."
    ): _stream(_time_of("last_ts")),
    Metric(
        "stream_ahead_seconds", "gauge", "How far a stream's newest message is ahead of the clock."
    ): _ahead,
    Metric("stream_subjects", "gauge", "Subjects with messages."): _stream(_number("num_subjects")),
    Metric("stream_consumers", "gauge", "Consumers of a stream."): _stream(
        _number("consumer_count")
    ),
    Metric("stream_limit_messages", "gauge", "Messages that a stream may have."): _limit(
        "max_msgs"
    ),
    Metric("stream_limit_bytes", "gauge", "Bytes that a stream may have."): _limit("max_bytes"),
    Metric(
        "stream_lost_messages",
        "gauge",
        "Messages that damage has taken, as far as found: up to 1,000.",
    ): _stream(_lost),
    Metric(
        "consumer_pending_messages", "gauge", "Messages that wait: not delivered yet."
    ): _consumer(_number("num_pending")),
    Metric("consumer_ack_pending_messages", "gauge", "Delivered and not acknowledged."): _consumer(
        _number("num_ack_pending")
    ),
    Metric(
        "consumer_redelivered_messages", "gauge", "Of these, delivered more than once."
    ): _consumer(_number("num_redelivered")),
    Metric(
        "consumer_waiting_pulls", "gauge", "Pull requests that wait; 0: nobody asks."
    ): _consumer(_number("num_waiting")),
    Metric(
        "consumer_delivered_messages_total", "counter", "Deliveries, repeated ones included."
    ): _consumer(lambda each: float((each.get("delivered") or {}).get("consumer_seq", 0))),
    Metric("consumer_paused", "gauge", "1 while a consumer is paused, else 0."): _consumer(
        lambda each: float(bool(each.get("paused")))
    ),
    Metric(
        "consumer_shows_progress",
        "gauge",
        "1 where a Spark query shows its progress, which nobody pulls, else 0.",
    ): _consumer(lambda each: float(shows_progress((each.get("config") or {}).get("metadata")))),
    Metric(
        "consumer_pinned", "gauge", "1 while a client of a priority group is pinned, else 0."
    ): _pinned,
    Metric(
        "finding", "gauge", "1 for each finding: what headrace doctor would say."
    ): lambda look: [
        ((("account", account), *labels), value)
        for account, found in look.found.items()
        for labels, value in samples(found)
    ],
    Metric("left_out_series", "gauge", "Streams and consumers beyond those shown."): lambda look: [
        ((("of", "streams"),), max(0.0, look.jetstream.get("streams", 0) - len(look.streams))),
        (
            (("of", "consumers"),),
            max(0.0, look.jetstream.get("consumers", 0) - len(look.consumers)),
        ),
    ],
}

_DURATIONS: Final = {
    "commits": Metric(
        "commit_seconds", "histogram", "How long commits took; acknowledgements wait for them."
    ),
    "syncs": Metric("sync_seconds", "histogram", "How long the disk took to sync, within commits."),
}

METRICS: Final = (*_READ, *_DURATIONS.values())
"""Every metric; names begin with ``headrace_``."""


def metrics(hub: Monitored, process: Mapping[str, Any] | None = None) -> str:
    """The page. ``process`` adds what only the shell knows, such as memory."""
    look = _take(hub, process)
    lines: list[str] = []
    for metric, read in _READ.items():
        name = f"headrace_{metric.name}"
        lines += described(name, metric.kind, metric.meaning)
        lines += [f"{name}{label_text(labels)} {_text(value)}" for labels, value in read(look)]
    for key, metric in _DURATIONS.items():
        if key in look.jetstream:
            name = f"headrace_{metric.name}"
            lines += described(name, metric.kind, metric.meaning)
            lines += _histogram(name, look.jetstream[key])
    return "\n".join(lines) + "\n"


def _take(hub: Monitored, process: Mapping[str, Any] | None) -> _Look:
    streams: list[tuple[Labels, Mapping[str, Any]]] = []
    consumers: list[tuple[Labels, Mapping[str, Any]]] = []
    found: dict[str, list[Finding]] = {}
    now = datetime.fromtimestamp(hub.clock.now_ns() / 1e9, UTC)
    for account in hub.accounts:
        if account.engine is None:
            continue
        findings = Findings()

        def judge(
            stream: StreamInfo, found: list[ConsumerInfo], findings: Findings = findings
        ) -> None:
            judge_stream(findings, stream, found)
            for consumer in found:
                judge_consumer(findings, consumer, now)

        details = account.engine.details(
            consumers=True,
            config=True,
            streams_max=STREAMS_MAX - len(streams),
            consumers_max=CONSUMERS_MAX - len(consumers),
            judge=judge,
        )
        judge_account(findings, account.engine.account_info())
        found[account.name] = findings.found
        for each in details:
            labels: Labels = (("account", account.name), ("stream", each["name"]))
            streams.append((labels, each))
            consumers += [
                ((*labels, ("consumer", consumer["name"])), consumer)
                for consumer in each["consumer_detail"]
            ]
    return _Look(
        varz(hub, process),
        jsz(hub),
        streams,
        consumers,
        healthy=hub.storage_error is None,
        now_s=hub.clock.now_ns() / 1e9,
        clock_jumps=hub.clock.jumps,
        clock_held_s=hub.clock.held_ns / 1e9,
        found=found,
    )


def _histogram(name: str, durations: Mapping[str, Any]) -> list[str]:
    lines = [
        f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in durations["at_most"].items()
    ]
    return [
        *lines,
        f'{name}_bucket{{le="+Inf"}} {durations["count"]}',
        f"{name}_sum {_text(durations['seconds'])}",
        f"{name}_count {durations['count']}",
    ]


def _text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
