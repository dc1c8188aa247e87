"""Pull requests and their statuses."""

from __future__ import annotations

import json
from typing import Any

from conformance.driver import Step
from conformance.steps import (
    api,
    ask,
    consumer,
    counted,
    publish,
    publish_all,
    pull,
    quiet,
    raw,
    read,
    request,
    stream,
)
from conformance.table import Scenario, Table

MS = 1_000_000
SECOND = 1000 * MS
INFO = "CONSUMER.INFO.S.C"


def ready(messages: int, **config: Any) -> list[Step]:
    """A stream of ``messages`` messages and a consumer with explicit acks."""
    steps = [stream(subjects=["a.>"])]
    if messages:
        steps.append(publish_all(*["a.x"] * messages))
    return [*steps, consumer(**config)]


def next_line(inbox: str, body: dict[str, Any]) -> str:
    """A request of ``C``, as it is written."""
    text = json.dumps(body)
    return f"PUB $JS.API.CONSUMER.MSG.NEXT.S.C {inbox} {len(text)}\n{text}\n"


REQUESTS: Table = [
    Scenario("an empty body asks for one", [*ready(3), pull(None, 1)]),
    Scenario("a number asks for as many", [*ready(5), pull("3", 3)]),
    Scenario("any other text asks for one", [*ready(3), pull("please", 1)]),
    Scenario("a batch", [*ready(5), pull({"batch": 4, "expires": SECOND}, 4)]),
    Scenario("a batch of none delivers one", [*ready(3), pull({"batch": 0, "expires": SECOND}, 1)]),
    Scenario(
        "a negative batch delivers one", [*ready(3), pull({"batch": -2, "expires": SECOND}, 1)]
    ),
    Scenario("unknown fields are ignored", [*ready(3), pull({"batch": 1, "nonsense": 1}, 1)]),
    Scenario("a broken document", [*ready(3), pull("{bad", 1)]),
    Scenario("a negative expiry has passed", [*ready(0), pull({"batch": 1, "expires": -5}, 1)]),
    Scenario("a request that expires", [*ready(0), pull({"batch": 3, "expires": 120 * MS}, 1)]),
    Scenario(
        "a request that expires half served",
        [*ready(2), pull({"batch": 5, "expires": 120 * MS}, 3)],
    ),
    Scenario(
        "a request that expires with bytes left",
        [*ready(2), pull({"batch": 5, "max_bytes": 5000, "expires": 120 * MS}, 3)],
    ),
    Scenario(
        "a request waits for its message",
        [
            *ready(0),
            ask({"batch": 1, "expires": 2 * SECOND}),
            publish_all("a.x"),
            read(),
        ],
    ),
    Scenario(
        "a request without expiry waits",
        [
            *ready(0),
            ask("1"),
            quiet(0.15),
            publish_all("a.x"),
            read(),
        ],
    ),
    Scenario(
        "requests expire by time, not by age",
        [
            *ready(0),
            ask({"batch": 1, "expires": 300 * MS}),
            ask({"batch": 1, "expires": 100 * MS}),
            ask({"batch": 1, "expires": 200 * MS}),
            read(3),
            api(INFO),
        ],
    ),
    Scenario("a pull of a consumer that is not there", [stream(), pull("1", 1)]),
    Scenario(
        "a pull without a reply is ignored",
        [
            *ready(1),
            raw("PUB $JS.API.CONSUMER.MSG.NEXT.S.C 1\n1\n"),
            quiet(),
            api(INFO),
        ],
    ),
    Scenario(
        "messages go round the waiting requests",
        [
            *ready(0),
            ask({"batch": 2, "expires": 2 * SECOND}),
            ask({"batch": 2, "expires": 2 * SECOND}),
            ask({"batch": 2, "expires": 2 * SECOND}),
            *[step for _ in range(6) for step in (publish_all("a.x"), read(1))],
        ],
    ),
    Scenario(
        "a request whose inbox is gone is passed over",
        [
            *ready(0),
            ask({"batch": 1, "expires": 2 * SECOND}),
            raw("UNSUB 1001\n"),
            ask({"batch": 1, "expires": 2 * SECOND}),
            publish_all("a.x"),
            read(),
            api(INFO),
        ],
    ),
    Scenario(
        "a request is served whole, though its inbox wants two",
        [
            *ready(4),
            raw("SUB in 7\nUNSUB 7 2\n" + next_line("in", {"batch": 4, "expires": 2 * SECOND})),
            read(2),
            quiet(),
            api(INFO),
        ],
    ),
    Scenario(
        "a request with a limit of bytes is served whole, though its inbox wants two",
        [
            *ready(4),
            raw("SUB in 7\nUNSUB 7 2\n" + next_line("in", {"batch": 4, "max_bytes": 1000})),
            read(2),
            quiet(),
            api(INFO),
        ],
    ),
    Scenario(
        "three requests wait, and their inbox wants two",
        [
            *ready(0),
            raw(
                "SUB in.* 7\nUNSUB 7 2\n"
                + "".join(next_line(f"in.{each}", {"expires": 2 * SECOND}) for each in range(3))
            ),
            raw("PUB a.x 1\nx\n" * 4),
            read(2),
            quiet(),
            api(INFO),
        ],
    ),
    Scenario(
        "too many waiting requests",
        [
            *ready(0, max_waiting=1),
            ask({"batch": 1, "expires": 400 * MS}),
            pull({"batch": 1, "expires": 200 * MS}, 1),
            read(),
        ],
    ),
    Scenario(
        "too many waiting requests with a heartbeat",
        [
            *ready(0, max_waiting=1),
            ask({"batch": 1, "expires": 400 * MS}),
            pull({"batch": 1, "expires": 200 * MS, "idle_heartbeat": 100 * MS}, 0, after=0.15),
            read(),
        ],
    ),
    Scenario(
        "the consumer is deleted",
        [
            *ready(0),
            ask({"batch": 1, "expires": 5 * SECOND}),
            api("CONSUMER.DELETE.S.C", on="b"),
            read(),
        ],
    ),
    Scenario(
        "the stream is deleted",
        [
            *ready(0),
            ask({"batch": 1, "expires": 5 * SECOND}),
            api("STREAM.DELETE.S", on="b"),
            read(),
        ],
    ),
    Scenario(
        "a batch over the consumer's limit", [*ready(1, max_batch=2), pull("3", 1), pull("2", 1)]
    ),
    Scenario(
        "an expiry over the consumer's limit",
        [
            *ready(1, max_expires=2 * SECOND),
            pull({"batch": 1, "expires": 3 * SECOND}, 1),
            pull({"batch": 1}, 1),
        ],
    ),
    Scenario(
        "bytes over the consumer's limit",
        [
            *ready(1, max_bytes=1000),
            pull({"batch": 1, "max_bytes": 1001}, 1),
        ],
    ),
    Scenario(
        "waiting requests are counted",
        [
            *ready(0),
            ask({"batch": 1, "expires": 3 * SECOND}),
            ask({"batch": 1, "expires": 3 * SECOND}),
            quiet(),  # pulls are counted on their own time
            api(INFO),
        ],
    ),
    Scenario(
        "a request with an api level too high",
        [
            *ready(1),
            request(
                "$JS.API.CONSUMER.MSG.NEXT.S.C", "1", headers={"Nats-Required-Api-Level": "99"}
            ),
        ],
    ),
    Scenario(
        "an api call with an api level too high",
        [
            api("INFO", headers={"Nats-Required-Api-Level": "99"}),
        ],
    ),
]

