"""The rarer rules of pull requests and acknowledgements, one scenario each."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.scenarios.pulls import ready
from conformance.steps import (
    ack,
    api,
    ask,
    consumer,
    publish,
    publish_all,
    pull,
    quiet,
    raw,
    read,
    request,
    stream,
    unrecorded,
)
from conformance.table import Scenario, Table

MS = 1_000_000
SECOND = 1000 * MS
INFO = "CONSUMER.INFO.S.C"
PAUSE = "CONSUMER.PAUSE.S.C"
ONE_SIZE = len("a.x" + "$JS.ACK.S.C.1.1.1.1700000000000000000.0" + "x")
GROUP = {"priority_groups": ["A"]}
NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.C"


def bodies(title: str, *texts: object) -> Scenario:
    """Pulls of one message or more each, told apart by the quiet after them."""
    return Scenario(f"pull: {title}", [*ready(9), *[pull(text, 1) for text in texts]])


def order(title: str, body: dict[str, Any], **config: Any) -> Scenario:
    """Two things are wrong with a request: which is told."""
    return Scenario(f"pull: {title}", [*ready(1, **config), pull(body, 1)])


def raw_ack(subject: str, body: str = "+ACK") -> Step:
    return request(subject, body, timeout=0.15)


BODIES: Table = [
    bodies("blanks around a body", "  2\n", ' {"batch":2} ', "   "),
    bodies("numbers", "0", "-3", "+2", "2.5", "1e1"),
    bodies("words that are no object", "null", "true", '"2"', "[2]"),
    bodies("an empty object", "{}"),
    bodies("nulls", {"batch": None, "expires": None}),
    Scenario("pull: a batch that is a text", [*ready(1), pull({"batch": "2"}, 1)]),
    Scenario("pull: a huge batch", [*ready(2), pull({"batch": 50_000_000, "no_wait": True}, 3)]),
    Scenario(
        "pull: a huge batch expires like any other",
        [*ready(0), pull({"batch": 50_000_000, "expires": 100 * MS}, 1)],
    ),
]

ORDER: Table = [
    order("heartbeat, then batch", {"batch": 9, "idle_heartbeat": SECOND}, max_batch=2),
    order(
        "batch, then expiry",
        {"batch": 9, "expires": 9 * SECOND},
        max_batch=2,
        max_expires=2 * SECOND,
    ),
    order(
        "expiry, then bytes",
        {"batch": 1, "expires": 9 * SECOND, "max_bytes": 9000},
        max_expires=2 * SECOND,
        max_bytes=100,
    ),
    order("bytes, then thresholds", {"max_bytes": 9000, "min_pending": 1}, max_bytes=100),
    order("thresholds, then id", {"min_pending": 1, "id": "x"}),
    order("id, then priority", {"id": "x", "priority": 10}),
    order("priority, then group", {"priority": 10}, priority_policy="prioritized", **GROUP),
    order("group, then queue", {"group": "B"}, priority_policy="prioritized", **GROUP),
    Scenario(
        "pull: api level, then everything else",
        [
            *ready(1),
            request(NEXT, "{bad", headers={"Nats-Required-Api-Level": "99"}),
            request(NEXT, "1", headers={"Nats-Required-Api-Level": "nonsense"}),
            request(NEXT, "1", headers={"Nats-Required-Api-Level": "1"}),
        ],
    ),
    *[
        order(f"an expiry over {limit // MS} ms", {"expires": 10**15}, max_expires=limit)
        for limit in (1 * MS, 1500 * MS, 90 * SECOND, 3600 * SECOND, 5400 * SECOND)
    ],
]

WAITING: Table = [
    Scenario(
        "pull: others want more than there is",
        [
            *ready(3, max_ack_pending=1),
            pull({"batch": 10, "expires": 5 * SECOND}, 1),
            pull({"no_wait": True, "batch": 1}, 1),
        ],
    ),
    Scenario(
        "pull: no wait with a full queue",
        [
            *ready(2, max_waiting=1, max_ack_pending=1),
            pull({"batch": 1, "expires": SECOND}, 1),
            ask({"batch": 1, "expires": 500 * MS}),
            pull({"batch": 1, "no_wait": True}, 1),
        ],
    ),
    Scenario(
        "pull: a full queue is searched for the dead",
        [
            *ready(0, max_waiting=1),
            ask({"batch": 1, "expires": 5 * SECOND}),
            raw("UNSUB 1001\n"),
            pull({"batch": 1, "expires": 100 * MS}, 1),
        ],
    ),
    Scenario(
        "pull: no wait stops at the limit of acks without a word",
        [
            *ready(10, max_ack_pending=5),
            pull({"batch": 10, "no_wait": True}, 5),
            pull({"batch": 1, "no_wait": True}, 0, after=0.15),
            pull({"batch": 1, "no_wait": True, "expires": 100 * MS}, 1),
        ],
    ),
    Scenario(
        "pull: a batch of none with bytes",
        [*ready(1), pull({"batch": 0, "max_bytes": 5000, "expires": SECOND}, 2)],
    ),
    Scenario(
        "pull: bytes that fit exactly",
        [
            *ready(2),
            pull({"batch": 5, "max_bytes": ONE_SIZE, "expires": SECOND}, 1),
            api(INFO),
        ],
    ),
    Scenario(
        "pull: bytes one short",
        [*ready(2), pull({"batch": 5, "max_bytes": ONE_SIZE - 1, "expires": SECOND}, 1)],
    ),
    Scenario(
        "pull: bytes of headers count",
        [
            *ready(0),
            publish("a.x", "x", {"Key": "v" * 100}),
            pull({"batch": 1, "max_bytes": 150, "expires": 100 * MS}, 1),
            pull({"batch": 1, "max_bytes": 180, "expires": 100 * MS}, 2),
        ],
    ),
    Scenario(
        "pull: what does not fit one goes to the next",
        [
            *ready(0),
            ask({"batch": 1, "max_bytes": 20, "expires": 5 * SECOND}),
            ask({"batch": 1, "expires": 5 * SECOND}),
            publish_all("a.x"),
            read(2),
        ],
    ),
    Scenario(
        "pull: headers only counts what is sent",
        [
            *ready(0, headers_only=True),
            publish("a.x", "x" * 1000),
            pull({"batch": 1, "max_bytes": 100, "expires": SECOND}, 2),
        ],
    ),
    Scenario(
        "pull: heartbeats start anew with a delivery",
        [
            *ready(0),
            ask({"batch": 2, "expires": 1400 * MS, "idle_heartbeat": 600 * MS}),
            quiet(0.4),
            publish_all("a.x"),
            read(3),
            quiet(),
        ],
    ),
    Scenario(
        "pull: heartbeats at the limit of acks",
        [
            *ready(2, max_ack_pending=1),
            pull("1", 1),
            pull({"batch": 1, "expires": 500 * MS, "idle_heartbeat": 200 * MS}, 3),
        ],
    ),
    Scenario(
        "pull: waiting requests are counted down as they expire",
        [
            *ready(0),
            *[ask({"batch": 1, "expires": 100 * MS})] * 5,
            read(5),
            api(INFO),
        ],
    ),
    Scenario(
        "pull: a filter that matches nothing",
        [
            stream(subjects=["a.>"]),
            publish_all("a.x", "a.x"),
            consumer(filter_subject="a.y"),
            pull({"no_wait": True}, 1),
            pull({"expires": 100 * MS}, 1),
        ],
    ),
    Scenario(
        "pull: subjects shared by two requests",
        [
            *ready(3),
            raw("SUB in.* 77\n"),
            raw(f"PUB {NEXT} in.1 1\n1\nPUB {NEXT} in.2 1\n1\nPUB {NEXT} in.3 1\n1\n"),
            read(3),
        ],
    ),
]

ACKS: Table = [
    Scenario(
        "acks: nak with a duration",
        [
            *ready(1),
            pull("1", 1),
            ack(0, "-NAK 150ms"),
            pull({"no_wait": True}, 1),
            pull({"expires": SECOND}, 1),
        ],
    ),
    Scenario(
        "acks: nak with a delay that is none",
        [*ready(1), pull("1", 1), ack(0, "-NAK soon"), pull({"expires": SECOND}, 1)],
    ),
    Scenario(
        "acks: nak with a broken document",
        [*ready(1), pull("1", 1), ack(0, '-NAK {"delay": "x"}'), pull({"expires": SECOND}, 1)],
    ),
    Scenario(
        "acks: nak of what is acknowledged",
        [*ready(1), pull("1", 1), ack(0), ack(0, "-NAK"), pull({"no_wait": True}, 1), api(INFO)],
    ),
    Scenario(
        "acks: nak with backoff",
        [
            *ready(1, max_deliver=4, backoff=[100 * MS, 300 * MS]),
            pull("1", 1),
            ack(0, '-NAK {"delay": 50000000}'),
            pull({"expires": 2 * SECOND}, 1),
            ack(1, '-NAK {"delay": 50000000}'),
            pull({"expires": 150 * MS}, 1),
            pull({"expires": 2 * SECOND}, 1),
        ],
    ),
    Scenario(
        "acks: progress of what is acknowledged",
        [*ready(1), pull("1", 1), ack(0), ack(0, "+WPI"), api(INFO)],
    ),
    Scenario(
        "acks: terminated twice",
        [*ready(1), pull("1", 1), ack(0, "+TERM"), ack(0, "+TERM"), api(INFO)],
    ),
    Scenario(
        "acks: the next ones by number",
        [*ready(4), pull("1", 1), ack(0, "+NXT 2"), quiet(), api(INFO)],
    ),
    Scenario(
        "acks: the next one without a reply",
        [*ready(2), pull("1", 1), ack(0, "+NXT", sync=False), quiet(), api(INFO)],
    ),
    Scenario(
        "acks: the next one, refused",
        [*ready(2, max_batch=1), pull("1", 1), ack(0, "+NXT 5"), quiet(), api(INFO)],
    ),
    Scenario(
        "acks: the next one when there is none",
        [*ready(1), pull("1", 1), ack(0, '+NXT {"batch":1,"no_wait":true}'), quiet(), api(INFO)],
    ),
    Scenario(
        "acks: bodies that begin like an ack",
        [*ready(2), pull("2", 2), ack(0, "+ACK "), ack(1, "+OKAY"), api(INFO)],
    ),
    Scenario(
        "acks: of a sequence never delivered",
        [
            *ready(3),
            pull("1", 1),
            raw_ack("$JS.ACK.S.C.1.3.3.1700000000000000000.0"),
            raw_ack("$JS.ACK.S.C.1.0.0.1700000000000000000.0"),
            api(INFO),
        ],
    ),
    Scenario(
        "acks: subjects that are none",
        [
            *ready(1),
            pull("1", 1),
            raw_ack("$JS.ACK.S.C.x.y.z.t.p"),
            raw_ack("$JS.ACK.S.C"),
            raw_ack("$JS.ACK.S.C.1.1.1"),
            api(INFO),
        ],
    ),
    Scenario(
        "acks: the longer form of the subject",
        [
            *ready(2),
            pull("2", 2),
            raw_ack("$JS.ACK._.szMpdrwD.S.C.1.1.1.1700000000000000000.1"),
            raw_ack("$JS.ACK._.szMpdrwD.S.C.1.2.2.1700000000000000000.0.extra"),
            api(INFO),
        ],
    ),
    Scenario(
        "acks: of consumers that are not there",
        [
            *ready(1),
            raw_ack("$JS.ACK.S.D.1.1.1.1700000000000000000.0"),
            raw_ack("$JS.ACK.T.C.1.1.1.1700000000000000000.0"),
        ],
    ),
    Scenario(
        "acks: all of them, twice and backwards",
        [
            *ready(5, ack_policy="all"),
            pull("5", 5),
            ack(3),
            ack(3),
            ack(1),
            api(INFO),
            ack(4),
            api(INFO),
        ],
    ),
    Scenario(
        "acks: nak of one among all",
        [*ready(3, ack_policy="all"), pull("3", 3), ack(1, "-NAK"), pull("1", 1), api(INFO)],
    ),
    Scenario(
        "acks: term of one among all",
        [*ready(3, ack_policy="all"), pull("3", 3), ack(1, "+TERM"), api(INFO)],
    ),
]

REDELIVERIES: Table = [
    Scenario(
        "again: before new ones and beyond the limit",
        [
            *ready(4, max_ack_pending=2),
            pull("2", 2),
            ack(1, "-NAK"),
            pull({"batch": 3, "expires": 100 * MS}, 2),
            api(INFO),
        ],
    ),
    Scenario(
        "again: in the order of the stream when they run out of time",
        [
            *ready(3, ack_wait=200 * MS),
            pull("3", 3),
            ack(2, "-NAK"),
            pull("1", 1),
            ack(1),
            pull({"batch": 2, "expires": 2 * SECOND}, 2),
            api(INFO),
        ],
    ),
    Scenario(
        "again: deliveries are counted in the subject and in the info",
        [
            *ready(2),
            pull("1", 1),
            ack(0, "-NAK"),
            pull("1", 1),
            ack(1, "-NAK"),
            pull("2", 2),
            api(INFO),
            ack(2),
            api(INFO),
        ],
    ),
    Scenario(
        "again: backoff repeats its last step",
        [
            *ready(1, max_deliver=5, backoff=[50 * MS, 150 * MS]),
            pull({"batch": 4, "expires": SECOND}, 4, after=0.01),
        ],
    ),
    Scenario(
        "again: on a work queue a message out of deliveries stays",
        [
            stream(subjects=["a.>"], retention="workqueue"),
            publish_all("a.x"),
            consumer(max_deliver=1),
            pull("1", 1),
            ack(0, "-NAK"),
            pull({"no_wait": True}, 1),
            api("STREAM.INFO.S"),
        ],
    ),
    Scenario(
        "again: deleted while it waits to come again",
        [
            *ready(2, max_ack_pending=1),
            pull("1", 1),
            ack(0, "-NAK"),
            api("STREAM.MSG.DELETE.S", {"seq": 1}),
            pull({"expires": SECOND}, 1),
            api(INFO),
        ],
    ),
    Scenario(
        "again: of the last of each subject, first",
        [
            stream(subjects=["a.>"]),
            publish_all("a.x", "a.y", "a.x", "a.z"),
            consumer(deliver_policy="last_per_subject", filter_subject="a.>"),
            pull("1", 1),
            ack(0, "-NAK"),
            pull("3", 3),
        ],
    ),
    Scenario(
        "again: without acks never",
        [
            *ready(2, ack_policy="none"),
            pull("2", 2),
            pull({"no_wait": True}, 1),
            ack(0, "-NAK"),
            api(INFO),
        ],
    ),
    Scenario(
        "again: a longer ack wait holds for deliveries to come",
        [
            *ready(1, ack_wait=250 * MS),
            pull("1", 1, after=0),
            consumer(ack_wait=60 * SECOND),
            pull({"expires": 500 * MS}, 1),
            api(INFO),
        ],
    ),
]

PAUSES: Table = [
    Scenario(
        "pull: the first heartbeat ends a no-wait request that acknowledgements keep",
        [
            *ready(3, max_ack_pending=2),
            pull(
                {"batch": 9, "no_wait": True, "expires": 2 * SECOND, "idle_heartbeat": 100 * MS},
                3,
            ),
            api(INFO),
        ],
    ),
    Scenario("pause: an empty document resumes", [*ready(1), api(PAUSE, {}), api(INFO)]),
    Scenario("pause: until a broken time", [*ready(1), api(PAUSE, {"pause_until": "soon"})]),
    Scenario("pause: of a stream that is not there", [api(PAUSE)]),
    Scenario(
        "pause: redeliveries wait, too",
        [
            *ready(1, ack_wait=100 * MS),
            pull("1", 1),
            api(PAUSE, {"pause_until": "2099-01-01T00:00:00Z"}),
            pull({"expires": 250 * MS}, 1),
            api(PAUSE),
            pull({"expires": SECOND}, 1),
        ],
    ),
    Scenario(
        "pause: no wait",
        [
            *ready(1),
            api(PAUSE, {"pause_until": "2099-01-01T00:00:00Z"}),
            pull({"no_wait": True}, 0, after=0.15),
            pull({"no_wait": True, "expires": 100 * MS}, 1),
        ],
    ),
    Scenario(
        "pause: a create with another time changes nothing",
        [
            *ready(1, pause_until="2099-01-01T00:00:00Z"),
            consumer(pause_until="2001-01-01T00:00:00Z"),
            api(INFO),
        ],
    ),
    Scenario(
        "pause: from the start and in the past",
        [*ready(1, pause_until="2001-01-01T00:00:00Z"), pull("1", 1), api(INFO)],
    ),
    Scenario(
        "reset: by start time",
        [
            *ready(4, deliver_policy="by_start_time", opt_start_time="2001-01-01T00:00:00Z"),
            pull("4", 4),
            api("CONSUMER.RESET.S.C", {"seq": 2}),
            api("CONSUMER.RESET.S.C"),
        ],
    ),
    Scenario(
        "reset: to nothing, to zero, and with what is no number",
        [
            *ready(2),
            pull("2", 2),
            ack(0),
            api("CONSUMER.RESET.S.C", {}),
            api("CONSUMER.RESET.S.C", {"seq": 0}),
            # Before the first message nats-server tells of the state last written to its file.
            unrecorded("CONSUMER.RESET.S.C", {"seq": 1}),
            pull("2", 2),
        ],
    ),
    Scenario(
        "reset: waiting requests are served from there",
        [
            *ready(2),
            pull({"batch": 4, "expires": 5 * SECOND}, 2),
            unrecorded("CONSUMER.RESET.S.C", {"seq": 1}),  # tells of the messages, or not yet
            read(2),
            quiet(),
            api(INFO),
        ],
    ),
    *[
        Scenario(
            f"reset: of a consumer of {policy}",
            [
                *ready(3, deliver_policy=policy, **more),
                api("CONSUMER.RESET.S.C", {"seq": 1}),
                api("CONSUMER.RESET.S.C"),
            ],
        )
        for policy, more in (("last", {}), ("last_per_subject", {"filter_subject": "a.>"}))
    ],
    Scenario(
        "inactive: who does not pull is gone",
        [
            *ready(0, inactive_threshold=100 * MS),
            quiet(1.25),
            api(INFO),
        ],
    ),
    Scenario(
        "inactive: a waiting request is enough",
        [
            *ready(0, inactive_threshold=100 * MS),
            ask({"expires": 5 * SECOND}),
            quiet(1.25),
            api(INFO),
        ],
    ),
]

TABLE: Table = [*BODIES, *ORDER, *WAITING, *ACKS, *REDELIVERIES, *PAUSES]
