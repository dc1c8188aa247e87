"""The ack policy ``flow_control``: what is refused, and what answers to flow control acknowledge."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.scenarios.consumers import create
from conformance.scenarios.push import listen
from conformance.steps import (
    ack,
    answer_flow_control,
    api,
    consumer,
    publish_all,
    quiet,
    read,
    request,
    stream,
)
from conformance.table import Scenario, Table

MS = 1_000_000
SECOND = 1000 * MS
INFO = "CONSUMER.INFO.S.C"
FLOW = {"deliver_subject": "d", "ack_policy": "flow_control"}


def case(title: str, on: dict[str, Any] | None = None, **config: Any) -> Scenario:
    """A consumer on a stream with subjects ``a.>``: created or refused."""
    steps = [stream(subjects=["a.>"], **(on or {})), create({**FLOW, **config}), api(INFO)]
    return Scenario(f"flow acks: {title}", steps)


def pedantic(title: str, **config: Any) -> Scenario:
    body = {
        "stream_name": "S",
        "pedantic": True,
        "config": {"durable_name": "C", **FLOW, **config},
    }
    return Scenario(
        f"flow acks: pedantic, {title}",
        [stream(subjects=["a.>"]), api("CONSUMER.CREATE.S.C", body)],
    )


def pushed(title: str, messages: int, *steps: Step, **config: Any) -> Scenario:
    """A consumer to ``d`` on a stream with some messages, in which three may be pending."""
    settings = {**FLOW, "max_ack_pending": 3, **config}
    on = config.pop("retention", "limits")
    settings.pop("retention", None)
    return Scenario(
        f"flow acks: {title}",
        [
            stream(subjects=["a.>"], retention=on),
            publish_all(*(f"a.{number}" for number in range(1, messages + 1))),
            consumer(**settings),
            *steps,
        ],
    )


def came_to(consumer_seq: int, stream_seq: int) -> Step:
    """Answer flow control, and say how far we are."""
    return answer_flow_control(
        headers={"Nats-Last-Consumer": str(consumer_seq), "Nats-Last-Stream": str(stream_seq)}
    )


CHECKS: Table = [
    case("from little"),
    case("everything", max_ack_pending=7, flow_control=True, idle_heartbeat=SECOND),
    case("another heartbeat", idle_heartbeat=5 * SECOND),
    case("a pull consumer", deliver_subject=""),
    case("with an ack wait", ack_wait=SECOND),
    case("with backoff", backoff=[SECOND], max_deliver=3),
    case("with a limit of deliveries", max_deliver=3),
    case("with any number pending", max_ack_pending=-1),
    case("to a group", deliver_group="g"),
    case("with max_waiting", max_waiting=3),
    case("with a sample", sample_freq="50%"),
    case("in an interest stream", {"retention": "interest"}),
    case("in a work queue", {"retention": "workqueue"}),
    case("in a work queue from new", {"retention": "workqueue"}, deliver_policy="new"),
    case("for sourcing", sourcing=True),
    case("in memory", mem_storage=True),
    case("with a limit of the stream", {"consumer_limits": {"max_ack_pending": 20}}),
    case("beyond the stream", {"consumer_limits": {"max_ack_pending": 20}}, max_ack_pending=21),
    pedantic("from little"),
    pedantic("with flow control", flow_control=True),
    pedantic("with everything", flow_control=True, idle_heartbeat=SECOND, max_ack_pending=5),
    pedantic("another heartbeat", flow_control=True, idle_heartbeat=2 * SECOND),
    Scenario(
        "flow acks: to another policy",
        [
            stream(subjects=["a.>"]),
            consumer(**FLOW),
            create({"deliver_subject": "d", "ack_policy": "explicit"}),
            create({**FLOW, "max_ack_pending": 5}),
            create({**FLOW, "ack_wait": SECOND}),
            api(INFO),
        ],
    ),
]

FLOWING: Table = [
    pushed("stalled by what is pending", 5, listen(), quiet(), api(INFO)),
    pushed(
        "an answer acknowledges",
        5,
        listen(),
        read(4),
        came_to(2, 2),
        quiet(),
        api(INFO),
        came_to(5, 5),
        quiet(),
        api(INFO),
    ),
    pushed(
        "an answer without a position",
        5,
        listen(),
        read(4),
        answer_flow_control(),
        quiet(),
        api(INFO),
    ),
    pushed(
        "an answer that says nothing new",
        5,
        listen(),
        read(4),
        came_to(0, 0),
        quiet(),
        api(INFO),
    ),
    pushed(
        "an answer beyond what was delivered",
        5,
        listen(),
        read(4),
        came_to(9, 9),
        quiet(),
        api(INFO),
    ),
    pushed(
        "an answer without a consumer sequence",
        5,
        listen(),
        read(4),
        answer_flow_control(headers={"Nats-Last-Stream": "2"}),
        quiet(),
        api(INFO),
    ),
    pushed(
        "a heartbeat asks",
        2,
        listen(),
        read(4, timeout=2.5),
        came_to(2, 2),
        quiet(),
        api(INFO),
        publish_all("a.9"),
        quiet(),
    ),
    pushed("the usual acks reach nobody", 2, listen(), read(2), ack(0), api(INFO)),
    pushed("nothing is redelivered", 2, listen(), read(2), quiet(0.6), api(INFO)),
    pushed(
        "a work queue keeps what is pending",
        4,
        listen(),
        read(4),
        came_to(2, 2),
        quiet(),
        api(INFO),
        api("STREAM.INFO.S"),
        retention="workqueue",
    ),
    pushed(
        "reset to the floor",
        5,
        listen(on="b"),
        read(4, on="b"),
        came_to(2, 2),
        quiet(on="b"),
        api("CONSUMER.RESET.S.C"),
        quiet(on="b"),
        api(INFO),
    ),
    pushed(
        "another listener",
        4,
        listen(),
        read(4),
        request("nobody.here"),
        listen("d 8", on="b"),
        quiet(on="b"),
        api(INFO),
    ),
]

TABLE: Table = [*CHECKS, *FLOWING]
