"""One look at a server: its streams and consumers at a moment, and what changed since the last. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..api.base import to_wire
from ..api.consumers import ConsumerInfo
from ..api.streams import StreamInfo
from .history import rate

SLOW_MAX: Final = 20  # consumers listed on the overview


@dataclass(frozen=True, slots=True)
class Look:
    """What a server said at one moment.

    Attributes:
        at_s: seconds since the Unix epoch, by the console's clock.
        streams: by name.
        consumers: by stream and name; without those of streams beyond the limits.
        unseen: consumers that were too many to look at.
    """

    at_s: float
    streams: dict[str, StreamInfo] = field(default_factory=dict)
    consumers: dict[tuple[str, str], ConsumerInfo] = field(default_factory=dict)
    unseen: int = 0


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
    """What a stream is for: ``stream``, ``bucket`` (key-value), ``objects``, ``mirror``."""
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
        "stuck": is_stuck(info) and not handled,
    }


def is_stuck(info: ConsumerInfo) -> bool:
    """Messages wait, and nobody asks for them: no pull request, no unacknowledged delivery."""
    return (
        info.num_pending > 0
        and info.num_waiting == 0
        and info.num_ack_pending == 0
        and not info.push_bound
        and not info.paused
    )


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


def busiest(rows: Sequence[dict[str, Any]], count: int = 10) -> list[dict[str, Any]]:
    """The streams that take in most, then the largest."""
    return sorted(rows, key=lambda row: (-row["in_per_s"], -row["bytes"]))[:count]


def config_of(info: StreamInfo | ConsumerInfo) -> dict[str, Any]:
    """The configuration as it is on the wire."""
    return to_wire(info.config)
