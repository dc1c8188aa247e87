"""Deliveries and acknowledgements: what comes, what comes again, and what is left."""

from __future__ import annotations

from conformance.scenarios.pulls import ready
from conformance.steps import ack, api, consumer, publish, publish_all, pull, quiet, stream
from conformance.table import Scenario, Table

MS = 1_000_000
SECOND = 1000 * MS
INFO = "CONSUMER.INFO.S.C"
STREAM_INFO = "STREAM.INFO.S"

ACKS: Table = [
    Scenario("an ack is answered", [*ready(2), pull("2", 2), ack(0), api(INFO), ack(1), api(INFO)]),
    Scenario(
        "an ack twice is answered twice", [*ready(1), pull("1", 1), ack(0), ack(0), api(INFO)]
    ),
    Scenario(
        "acks in any order",
        [
            *ready(3),
            pull("3", 3),
            ack(2),
            api(INFO),
            ack(0),
            api(INFO),
            ack(1),
            api(INFO),
        ],
    ),
    Scenario(
        "an empty ack and +OK", [*ready(2), pull("2", 2), ack(0, ""), ack(1, "+OK"), api(INFO)]
    ),
    Scenario(
        "an unknown ack is answered and ignored",
        [*ready(1), pull("1", 1), ack(0, "HMM"), api(INFO)],
    ),
    Scenario(
        "an ack without a reply", [*ready(1), pull("1", 1), ack(0, sync=False), quiet(), api(INFO)]
    ),
    Scenario("nak redelivers", [*ready(2), pull("1", 1), ack(0, "-NAK"), pull("2", 2), api(INFO)]),
    Scenario(
        "nak with a delay",
        [
            *ready(1),
            pull("1", 1),
            ack(0, '-NAK {"delay": 150000000}'),
            pull({"batch": 1, "no_wait": True}, 1),
            pull({"batch": 1, "expires": SECOND}, 1),
        ],
    ),
    Scenario(
        "naks come back in their order",
        [
            *ready(4),
            pull("3", 3),
            ack(2, "-NAK"),
            ack(0, "-NAK"),
            pull("4", 3),
        ],
    ),
    Scenario(
        "terminated means never again",
        [
            *ready(2),
            pull("1", 1),
            ack(0, "+TERM"),
            pull({"batch": 2, "no_wait": True}, 2),
            api(INFO),
        ],
    ),
    Scenario(
        "terminated with a reason", [*ready(1), pull("1", 1), ack(0, "+TERM broken"), api(INFO)]
    ),
    Scenario(
        "in progress extends the wait",
        [
            *ready(1, ack_wait=800 * MS),
            pull("1", 1),
            quiet(0.4),
            ack(0, "+WPI"),
            pull({"batch": 1, "expires": 500 * MS}, 1, after=0.01),
            api(INFO),
        ],
    ),
    Scenario(
        "not acknowledged in time",
        [
            *ready(1, ack_wait=200 * MS),
            pull("1", 1),
            pull({"batch": 1, "expires": 2 * SECOND}, 1),
            api(INFO),
        ],
    ),
    Scenario(
        "backoff sets the wait",
        [
            *ready(1, max_deliver=3, backoff=[100 * MS, 200 * MS]),
            pull("1", 1),
            pull({"batch": 1, "expires": SECOND}, 1),
            pull({"batch": 1, "expires": SECOND}, 1),
            pull({"batch": 1, "expires": 400 * MS}, 1),
            api(INFO),
        ],
    ),
    Scenario(
        "as often as allowed",
        [
            *ready(2, max_deliver=2),
            pull("1", 1),
            ack(0, "-NAK"),
            pull("1", 1),
            ack(1, "-NAK"),
            pull({"batch": 5, "no_wait": True}, 2),
            api(INFO),
        ],
    ),
    Scenario(
        "ack all",
        [
            *ready(4, ack_policy="all"),
            pull("4", 4),
            ack(2),
            api(INFO),
            ack(0),
            api(INFO),
        ],
    ),
    Scenario("no acks", [*ready(2, ack_policy="none"), pull("2", 2), api(INFO), ack(0)]),
    Scenario(
        "as many unacknowledged as allowed",
        [
            *ready(5, max_ack_pending=2),
            pull({"batch": 5, "expires": 200 * MS}, 3),
            ack(0),
            pull({"batch": 5, "expires": 200 * MS}, 2),
            api(INFO),
        ],
    ),
    Scenario(
        "an ack asks for the next",
        [
            *ready(3),
            pull("1", 1),
            ack(0, "+NXT"),
            quiet(),
            api(INFO),
        ],
    ),
    Scenario(
        "an ack asks for several",
        [
            *ready(4),
            pull("1", 1),
            ack(0, '+NXT {"batch":2}'),
            quiet(),
            api(INFO),
        ],
    ),
    Scenario(
        "a work queue loses what is acknowledged",
        [
            stream(subjects=["a.>"], retention="workqueue"),
            publish_all("a.x", "a.x", "a.x"),
            consumer(),
            pull("3", 3),
            ack(1),
            api(STREAM_INFO, {"deleted_details": True}),
            ack(0),
            ack(2, "+TERM"),
            api(STREAM_INFO),
        ],
    ),
    Scenario(
        "a work queue's message is acknowledged several times",
        [
            stream(subjects=["a.>"], retention="workqueue"),
            publish_all("a.x", "a.x", "a.x"),
            consumer(),
            pull("2", 2),
            *[ack(0, sync=False)] * 3,
            ack(0),
            ack(1),
            *[ack(0, sync=False)] * 3,
            ack(1),
            api(STREAM_INFO, {"deleted_details": True}),
        ],
    ),
    *[
        Scenario(
            f"an ack of what a consumer of that name had before, {what}",
            [
                stream(subjects=["a.>"], retention="workqueue"),
                consumer(filter_subject="a.x"),
                publish_all("a.x"),
                pull("1", 1),
                api("CONSUMER.DELETE.S.C"),
                consumer("D", filter_subject="a.x" if needed else "a.z"),
                consumer(filter_subject="a.y"),
                publish_all("a.y", "a.w"),
                pull("1", 1),
                ack(0, sync=sync),
                ack(1),
                api(STREAM_INFO, {"deleted_details": True}),
            ],
        )
        for what, needed, sync in [
            ("needed by nobody", False, True),
            ("needed by nobody, no answer wanted", False, False),
            ("needed by another one", True, True),
        ]
    ],
    Scenario(
        "a message deleted while unacknowledged",
        [
            *ready(2, ack_wait=250 * MS),
            pull("1", 1, after=0),
            api("STREAM.MSG.DELETE.S", {"seq": 1}),
            pull({"batch": 2, "expires": 500 * MS}, 2),
            api(INFO),
        ],
    ),
]