NO_WAIT: Table = [
    Scenario("no wait and nothing there", [*ready(0), pull({"batch": 5, "no_wait": True}, 1)]),
    Scenario("no wait and enough there", [*ready(5), pull({"batch": 3, "no_wait": True}, 3)]),
    Scenario("no wait and too little there", [*ready(2), pull({"batch": 5, "no_wait": True}, 3)]),
    Scenario(
        "one shot and nothing there",
        [
            *ready(0),
            pull({"batch": 5, "no_wait": True, "expires": 120 * MS}, 1),
        ],
    ),
    Scenario(
        "one shot and too little there",
        [
            *ready(2),
            pull({"batch": 5, "no_wait": True, "expires": SECOND}, 3),
        ],
    ),
    Scenario(
        "one shot waits for the first message",
        [
            *ready(0),
            ask({"batch": 5, "no_wait": True, "expires": 2 * SECOND}),
            publish_all("a.x"),
            read(2),
        ],
    ),
]

BYTES: Table = [
    Scenario(
        "a message that does not fit",
        [
            *ready(0),
            publish("a.x", "x" * 200),
            pull({"batch": 1, "max_bytes": 100, "expires": SECOND}, 1),
            api(INFO),
        ],
    ),
    Scenario(
        "a batch done with bytes left",
        [
            *ready(0),
            publish("a.x", "x" * 200),
            pull({"batch": 1, "max_bytes": 9000, "expires": SECOND}, 2),
        ],
    ),
    Scenario(
        "bytes end before the batch",
        [
            *ready(0),
            *[publish("a.x", "x" * 1000) for _ in range(3)],
            pull({"batch": 9, "max_bytes": 2500, "expires": SECOND}, 3),
        ],
    ),
    Scenario(
        "no wait and a message that does not fit",
        [
            *ready(0),
            publish("a.x", "x" * 200),
            counted(1),
            pull({"batch": 1, "max_bytes": 100, "no_wait": True}, 1),
        ],
    ),
]

HEARTBEATS: Table = [
    Scenario(
        "heartbeats while idle",
        [
            *ready(0),
            pull({"batch": 1, "expires": 500 * MS, "idle_heartbeat": 200 * MS}, 3),
        ],
    ),
    Scenario(
        "heartbeats tell the last sequences",
        [
            *ready(2),
            pull("2", 2),
            pull({"batch": 1, "expires": 500 * MS, "idle_heartbeat": 200 * MS}, 3),
        ],
    ),
    Scenario(
        "a heartbeat that is too large",
        [
            *ready(1),
            pull({"batch": 1, "expires": SECOND, "idle_heartbeat": SECOND}, 1),
        ],
    ),
    Scenario(
        "a heartbeat without an expiry",
        [
            *ready(1),
            pull({"batch": 1, "idle_heartbeat": 100 * MS}, 1),
        ],
    ),
    Scenario(
        "a negative heartbeat is none",
        [
            *ready(1),
            pull({"batch": 1, "expires": SECOND, "idle_heartbeat": -5}, 1),
        ],
    ),
]

PRIORITIES: Table = [
    Scenario(
        "a threshold on a plain consumer",
        [
            *ready(1),
            pull({"batch": 1, "expires": SECOND, "min_pending": 1}, 1),
        ],
    ),
    Scenario(
        "a pin on a plain consumer",
        [
            *ready(1),
            pull({"batch": 1, "expires": SECOND, "id": "x"}, 1),
        ],
    ),
    Scenario(
        "a priority out of range",
        [
            *ready(1),
            pull({"batch": 1, "expires": SECOND, "priority": 10}, 1),
        ],
    ),
    Scenario(
        "a group and a priority on a plain consumer",
        [
            *ready(1),
            pull({"batch": 1, "expires": SECOND, "group": "A", "priority": 3}, 1),
        ],
    ),
]

TABLE: Table = [*REQUESTS, *NO_WAIT, *BYTES, *HEARTBEATS, *PRIORITIES]
