"""One look at a server: its streams and consumers, what changed since the last; numbers over time. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ..api.consumers import ConsumerInfo
from ..api.streams import StreamInfo
from ..findings.consumers import judge_consumer
from ..findings.finding import Findings
from ..groups.progress import GroupLag, rates
from ..groups.record.records import ElasticGroup, StaticGroup
from .pipelines import Pipelines, queries_of

POINTS_MAX: Final = 900  # half an hour at a look every two seconds
SERIES_MAX: Final = 2_000  # of all kinds together; more are not followed


class History:
    """The newest numbers of many series, each under a key, as ``(time_s, values)``."""

    def __init__(self, points_max: int = POINTS_MAX, series_max: int = SERIES_MAX) -> None:
        self._points_max = points_max
        self._series_max = series_max
        self._series: dict[str, deque[tuple[float, dict[str, float]]]] = {}

    def add(self, key: str, time_s: float, values: Mapping[str, float]) -> None:
        """Append one point. ``time_s`` is in seconds since the Unix epoch."""
        series = self._series.pop(key, None)
        if series is None:
            series = deque(maxlen=self._points_max)
            if len(self._series) >= self._series_max:
                del self._series[next(iter(self._series))]
        series.append((time_s, dict(values)))
        self._series[key] = series  # the newest last

    def add_all(self, time_s: float, points: Mapping[str, Mapping[str, float]]) -> None:
        """One point for each of these series; the others are forgotten.

        Of too many the last ones are kept. Were it those added last, each would push out another one
        before its turn came, and none had a past.
        """
        kept = list(points)[-self._series_max :]
        for key in self._series.keys() - kept:
            del self._series[key]
        for key in kept:
            self.add(key, time_s, points[key])

    def columns(self, key: str) -> dict[str, list[float | None]]:
        """The points of one series by column, as a plot takes them: ``time`` and each value's name."""
        points = self._series.get(key, ())
        names = list(dict.fromkeys(name for _, values in points for name in values))
        columns: dict[str, list[float | None]] = {"time": [time_s for time_s, _ in points]}
        for name in names:
            columns[name] = [values.get(name) for _, values in points]
        return columns


def rate(before: float, after: float, seconds: float) -> float:
    """Growth of a counter per second; 0 if it was reset or no time has passed."""
    if seconds <= 0 or after < before:
        return 0.0
    return (after - before) / seconds


Group = StaticGroup | ElasticGroup
Age = float | None
"""Seconds; None where it is not known."""

SLOW_MAX: Final = 20  # consumers listed on the overview


class GroupKey(NamedTuple):
    """Identity of a group: ``static`` or ``elastic``, its stream and its name."""

    kind: str
    stream: str
    group: str


@dataclass(frozen=True, slots=True)
class Look:
    """Answers of a server at one moment.

    Attributes:
        at_s: seconds since the Unix epoch, by the console's clock.
        streams: by name.
        consumers: by stream and name; without those of streams beyond the limits.
        unseen: consumers that were too many to look at.
        groups: how far partitioned groups are, without the parts that a look does not tell.
        ages: for each Spark query's consumer how old the first message behind is.
        pipelines: what running pipelines told last.
    """

    at_s: float
    streams: dict[str, StreamInfo] = field(default_factory=dict)
    consumers: dict[tuple[str, str], ConsumerInfo] = field(default_factory=dict)
    unseen: int = 0
    groups: dict[GroupKey, GroupLag] = field(default_factory=dict)
    ages: dict[tuple[str, str], Age] = field(default_factory=dict)
    pipelines: Pipelines = field(default_factory=dict)


def stream_row(info: StreamInfo, before: Look | None, at_s: float) -> dict[str, Any]:
    """A stream as a row of a table; rates are since the look ``before``."""
    state, config = info.state, info.config
    earlier = before.streams.get(config.name) if before is not None else None
    seconds = at_s - before.at_s if before is not None else 0.0
    return {
        "name": config.name,
        "kind": kind_of(info),
        "subjects": list(config.subjects),
        "description": config.description,
        "retention": config.retention,
        "storage": config.storage,
        "replicas": config.num_replicas,
        "messages": state.messages,
        "bytes": state.bytes,
        "first_seq": state.first_seq,
        "last_seq": state.last_seq,
        "last_time": state.last_ts if state.last_seq else "",
        "consumers": state.consumer_count,
        "subject_count": state.num_subjects,
        "deleted": state.num_deleted,
        "in_per_s": rate(earlier.state.last_seq, state.last_seq, seconds) if earlier else 0.0,
        "lost": state.lost is not None,
    }


def kind_of(info: StreamInfo) -> str:
    """Purpose of a stream: ``stream``, ``bucket`` (key-value), ``objects``, ``mirror``."""
    name = info.config.name
    if name.startswith("KV_"):
        return "bucket"
    if name.startswith("OBJ_"):
        return "objects"
    return "mirror" if info.config.mirror is not None else "stream"