DELIVERY: Table = [
    Scenario(
        "headers and payload are delivered as they came",
        [
            *ready(0),
            publish("a.x", "hello", {"K": "v", "L": "w"}),
            pull("1", 1),
        ],
    ),
    Scenario(
        "headers only",
        [
            *ready(0, headers_only=True),
            publish("a.x", "hello", {"K": "v"}),
            publish("a.x", "ho"),
            pull("2", 2),
        ],
    ),
    Scenario(
        "a filter",
        [
            stream(subjects=["a.>"]),
            publish_all("a.x", "a.y", "a.x", "a.z"),
            consumer(filter_subject="a.x"),
            pull({"batch": 5, "no_wait": True}, 3),
            api(INFO),
        ],
    ),
    Scenario(
        "several filters",
        [
            stream(subjects=["a.>"]),
            publish_all("a.x", "a.y", "a.x", "a.z", "a.q.r"),
            consumer(filter_subjects=["a.x", "a.*.r"]),
            pull({"batch": 5, "no_wait": True}, 4),
            api(INFO),
        ],
    ),
    Scenario(
        "from the last",
        [
            *ready(4, deliver_policy="last"),
            pull({"batch": 5, "no_wait": True}, 2),
            api(INFO),
        ],
    ),
    Scenario(
        "from new ones on",
        [
            *ready(3, deliver_policy="new"),
            pull({"batch": 1, "no_wait": True}, 1),
            publish_all("a.x"),
            pull("1", 1),
        ],
    ),
    Scenario(
        "from a sequence on",
        [
            *ready(4, deliver_policy="by_start_sequence", opt_start_seq=3),
            pull({"batch": 5, "no_wait": True}, 3),
            api(INFO),
        ],
    ),
    Scenario(
        "from a sequence beyond the end",
        [
            *ready(2, deliver_policy="by_start_sequence", opt_start_seq=5),
            publish_all("a.x", "a.x", "a.x", "a.x"),
            pull({"batch": 5, "no_wait": True}, 3),
        ],
    ),
    Scenario(
        "from a time on",
        [
            *ready(3, deliver_policy="by_start_time", opt_start_time="2000-01-01T00:00:00Z"),
            pull({"batch": 5, "no_wait": True}, 4),
        ],
    ),
    Scenario(
        "the last of each subject",
        [
            stream(subjects=["a.>"]),
            publish_all("a.x", "a.y", "a.x", "a.z"),
            consumer(deliver_policy="last_per_subject", filter_subject="a.>"),
            pull({"batch": 5, "no_wait": True}, 4),
            api(INFO),
        ],
    ),
    Scenario(
        "purged messages are not delivered",
        [
            *ready(4),
            pull("1", 1),
            api("STREAM.PURGE.S", {"seq": 4}),
            pull({"batch": 5, "no_wait": True}, 2),
            api(INFO),
        ],
    ),
    Scenario(
        "two consumers read on their own",
        [
            *ready(2),
            consumer("D"),
            pull("2", 2),
            pull("1", 1, consumer="D"),
            api("CONSUMER.LIST.S"),
        ],
    ),
    Scenario(
        "deliveries after a transform show the new subject",
        [
            stream(subjects=["a.*"], subject_transform={"src": "a.*", "dest": "t.$1"}),
            publish_all("a.x"),
            consumer(),
            pull("1", 1),
        ],
    ),
]

TABLE: Table = [*ACKS, *DELIVERY]
