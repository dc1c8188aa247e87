"""Push consumers: what is refused, who gets what, and what keeps the flow going."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.scenarios.consumers import change, create
from conformance.steps import (
    ack,
    answer_flow_control,
    api,
    consumer,
    count_messages,
    publish_all,
    pull,
    quiet,
    raw,
    read,
    stream,
    unrecorded,
)
from conformance.table import Scenario, Table

MS = 1_000_000
SECOND = 1000 * MS
INFO = "CONSUMER.INFO.S.C"
PUSH = {"deliver_subject": "d"}
ACKED = {**PUSH, "ack_policy": "explicit"}


def case(title: str, config: dict[str, Any], on: dict[str, Any] | None = None) -> Scenario:
    """A push consumer on a stream with subjects ``a.>``: created or refused."""
    steps = [stream(subjects=["a.>"], **(on or {})), create({**PUSH, **config}), api(INFO)]
    return Scenario(f"push: {title}", steps)


def update(title: str, before: dict[str, Any], after: dict[str, Any]) -> Scenario:
    return change(f"push: {title}", {**ACKED, **before}, {**ACKED, **after})


def listen(line: str = "d 7", on: str = "a") -> Step:
    """Subscribe, as ``<subject> [queue] <sid>``."""
    return raw(f"SUB {line}\n", on=on)


def pushed(title: str, messages: int, *steps: Step, **config: Any) -> Scenario:
    """A push consumer with explicit acks, to ``d``, on a stream with some messages."""
    settings = {**ACKED, **config}
    return Scenario(
        f"push: {title}",
        [
            stream(subjects=["a.>"]),
            publish_all(*(f"a.{number}" for number in range(1, messages + 1))),
            consumer(**settings),
            *steps,
        ],
    )


CREATION: Table = [
    case("from nothing", {}),
    case("with explicit acks", {"ack_policy": "explicit"}),
    case("with acks of all", {"ack_policy": "all"}),
    case(
        "everything",
        {
            "ack_policy": "explicit",
            "deliver_group": "g",
            "flow_control": True,
            "idle_heartbeat": SECOND,
            "rate_limit_bps": 8_000_000,
            "headers_only": True,
            "replay_policy": "original",
            "max_ack_pending": 20,
            "inactive_threshold": 60 * SECOND,
        },
    ),
    Scenario(
        "push: an ephemeral",
        [
            stream(subjects=["a"]),
            api("CONSUMER.CREATE.S.E", {"stream_name": "S", "config": {**PUSH, "name": "E"}}),
        ],
    ),
    case("to a wildcard", {"deliver_subject": "d.*"}),
    case("to everything", {"deliver_subject": ">"}),
    case("to an empty token", {"deliver_subject": "d..x"}),
    case("to a blank", {"deliver_subject": "d x"}),
    case("into its own stream", {"deliver_subject": "a.x"}),
    case("to the API", {"deliver_subject": "$JS.API.INFO"}),
    case("with max_waiting", {"max_waiting": 3}),
    case("with negative max_waiting", {"max_waiting": -3}),
    case("without acks, but max_ack_pending", {"max_ack_pending": 3}),
    case("without acks, but unlimited pending", {"max_ack_pending": -1}),
    case("with a small heartbeat", {"idle_heartbeat": 99 * MS}),
    case("with a negative heartbeat", {"idle_heartbeat": -99 * MS}),
    case("with flow control, but no heartbeat", {"flow_control": True}),
    case("with a priority group", {"priority_policy": "overflow", "priority_groups": ["A"]}),
    case("with pull limits", {"max_batch": 5, "max_expires": SECOND, "max_bytes": 1000}),
    case("direct and durable", {"direct": True}),
    case("a group with a blank", {"deliver_group": "g h"}),
    case("a wildcard for a group", {"deliver_group": "g.*"}),
    case("with a negative rate", {"rate_limit_bps": -1}),
    case("on a work queue without acks", {}, {"retention": "workqueue"}),
    case("on a work queue", {"ack_policy": "explicit"}, {"retention": "workqueue"}),
    Scenario("push: a group for pulls", [stream(subjects=["a"]), create({"deliver_group": "g"})]),
    Scenario(
        "push: sampling of nonsense",
        [stream(subjects=["a"]), create({**PUSH, "sample_freq": "often"})],
    ),
]

UPDATES: Table = [
    update("to another subject", {}, {"deliver_subject": "e"}),
    update("to a wildcard by update", {}, {"deliver_subject": "e.*"}),
    update("into a group by update", {}, {"deliver_group": "g"}),
    update("another rate", {}, {"rate_limit_bps": 1000}),
    update("heartbeats by update", {}, {"idle_heartbeat": SECOND}),
    update(
        "flow control by update",
        {"idle_heartbeat": SECOND},
        {"idle_heartbeat": SECOND, "flow_control": True},
    ),
    update("more pending by update", {"max_ack_pending": 1}, {"max_ack_pending": 2}),
    Scenario(
        "push: from pull",
        [stream(subjects=["a"]), consumer(), create({**ACKED}), api(INFO)],
    ),
    Scenario(
        "push: to pull",
        [stream(subjects=["a"]), consumer(**ACKED), create({"ack_policy": "explicit"}), api(INFO)],
    ),
    pushed(
        "to another subject while somebody listens",
        1,
        listen(),
        read(1),
        create({**ACKED, "deliver_subject": "e"}),
        create({**ACKED, "description": "mine"}),
        create({**ACKED, "description": "mine"}, action="create"),
        api(INFO),
    ),
]

DELIVERY: Table = [
    pushed("who listens first", 3, listen(), read(3), api(INFO), publish_all("a.4"), read(1)),
    pushed("the listener is there already", 2, listen(), read(2), ack_policy="none"),
    Scenario(
        "push: a listener before the consumer",
        [
            stream(subjects=["a.>"]),
            listen(on="b"),
            publish_all("a.1"),
            create({**ACKED}),
            read(1, on="b"),
            quiet(on="b"),
            api(INFO),
            publish_all("a.2"),
            read(1, on="b"),
        ],
    ),
    pushed("nobody listens", 2, api(INFO), listen("e 7"), quiet(), api(INFO)),
    pushed(
        "listening stops and goes on",
        1,
        listen(),
        read(1),
        ack(0),
        raw("UNSUB 7\n"),
        quiet(0.1),
        publish_all("a.2"),
        listen("d 8"),
        read(1),
        api(INFO),
    ),
    pushed("a wildcard listens", 1, listen("* 7"), quiet(), api(INFO)),
    pushed("a queue group listens", 1, listen("d q 7"), quiet(), api(INFO)),
    pushed("two listen", 0, listen(), listen("d 8"), publish_all("a.1"), read(2), api(INFO)),
    pushed("a listener who wants two", 3, raw("SUB d 7\nUNSUB 7 2\n"), read(2), quiet(), api(INFO)),
    pushed("a pull", 1, pull("1", 1)),
    pushed("without acks", 3, listen(), read(3), api(INFO), ack_policy="none"),
    pushed(
        "acks of all", 3, listen(), read(3), ack(1), api(INFO), ack(2), api(INFO), ack_policy="all"
    ),
    pushed(
        "no more than max_ack_pending",
        4,
        listen(on="b"),
        read(2, on="b"),
        quiet(on="b"),
        ack(0),
        read(1, on="b"),
        api(INFO),
        ack(1),
        read(1, on="b"),
        max_ack_pending=2,
    ),
    pushed("what is not acked comes again", 1, listen(), read(3), ack_wait=150 * MS),
    pushed(
        "as often as allowed", 1, listen(), read(2), quiet(0.2), ack_wait=100 * MS, max_deliver=2
    ),
    pushed(
        "a nak",
        2,
        listen(on="b"),
        read(2, on="b"),
        ack(0, "-NAK"),
        read(1, on="b"),
        api(INFO),
    ),
    pushed("a term", 1, listen(), read(1), ack(0, "+TERM"), api(INFO)),
    pushed("next", 1, listen(), read(1), ack(0, "+NXT"), api(INFO)),
    pushed("headers only", 1, listen(), read(1), headers_only=True),
    pushed("filtered", 3, listen(), read(1), quiet(), api(INFO), filter_subject="a.2"),
    pushed("from the last", 3, listen(), read(1), quiet(), deliver_policy="last"),
    pushed(
        "the last of each subject",
        3,
        publish_all("a.1"),
        listen(),
        read(3),
        quiet(),
        deliver_policy="last_per_subject",
        filter_subject="a.*",
    ),
    pushed("the consumer is deleted", 1, listen(), read(1), api("CONSUMER.DELETE.S.C"), quiet()),
    pushed(
        "paused",
        1,
        api("CONSUMER.PAUSE.S.C", {"pause_until": "2199-01-01T00:00:00Z"}),
        listen(on="b"),
        quiet(on="b"),
        api("CONSUMER.PAUSE.S.C"),
        read(1, on="b"),
        quiet(on="b"),
    ),
    pushed(
        "heartbeats while paused",
        1,
        api("CONSUMER.PAUSE.S.C", {"pause_until": "2199-01-01T00:00:00Z"}),
        listen(),
        read(2),
        idle_heartbeat=100 * MS,
    ),
    pushed(
        "reset",
        2,
        listen(on="b"),
        read(2, on="b"),
        unrecorded("CONSUMER.RESET.S.C", {"seq": 1}),
        read(2, on="b"),
        quiet(on="b"),
    ),
    pushed(
        "no new subject while it is used", 0, listen(), create({**ACKED, "deliver_subject": "e"})
    ),
]

GROUPS: Table = [
    pushed(
        "a group's members",
        10,
        listen("d g 7"),
        listen("d g 7", on="b"),
        count_messages(("a", "b"), 10),
        api(INFO),
        deliver_group="g",
    ),
    pushed("a group without members", 1, listen("d 7"), quiet(), api(INFO), deliver_group="g"),
    pushed("another group", 1, listen("d h 7"), quiet(), api(INFO), deliver_group="g"),
    pushed(
        "a group, and somebody else",
        2,
        listen("d 7"),
        listen("d g 8", on="b"),
        read(2, on="b"),
        quiet(),
        deliver_group="g",
    ),
    pushed(
        "a group, and another",
        2,
        listen("d h 7"),
        listen("d g 8", on="b"),
        read(2, on="b"),
        quiet(),
        deliver_group="g",
    ),
]

FLOW: Table = [
    pushed("heartbeats", 1, listen(), read(3), idle_heartbeat=150 * MS),
    pushed("heartbeats of nothing", 0, listen(), read(2), idle_heartbeat=100 * MS),
    pushed(
        "heartbeats while stalled",
        2,
        listen(),
        read(1),
        read(1),
        idle_heartbeat=100 * MS,
        max_ack_pending=1,
    ),
    Scenario(
        "push: flow control",
        [
            stream(subjects=["a.>"]),
            publish_all(*["a.x"] * 25, payload="x" * 100_000),
            consumer(**PUSH, ack_policy="none", flow_control=True, idle_heartbeat=SECOND),
            listen(),
            read(22),
            read(1),
            api(INFO),
            answer_flow_control(),
            read(4),
            quiet(0.1),
            answer_flow_control(),
            quiet(0.1),
            api(INFO),
        ],
    ),
    pushed(
        "a rate",
        3,
        listen(),
        read(3),
        rate_limit_bps=8_000_000,
    ),
]

SAMPLING: Table = [
    pushed(
        f"sampled acks, {policy}",
        3,
        listen("$JS.EVENT.METRIC.> 9", on="m"),
        listen(on="b"),
        read(3, on="b"),
        ack(0),
        ack(1, "-NAK"),
        read(1, on="b"),
        ack(3),
        ack(2, "+TERM"),
        ack(0),
        quiet(0.1, on="m"),
        ack_policy=policy,
        sample_freq="100%",
    )
    for policy in ("explicit", "all")
]

TABLE: Table = [*CREATION, *UPDATES, *DELIVERY, *GROUPS, *FLOW, *SAMPLING]
