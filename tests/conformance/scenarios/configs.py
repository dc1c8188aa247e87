"""What consumers may be made of and changed to: every check that stands in no other table."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.scenarios.consumers import INFO, SECOND, case, change, create
from conformance.steps import api, consumer, publish_all, pull, stream
from conformance.table import Scenario, Table

MS = SECOND // 1000
EXPLICIT = {"ack_policy": "explicit"}


def limited(title: str, config: dict[str, Any], limits: dict[str, Any], **more: Any) -> Scenario:
    """A consumer on a stream that limits its consumers."""
    steps = [stream(subjects=["a.>"], consumer_limits=limits), create(config, **more)]
    return Scenario(f"config: {title}", steps)


def pedantic(field: str, value: object, **more: Any) -> Scenario:
    config = {**EXPLICIT, "max_deliver": -1, **more, field: value}
    return case(f"config: pedantic, {field} {value}", config, pedantic=True)


def same(title: str, first: dict[str, Any], second: dict[str, Any]) -> Scenario:
    """Created, and created again with ``create``: the same or not."""
    steps: list[Step] = [stream(subjects=["a.>"])]
    steps += [create({**EXPLICIT, **config}, action="create") for config in (first, second)]
    return Scenario(f"config: {title}", steps)


VALIDATION: Table = [
    *[
        Scenario(
            f"config: the name {name!r}",
            [
                stream(subjects=["a.>"]),
                api("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"name": name}}),
            ],
        )
        for name in ("a.b", "a b", "a/b", "a\\b", "a>", "*", "\tb")
    ],
    case("config: replicas below zero", {"num_replicas": -1}),
    case("config: replicas the stream does not have", {"num_replicas": 2}),
    case("config: flow control acks on a pull consumer", {"ack_policy": "flow_control"}),
    case(
        "config: backoff as long as deliveries", {**EXPLICIT, "max_deliver": 2, "backoff": [1, 2]}
    ),
    case("config: backoff without a limit", {**EXPLICIT, "backoff": [SECOND, 2 * SECOND]}),
    case("config: backoff without acks", {"backoff": [SECOND]}),
    case("config: an ack wait beside a backoff", {**EXPLICIT, "ack_wait": 5, "backoff": [SECOND]}),
    case("config: an ack wait without acks", {"ack_wait": SECOND}),
    case("config: unlimited acks pending", {**EXPLICIT, "max_ack_pending": -1}),
    case("config: negative waiting", {**EXPLICIT, "max_waiting": -3}),
    case("config: negative bytes and expiry", {**EXPLICIT, "max_bytes": -1, "max_expires": -1}),
    case("config: a negative threshold", {**EXPLICIT, "inactive_threshold": -1}),
    case("config: a negative heartbeat", {**EXPLICIT, "idle_heartbeat": -1}),
    case("config: an expiry of just a millisecond", {**EXPLICIT, "max_expires": MS}),
    case("config: the same filter twice", {"filter_subjects": ["a.x", "a.x"]}),
    case("config: one filter of several", {"filter_subjects": ["a.x"]}),
    case("config: filters of which one is everything", {"filter_subjects": ["a.x", ">"]}),
    case("config: an empty list of filters", {"filter_subjects": []}),
    case("config: a filter of everything", {"filter_subject": ">"}),
    *[
        case(
            f"config: a start sequence for {policy}", {"deliver_policy": policy, "opt_start_seq": 5}
        )
        for policy in ("last", "last_per_subject", "by_start_time")
    ],
    *[
        case(
            f"config: a start time for {policy}",
            {"deliver_policy": policy, "opt_start_time": "2024-01-01T00:00:00Z"},
        )
        for policy in ("last", "new", "last_per_subject", "by_start_sequence")
    ],
    case(
        "config: a start sequence with a start time",
        {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": 3,
            "opt_start_time": "2024-01-01T00:00:00Z",
        },
    ),
    case(
        "config: a start time with a start sequence",
        {
            "deliver_policy": "by_start_time",
            "opt_start_seq": 3,
            "opt_start_time": "2024-01-01T00:00:00Z",
        },
    ),
    *[
        case(f"config: sampling {text!r}", {**EXPLICIT, "sample_freq": text})
        for text in ("100%", "0", "-1", "101", "12x", " 5 ", "%")
    ],
    case("config: metadata the server keeps for itself", {"metadata": {"_nats.x": "1", "k": "v"}}),
    case("config: a pause from the start", {**EXPLICIT, "pause_until": "2099-01-01T00:00:00Z"}),
    case("config: a broken pause", {**EXPLICIT, "pause_until": "soon"}),
    case("config: a memory store", {**EXPLICIT, "mem_storage": True}),
    case("config: no limit of deliveries", {**EXPLICIT, "max_deliver": -1}),
    Scenario(
        "config: work queue, a pull consumer without acks",
        [stream(subjects=["a.>"], retention="workqueue"), create({"ack_policy": "none"})],
    ),
    Scenario(
        "config: work queue, acks of all",
        [stream(subjects=["a.>"], retention="workqueue"), create({"ack_policy": "all"})],
    ),
    Scenario(
        "config: work queue, a filter beside everything",
        [
            stream(subjects=["a.>"], retention="workqueue"),
            consumer(),
            create({**EXPLICIT, "filter_subject": "a.x"}, "D"),
        ],
    ),
    Scenario(
        "config: interest, acks of any kind",
        [
            stream(subjects=["a.>"], retention="interest"),
            create({"ack_policy": "none"}),
            create({"ack_policy": "all"}, "D"),
        ],
    ),
]

LIMITS: Table = [
    limited(
        "limits are the defaults", EXPLICIT, {"max_ack_pending": 7, "inactive_threshold": SECOND}
    ),
    limited(
        "over the limit of acks pending", {**EXPLICIT, "max_ack_pending": 8}, {"max_ack_pending": 7}
    ),
    limited(
        "no limit where there is one",
        {**EXPLICIT, "max_ack_pending": -1},
        {"max_ack_pending": 7},
    ),
    limited(
        "over the limit of inactivity",
        {**EXPLICIT, "inactive_threshold": 2 * SECOND},
        {"inactive_threshold": SECOND},
    ),
    limited(
        "pedantic, acks pending not said",
        {**EXPLICIT, "max_deliver": -1},
        {"max_ack_pending": 7},
        pedantic=True,
    ),
    limited(
        "pedantic, inactivity not said",
        {**EXPLICIT, "max_deliver": -1},
        {"inactive_threshold": SECOND},
        pedantic=True,
    ),
]

PEDANTIC: Table = [
    *[
        pedantic(field, -1)
        for field in (
            "max_waiting",
            "max_batch",
            "max_expires",
            "max_bytes",
            "idle_heartbeat",
            "inactive_threshold",
            "priority_timeout",
        )
    ],
    pedantic("max_deliver", -2),
    pedantic("max_deliver", 0),
    pedantic("max_ack_pending", -2),
    pedantic("backoff", [SECOND], ack_wait=2 * SECOND),
    pedantic("backoff", [SECOND, SECOND]),
    pedantic("ack_wait", SECOND, backoff=[SECOND]),
]

ACTIONS: Table = [
    same("the same but for metadata", {"metadata": {"a": "1"}}, {"metadata": {"a": "2"}}),
    same("the same with defaults said", {}, {"max_deliver": -1, "ack_wait": 30 * SECOND}),
    same(
        "the same filters in another order",
        {"filter_subjects": ["a.x", "a.y"]},
        {"filter_subjects": ["a.y", "a.x"]},
    ),
    same("one filter, in the other field", {"filter_subject": "a.x"}, {"filter_subjects": ["a.x"]}),
    same("another description", {"description": "a"}, {"description": "b"}),
    Scenario(
        "config: update of an ephemeral by name",
        [
            stream(subjects=["a.>"]),
            *[
                api(
                    "CONSUMER.CREATE.S.E",
                    {
                        "stream_name": "S",
                        "config": {"name": "E", **EXPLICIT, "description": text},
                        "action": action,
                    },
                )
                for action, text in (("create", "a"), ("update", "b"), ("", "c"))
            ],
        ],
    ),
    change("config: change metadata", {"metadata": {"a": "1"}}, {"metadata": {"b": "2"}}),
    change("config: change the sampling", {}, {"sample_freq": "20"}),
    change("config: change to headers only", {}, {"headers_only": True}),
    change("config: change the limits of pulls", {}, {"max_expires": SECOND, "max_bytes": 99}),
    change("config: change the threshold", {}, {"inactive_threshold": 60 * SECOND}),
    change("config: change the replicas", {}, {"num_replicas": 1}),
    change("config: change the backoff", {}, {"backoff": [SECOND, 2 * SECOND]}),
    change(
        "config: change to too long a backoff",
        {"max_deliver": 2},
        {"max_deliver": 2, "backoff": [1, 1, 1]},
    ),
    change("config: change the store", {}, {"mem_storage": True}),
    change("config: change to a push consumer", {}, {"deliver_subject": "d"}),
    change("config: change the heartbeat", {}, {"idle_heartbeat": SECOND}),
    change(
        "config: change the start time",
        {"deliver_policy": "by_start_time", "opt_start_time": "2024-01-01T00:00:00Z"},
        {"deliver_policy": "by_start_time", "opt_start_time": "2024-01-02T00:00:00Z"},
    ),
    change(
        "config: change several filters to one",
        {"filter_subjects": ["a.x", "a.y"]},
        {"filter_subject": "a.z"},
    ),
    change("config: change to overlapping filters", {}, {"filter_subjects": ["a.x", "a.*"]}),
    Scenario(
        "config: a smaller limit of acks pending stalls",
        [
            stream(subjects=["a.>"]),
            publish_all(*["a.x"] * 4),
            consumer(),
            pull("2", 2),
            consumer(max_ack_pending=2),
            pull({"expires": 100 * MS}, 1),
            consumer(max_ack_pending=3),
            pull({"expires": SECOND}, 1),
        ],
    ),
    Scenario(
        "config: a wider filter does not go back",
        [
            stream(subjects=["a.>"]),
            publish_all("a.x", "a.y", "a.x", "a.y"),
            consumer(filter_subject="a.y"),
            pull("1", 1),
            consumer(),
            pull({"batch": 5, "no_wait": True}, 3),
            api(INFO),
        ],
    ),
    *[
        Scenario(
            f"config: fewer deliveries hold from {which}",
            [
                stream(subjects=["a.>"]),
                publish_all("a.x"),
                consumer(ack_wait=100 * MS),
                pull("1", 1, after=late),
                consumer(ack_wait=100 * MS, max_deliver=1),
                pull({"expires": 400 * MS}, 1),
            ],
        )
        for which, late in [("the next on", 0), ("what is late on", 0.25)]
    ],
]

TABLE: Table = [*VALIDATION, *LIMITS, *PEDANTIC, *ACTIONS]
