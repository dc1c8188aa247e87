"""Features that meet: what one leaves behind for the other, as nats-server has it."""

from __future__ import annotations

from conformance.scenarios.pulls import ready
from conformance.steps import (
    ack,
    api,
    connect,
    consumer,
    publish_all,
    pull,
    quiet,
    raw,
    read,
    request,
    stream,
    update_stream,
)
from conformance.table import Scenario, Table

INFO = "CONSUMER.INFO.S.C"
NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.C"
PAST = {"pause_until": "2000-01-01T00:00:00Z"}
PAUSES = [connect("b"), raw("SUB $JS.EVENT.ADVISORY.CONSUMER.PAUSE.> 1\nPING\n", on="b")]
ABANDONED = f'SUB gone 77\nPUB {NEXT} gone 11\n{{"batch":5}}\nUNSUB 77\nPING\n'

TABLE: Table = [
    Scenario(
        "meeting: a pull that has expired on arrival, and a message for it",
        [*ready(1), pull({"batch": 3, "expires": -5}, 1), pull("1", 1)],
    ),
    Scenario(
        "meeting: a request nobody listens for any more is not counted",
        [*ready(0), raw(ABANDONED), read(1), api(INFO)],
    ),
    Scenario(
        "meeting: a request nobody listens for any more is in nobody's way",
        [
            *ready(2, max_ack_pending=1),
            raw(ABANDONED),
            read(1),
            pull({"batch": 1, "no_wait": True}, 1),
        ],
    ),
    Scenario(
        "meeting: a reset forward on a stream by interest",
        [
            stream(subjects=["a.>"], retention="interest"),
            consumer(),
            publish_all(*["a.x"] * 5),
            request("$JS.API.CONSUMER.RESET.S.C", {"seq": 4}),
            quiet(0.4),
            api("STREAM.INFO.S"),
        ],
    ),
    Scenario(
        "meeting: acknowledged after the stream has come to go by interest",
        [
            *ready(2),
            pull("1", 1),
            update_stream(subjects=["a.>"], retention="interest"),
            ack(0),
            quiet(0.2),
            api("STREAM.INFO.S"),
        ],
    ),
    Scenario(
        "meeting: acknowledged after the stream has come to keep everything",
        [
            stream(subjects=["a.>"], retention="interest"),
            consumer(),
            publish_all("a.x", "a.x"),
            pull("1", 1),
            update_stream(subjects=["a.>"], retention="limits"),
            ack(0),
            quiet(0.2),
            api("STREAM.INFO.S"),
        ],
    ),
    Scenario(
        "meeting: a pause that is over before it begins",
        [
            *ready(0),
            *PAUSES,
            read(1, on="b"),
            api("CONSUMER.PAUSE.S.C", PAST),
            read(1, on="b"),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "meeting: a consumer made with a pause that is over",
        [
            stream(subjects=["a.>"]),
            *PAUSES,
            read(1, on="b"),
            consumer(**PAST),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "meeting: the last of each subject, some of them gone",
        [
            stream(subjects=["a.>"]),
            publish_all("a.a", "a.b", "a.c", "a.c", "a.b"),
            consumer(deliver_policy="last_per_subject", filter_subject="a.>"),
            api("STREAM.PURGE.S", {"filter": "a.c"}),
            api("STREAM.MSG.DELETE.S", {"seq": 5}),
            pull("5", 1),
            publish_all("a.new"),
            pull("5", 1),
        ],
    ),
]
