"""What a server's ``jetstream { limits { … } }`` allows streams, consumers and batches."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.scenarios.consumers import create
from conformance.steps import api, request, stream
from conformance.table import Scenario, Settings, Table

SECOND = 1_000_000_000
LIMITS = Settings(
    limits="""
    max_ack_pending: 20
    max_request_batch: 5
    duplicate_window: "30s"
    batch { max_inflight_per_stream: 2, max_inflight_total: 3, max_msgs: 2, timeout: "1s" }
"""
)


def limited(title: str, *steps: Step) -> Scenario:
    return Scenario(f"server limits: {title}", steps, LIMITS)


def made(title: str, **config: Any) -> Scenario:
    """What creating a stream with this says."""
    return limited(title, api("STREAM.CREATE.S", {"name": "S", "subjects": ["a.>"], **config}))


def consuming(title: str, on: dict[str, Any] | None = None, **config: Any) -> Scenario:
    return limited(title, stream(subjects=["a.>"], **(on or {})), create(config))


def pedantic(title: str, **config: Any) -> Scenario:
    body = {
        "stream_name": "S",
        "pedantic": True,
        "config": {"durable_name": "C", "ack_policy": "explicit", **config},
    }
    return limited(title, stream(subjects=["a.>"]), api("CONSUMER.CREATE.S.C", body))


def part(batch: str, sequence: int, *, commit: str = "") -> Step:
    """One message of an atomic batch."""
    headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(sequence)}
    return request(
        "a.x", "x", headers={**headers, **({"Nats-Batch-Commit": commit} if commit else {})}
    )


BATCHES = stream(subjects=["a.>"], allow_atomic=True)

TABLE: Table = [
    made("the usual window"),
    made("a shorter window", duplicate_window=10 * SECOND),
    made("a longer window", duplicate_window=31 * SECOND),
    made("an age shorter than the window", max_age=20 * SECOND),
    made("pedantic, the usual window", pedantic=True),
    made("pedantic, a window", pedantic=True, duplicate_window=10 * SECOND),
    limited(
        "no window with sources",
        api("STREAM.CREATE.S", {"name": "S", "sources": [{"name": "X"}]}),
    ),
    consuming("the usual acks", ack_policy="explicit"),
    consuming("no acks", ack_policy="none"),
    consuming("as many as allowed", ack_policy="explicit", max_ack_pending=20, max_batch=5),
    consuming("more acks", ack_policy="explicit", max_ack_pending=21),
    consuming("unlimited acks", ack_policy="explicit", max_ack_pending=-1),
    consuming("more at once", ack_policy="explicit", max_batch=6),
    consuming("a push consumer", ack_policy="explicit", deliver_subject="d"),
    consuming("a push consumer with a batch", deliver_subject="d", max_batch=6),
    consuming("flow control", ack_policy="flow_control", deliver_subject="d"),
    consuming(
        "the stream allows more",
        {"consumer_limits": {"max_ack_pending": 30}},
        ack_policy="explicit",
    ),
    consuming(
        "the stream allows less", {"consumer_limits": {"max_ack_pending": 7}}, ack_policy="explicit"
    ),
    pedantic("pedantic, no batch"),
    pedantic("pedantic, a batch", max_batch=3),
    pedantic("pedantic, a push consumer", deliver_subject="d"),
    limited("a batch that fits", BATCHES, part("A", 1), part("A", 2, commit="1")),
    limited("a batch that is too large", BATCHES, part("A", 1), part("A", 2), part("A", 3)),
    limited("an unknown batch that is too large", BATCHES, part("A", 3)),
    limited("a batch with an end", BATCHES, part("A", 1), part("A", 2), part("A", 3, commit="eob")),
    limited("batches of a stream", BATCHES, part("A", 1), part("B", 1), part("C", 1)),
]
