"""Priority groups: pinned clients, overflow, prioritized requests, and the API around them."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.scenarios.control import listen
from conformance.scenarios.pulls import ready
from conformance.steps import (
    ack,
    api,
    ask,
    publish,
    publish_all,
    pull,
    pull_pinned,
    quiet,
    raw,
    read,
)
from conformance.table import Scenario, Settings, Table

MS = 1_000_000
SECOND = 1000 * MS
INFO = "CONSUMER.INFO.S.C"
UNPIN = "CONSUMER.UNPIN.S.C"
LISTEN = listen("$JS.EVENT.ADVISORY.CONSUMER.*.S.>")
A = {"group": "A", "expires": 30 * SECOND}
IMMEDIATE = Settings(pin_handover="immediate")


def policy(name: str, messages: int = 0, **config: Any) -> list[Step]:
    return ready(messages, priority_policy=name, priority_groups=["A"], **config)


def say(*subjects: str) -> list[Step]:
    return [publish_all(*subjects), quiet()]


PINNED: Table = [
    Scenario("pinned: info of nobody", [*policy("pinned_client"), api(INFO)]),
    Scenario(
        "pinned: the first gets the pin", [*policy("pinned_client", 1), pull(A, 1), api(INFO)]
    ),
    Scenario(
        "pinned: the others stand by",
        [
            *policy("pinned_client"),
            ask({**A, "batch": 2}),
            ask({**A, "batch": 2}),
            *say("a.x"),
            *say("a.x"),
            *say("a.x"),
        ],
    ),
    Scenario(
        "pinned: a wrong id while somebody is pinned",
        [*policy("pinned_client", 2), pull(A, 1), pull({**A, "id": "wrong"}, 1)],
    ),
    Scenario(
        "pinned: an id while nobody is pinned waits for a message",
        [*policy("pinned_client"), ask({**A, "id": "wrong"}), *say("a.x"), api(INFO)],
    ),
    Scenario(
        "pinned: a plain body is served without a pin",
        [*policy("pinned_client", 1), pull("1", 1), api(INFO)],
    ),
    Scenario(
        "pinned: a plain body stands by",
        [
            *policy("pinned_client", 1),
            pull({**A, "batch": 2}, 1),
            ask("1"),
            *say("a.x"),
            *say("a.x"),
        ],
    ),
    Scenario(
        "pinned: the pin runs out",
        [
            *policy("pinned_client", 1, priority_timeout=300 * MS),
            pull(A, 1),
            quiet(0.5),
            api(INFO),
        ],
    ),
    Scenario(
        "pinned: a message too large leaves nobody pinned",
        [*policy("pinned_client", 1), pull({**A, "max_bytes": 1}, 1), api(INFO), pull(A, 1)],
    ),
    Scenario(
        "pinned: a standby's bytes are its own",
        [
            *policy("pinned_client"),
            ask({**A, "batch": 100}),
            ask({**A, "batch": 100, "max_bytes": 100}),
            *say("a.x"),
            *say("a.x"),
            *say("a.x"),
        ],
    ),
    Scenario(
        "pinned: unpin",
        [
            *policy("pinned_client"),
            ask({**A, "batch": 5}),
            *say("a.x"),
            api(UNPIN, {"group": "A"}),
            api(INFO),
            *say("a.x"),
        ],
        IMMEDIATE,
    ),
    Scenario(
        "pinned: unpin hands over to the standby",
        [
            *policy("pinned_client"),
            ask({**A, "batch": 5}),
            ask({**A, "batch": 5}),
            *say("a.x"),
            *say("a.x"),
            api(UNPIN, {"group": "A"}),
            *say("a.x"),
            *say("a.x"),
        ],
        IMMEDIATE,
    ),
    Scenario(
        "pinned: a pin that runs out goes to the standby",
        [
            *policy("pinned_client", 3, priority_timeout=400 * MS),
            pull(A, 1),
            ask({**A, "batch": 2}),
            read(2, timeout=2.0),
        ],
        IMMEDIATE,
    ),
    Scenario(
        "pinned: a pin runs out in the middle of a pull",
        [
            *policy("pinned_client", 1, priority_timeout=300 * MS),
            pull({**A, "batch": 2, "expires": 600 * MS}, 2),
            api(INFO),
        ],
    ),
    Scenario(
        "pinned: nobody is pinned without a message",
        [
            *policy("pinned_client", priority_timeout=300 * MS),
            pull({**A, "batch": 2, "expires": 200 * MS}, 1),
            api(INFO),
        ],
    ),
    Scenario(
        "pinned: a pull with the pin keeps it",
        [
            *policy("pinned_client", 3, priority_timeout=800 * MS),
            pull(A, 1),
            pull_pinned(A),
            quiet(0.4),
            pull_pinned(A),
            quiet(0.4),
            api(INFO),
        ],
    ),
    Scenario(
        "pinned: acks and deliveries do not keep it",
        [
            *policy("pinned_client", 1, priority_timeout=800 * MS),
            pull({**A, "batch": 5}, 1),
            quiet(0.25),
            ack(0),
            *say("a.x"),
            quiet(0.6),
            api(INFO),
        ],
        IMMEDIATE,
    ),
    Scenario(
        "pinned: who unsubscribes keeps the pin until it runs out",
        [
            *policy("pinned_client", priority_timeout=700 * MS),
            ask({**A, "batch": 5}),
            *say("a.x"),
            raw("UNSUB 1003\n"),
            ask({**A, "batch": 5, "idle_heartbeat": 400 * MS}),
            publish_all("a.x"),
            read(2, timeout=2.0),
        ],
        IMMEDIATE,
    ),
    Scenario(
        "pinned: unpin with nothing pending",
        [
            *policy("pinned_client", 2),
            pull({**A, "batch": 30}, 2),
            ask({**A, "batch": 30}),
            api(UNPIN, {"group": "A"}),
            quiet(0.15),
            *say("a.x"),
            *say("a.x"),
        ],
        IMMEDIATE,
    ),
    Scenario(
        "pinned: heartbeats while standing by",
        [
            *policy("pinned_client", 2),
            pull(A, 1),
            pull({**A, "expires": 500 * MS, "idle_heartbeat": 200 * MS}, 3),
        ],
    ),
    Scenario(
        "pinned: no wait while another is pinned",
        [
            *policy("pinned_client", 3),
            pull(A, 1),
            pull({"group": "A", "no_wait": True}, 1),
            pull({"group": "A", "no_wait": True, "expires": 200 * MS}, 1),
        ],
    ),
    Scenario(
        "pinned: headers stay and the pin comes behind them",
        [*policy("pinned_client"), publish("a.x", "x", {"K": "v"}), pull(A, 1)],
    ),
    Scenario(
        "pinned: headers only with a pin",
        [*policy("pinned_client", 1, headers_only=True), pull(A, 1)],
    ),
    Scenario(
        "pinned: the pin is not charged to the bytes",
        [*policy("pinned_client", 2), pull({**A, "batch": 2, "max_bytes": 4000}, 3)],
    ),
    Scenario(
        "pinned: redeliveries go to who is pinned now",
        [
            *policy("pinned_client", 1, ack_wait=300 * MS, priority_timeout=200 * MS),
            pull(A, 1),
            ask({**A, "batch": 2}),
            read(1, timeout=2.0),
        ],
        IMMEDIATE,
    ),
    Scenario(
        "pinned: redeliveries carry the pin",
        [
            *policy("pinned_client", 1),
            pull({**A, "batch": 2}, 1),
            ack(0, "-NAK", sync=False, on="c"),
            quiet(),
        ],
    ),
]

OVERFLOW: Table = [
    Scenario("overflow: info", [*policy("overflow"), api(INFO)]),
    Scenario(
        "overflow: below the threshold nothing comes",
        [*policy("overflow", 3), pull({"group": "A", "min_pending": 4, "expires": 200 * MS}, 1)],
    ),
    Scenario(
        "overflow: at the threshold a message comes",
        [*policy("overflow", 3), pull({"group": "A", "min_pending": 3, "expires": SECOND}, 1)],
    ),
    Scenario(
        "overflow: either threshold is enough",
        [
            *policy("overflow", 5),
            pull({"group": "A", "batch": 2}, 2),
            pull({"group": "A", "min_pending": 50, "min_ack_pending": 2, "expires": SECOND}, 1),
        ],
    ),
    Scenario(
        "overflow: the backlog grows to the threshold",
        [
            *policy("overflow"),
            ask({"group": "A", "min_pending": 2, "expires": 30 * SECOND}),
            *say("a.x"),
            *say("a.x"),
        ],
    ),
    Scenario(
        "overflow: a threshold of one batch after another",
        [
            *policy("overflow", 4),
            pull({"group": "A", "min_pending": 3, "batch": 4, "expires": 200 * MS}, 3),
        ],
    ),
    Scenario(
        "overflow: requests without thresholds first",
        [*policy("overflow"), ask({**A, "min_pending": 1}), ask(A), *say("a.x"), *say("a.x")],
    ),
    Scenario(
        "overflow: no wait below the threshold",
        [*policy("overflow", 3), pull({"group": "A", "no_wait": True, "min_pending": 9}, 1)],
    ),
    Scenario(
        "overflow: redeliveries do not count as pending",
        [
            *policy("overflow", 1),
            pull({"group": "A"}, 1),
            ack(0, "-NAK"),
            pull({"group": "A", "min_pending": 1, "expires": 200 * MS}, 1),
        ],
    ),
    Scenario(
        "overflow: acks that are pending reach the threshold",
        [
            *policy("overflow", 8),
            ask({"group": "A", "min_ack_pending": 3, "expires": 30 * SECOND}),
            pull({"group": "A", "batch": 2}, 2),
            pull({"group": "A", "batch": 1}, 2),
        ],
    ),
    Scenario("overflow: a plain body", [*policy("overflow", 1), pull("1", 1)]),
    Scenario(
        "overflow: heartbeats while waiting",
        [
            *policy("overflow", 1),
            pull(
                {
                    "group": "A",
                    "min_pending": 5,
                    "expires": 500 * MS,
                    "idle_heartbeat": 200 * MS,
                },
                3,
            ),
        ],
    ),
]

PRIORITIZED: Table = [
    Scenario("prioritized: info", [*policy("prioritized"), api(INFO)]),
    Scenario(
        "prioritized: the lowest number first",
        [
            *policy("prioritized"),
            ask({**A, "priority": 3}),
            ask({**A, "priority": 1}),
            ask({**A, "priority": 2, "batch": 2}),
            *say("a.x"),
            *say("a.x"),
            *say("a.x"),
            *say("a.x"),
        ],
    ),
    Scenario(
        "prioritized: turns within a number",
        [
            *policy("prioritized"),
            ask({**A, "priority": 1, "batch": 2}),
            ask({**A, "priority": 1, "batch": 2}),
            *say("a.x"),
            *say("a.x"),
            *say("a.x"),
            *say("a.x"),
        ],
    ),
    Scenario(
        "prioritized: a lower number cuts in",
        [
            *policy("prioritized"),
            ask({**A, "priority": 3, "batch": 3}),
            *say("a.x"),
            ask({**A, "priority": 1}),
            *say("a.x"),
            *say("a.x"),
        ],
    ),
    Scenario(
        "prioritized: two cut in, one after the other",
        [
            *policy("prioritized"),
            ask({**A, "priority": 3, "batch": 3}),
            *say("a.x"),
            ask({**A, "priority": 2, "batch": 2}),
            *say("a.x"),
            ask({**A, "priority": 1, "batch": 1}),
            *say("a.x"),
            *say("a.x"),
            *say("a.x"),
        ],
    ),
    Scenario(
        "prioritized: none said is the first",
        [*policy("prioritized"), ask({**A, "priority": 1}), ask(A), *say("a.x"), *say("a.x")],
    ),
    Scenario("prioritized: a plain body", [*policy("prioritized", 1), pull("1", 1)]),
    Scenario("prioritized: out of range", [*policy("prioritized"), pull({**A, "priority": -1}, 1)]),
]


def refused(name: str, config: dict[str, Any], body: dict[str, Any]) -> Scenario:
    settings = {"priority_groups": ["A"], **config}
    return Scenario(f"groups: {name}", [*ready(1, **settings), pull(body, 1)])


PULLS: Table = [
    Scenario(
        "groups: a refused pull is not served later",
        [
            *ready(0),
            pull({"min_pending": 1, "expires": 5 * SECOND}, 1),
            pull({"id": "x", "expires": 5 * SECOND}, 1),
            pull({"priority": 10, "expires": 5 * SECOND}, 1),
            publish_all("a.x"),
            quiet(),
            api(INFO),
        ],
    ),
    refused(
        "a priority on overflow", {"priority_policy": "overflow"}, {"group": "A", "priority": 4}
    ),
    refused("empty", {"priority_policy": "overflow"}, {"group": ""}),
    refused("missing on pinned", {"priority_policy": "pinned_client"}, {"batch": 1}),
    refused("missing on overflow", {"priority_policy": "overflow"}, {"batch": 1}),
    refused("unknown", {"priority_policy": "overflow"}, {"batch": 1, "group": "B"}),
    refused("an id on overflow", {"priority_policy": "overflow"}, {"group": "A", "id": "x"}),
    refused("a threshold on pinned", {"priority_policy": "pinned_client"}, {"min_pending": 1}),
    refused("a threshold on prioritized", {"priority_policy": "prioritized"}, {"min_pending": 1}),
]

API: Table = [
    Scenario(
        "unpin: nobody is pinned", [*policy("pinned_client"), *LISTEN, api(UNPIN, A), quiet(on="b")]
    ),
    Scenario(
        "unpin: an unused pin",
        [*policy("pinned_client"), *LISTEN, api(UNPIN, {"group": "A"}), quiet(on="b")],
    ),
    Scenario(
        "unpin: on overflow",
        [*policy("overflow"), *LISTEN, api(UNPIN, {"group": "A"}), quiet(on="b")],
    ),
    Scenario("unpin: without a group", [*policy("pinned_client"), api(UNPIN), api(UNPIN, {})]),
    Scenario(
        "unpin: on prioritized",
        [*policy("prioritized"), *LISTEN, api(UNPIN, {"group": "A"}), quiet(on="b")],
    ),
    Scenario("unpin: a consumer without groups", [*ready(0), api(UNPIN, {"group": "A"})]),
    Scenario("unpin: an empty document", [*policy("pinned_client"), api(UNPIN, {"group": ""})]),
    Scenario("unpin: nonsense", [*policy("pinned_client"), api(UNPIN, "nonsense")]),
    Scenario("unpin: a bad group", [*policy("pinned_client"), api(UNPIN, {"group": "a b"})]),
    Scenario("unpin: an unknown group", [*policy("pinned_client"), api(UNPIN, {"group": "B"})]),
    Scenario(
        "unpin: what is not there",
        [
            *ready(0),
            api("CONSUMER.UNPIN.S.D", {"group": "A"}),
            api("CONSUMER.UNPIN.T.C", {"group": "A"}),
        ],
    ),
]

TABLE: Table = [*PINNED, *OVERFLOW, *PRIORITIZED, *PULLS, *API]