def consumer_row(info: ConsumerInfo, before: Look | None, at_s: float) -> dict[str, Any]:
    """A consumer as a row of a table."""
    config = info.config
    key = (info.stream_name, info.name)
    earlier = before.consumers.get(key) if before is not None else None
    seconds = at_s - before.at_s if before is not None else 0.0
    handled = (
        rate(earlier.ack_floor.consumer_seq, info.ack_floor.consumer_seq, seconds)
        if earlier
        else 0.0
    )
    return {
        "stream": info.stream_name,
        "name": info.name,
        "durable": bool(config.durable_name),
        "push": bool(config.deliver_subject),
        "filters": list(config.filter_subjects or filter(None, (config.filter_subject,))),
        "pending": info.num_pending,
        "ack_pending": info.num_ack_pending,
        "redelivered": info.num_redelivered,
        "waiting": info.num_waiting,
        "lag": info.num_pending + info.num_ack_pending,
        "delivered": info.delivered.consumer_seq,
        "acked_per_s": handled,
        "paused": info.paused,
        "policy": config.priority_policy,
        "pins": [
            {
                "group": each.group,
                "client": each.pinned_client_id,
                "since": each.pinned_ts if each.pinned_client_id else "",
            }
            for each in info.priority_groups
        ],
        "stuck": is_stuck(info, at_s),
    }


_STUCK: Final = frozenset(("nobody-pulls", "nobody-listens"))


def is_stuck(info: ConsumerInfo, at_s: float) -> bool:
    """Whether messages wait and nobody asks for them, as findings judge it."""
    findings = Findings()
    judge_consumer(findings, info, datetime.fromtimestamp(at_s, UTC))
    return any(each.name in _STUCK for each in findings.found)


def overview(look: Look, before: Look | None) -> dict[str, Any]:
    """The numbers of the first page, and which consumers are furthest behind."""
    rows = [stream_row(each, before, look.at_s) for each in look.streams.values()]
    consumers = [consumer_row(each, before, look.at_s) for each in look.consumers.values()]
    behind = sorted((each for each in consumers if each["lag"]), key=lambda each: -each["lag"])
    return {
        "at": look.at_s,
        "streams": len(rows),
        "consumers": sum(row["consumers"] for row in rows),
        "messages": sum(row["messages"] for row in rows),
        "bytes": sum(row["bytes"] for row in rows),
        "in_per_s": sum(row["in_per_s"] for row in rows),
        "acked_per_s": sum(row["acked_per_s"] for row in consumers),
        "pending": sum(row["pending"] for row in consumers),
        "ack_pending": sum(row["ack_pending"] for row in consumers),
        "slow": behind[:SLOW_MAX],
        "busiest": busiest(rows),
        "lost": [row["name"] for row in rows if row["lost"]],
        "unseen": look.unseen,
    }


Point = dict[str, float]

_OVERVIEW_CURVES: Final = ("messages", "bytes", "in_per_s", "acked_per_s", "pending", "ack_pending")
_STREAM_CURVES: Final = ("messages", "bytes", "in_per_s")
_CONSUMER_CURVES: Final = ("pending", "ack_pending", "lag", "redelivered", "acked_per_s")


def curves(look: Look, before: Look | None) -> dict[str, Point]:
    """Points that a look adds to the curves, by series; what matters most comes last, so that it is kept."""
    at_s = look.at_s
    points: dict[str, Point] = {}
    for info in look.streams.values():
        row = stream_row(info, before, at_s)
        points[f"stream/{row['name']}"] = {name: row[name] for name in _STREAM_CURVES}
    for each in look.consumers.values():
        row = consumer_row(each, before, at_s)
        points[f"consumer/{row['stream']}/{row['name']}"] = {
            name: row[name] for name in _CONSUMER_CURVES
        }
    for stream, name in look.ages:
        age = look.ages[stream, name]
        points[f"spark/{stream}/{name}"] = {
            "messages_behind": float(look.consumers[stream, name].num_pending),
            **({} if age is None else {"seconds_behind": age}),
        }
    for pipeline, name, record, query in queries_of(look.pipelines):
        if not record.ended:
            known = {} if query.behind is None else {"behind": float(query.behind)}
            points[f"pipeline/{pipeline}/{name}"] = {"rows_per_s": query.rows_per_s, **known}
    for key, group in look.groups.items():
        earlier = before.groups.get(key) if before is not None else None
        points["/".join(("group", *key))] = group_point(group, earlier)
    seen = overview(look, before)
    points["overview"] = {name: seen[name] for name in _OVERVIEW_CURVES}
    return points


def group_point(group: GroupLag, before: GroupLag | None) -> Point:
    """A group as one point of its curves; what is not known is left out."""
    found: dict[str, float | None] = {
        "lag": group.lag,
        "source_lag": group.source_lag,
        "oldest_s": 0.0 if group.lag == 0 else group.oldest_s,
    }
    moved = rates(before, group) if before is not None else None
    if moved is not None:
        found |= {"arrived_per_s": moved.arrived, "handled_per_s": moved.handled}
    return {name: float(value) for name, value in found.items() if value is not None}


def busiest(rows: Sequence[dict[str, Any]], count: int = 10) -> list[dict[str, Any]]:
    """The streams that take in most, then the largest."""
    return sorted(rows, key=lambda row: (-row["in_per_s"], -row["bytes"]))[:count]
