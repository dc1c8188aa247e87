"""What those who listen are told: the audit of API calls, and every advisory of consumers."""

from __future__ import annotations

import datetime

from conformance.driver import Step
from conformance.scenarios.consumers import create
from conformance.scenarios.control import listen
from conformance.scenarios.pulls import ready
from conformance.steps import ack, api, connect, pull, quiet, read, stream
from conformance.table import Scenario, Table

MS = 1_000_000
SECOND = 1000 * MS
CONSUMERS = listen("$JS.EVENT.ADVISORY.CONSUMER.>")
AUDIT = listen("$JS.EVENT.ADVISORY.API")


def told(call: Step) -> list[Step]:
    """A call, and what is told of it: nats-server tells of one call beside the next."""
    return [call, read(1, on="b")]


TABLE: Table = [
    Scenario(
        "audit: calls that change something",
        [
            *AUDIT,
            connect("c", name="me", lang="py", version="1"),
            *told(api("STREAM.CREATE.S", {"name": "S", "subjects": ["a"]}, on="c")),
            *told(create({"ack_policy": "explicit"})),
            *told(api("CONSUMER.DELETE.S.C")),
            *told(api("STREAM.DELETE.S")),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "audit: calls that ask, and calls that are refused",
        [
            *ready(0),
            *AUDIT,
            *told(api("CONSUMER.INFO.S.C")),
            *told(api("CONSUMER.INFO.S.D")),
            *told(api("CONSUMER.INFO.S.C", "nonsense")),
            *told(api("STREAM.NAMES")),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "audit: pulls, acks and unknown calls are not told",
        [
            *ready(2),
            *AUDIT,
            pull("1", 1),
            ack(0),
            api("NONSENSE", timeout=0.1),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "advisories of a message out of its deliveries",
        [
            *ready(1, ack_wait=200 * MS, max_deliver=2),
            *CONSUMERS,
            pull({"batch": 3, "expires": 700 * MS}, 3),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "advisories of a message refused twice",
        [
            *ready(1),
            *CONSUMERS,
            pull("1", 1),
            ack(0, "-NAK"),
            pull("1", 1),
            ack(1, '-NAK {"delay": 50000000}'),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "advisories of a termination without a reason",
        [*ready(1), *CONSUMERS, pull("1", 1), ack(0, "+TERM"), quiet(on="b")],
    ),
    Scenario(
        "advisories of a message deleted while unacknowledged",
        [
            *ready(2),
            *CONSUMERS,
            pull("1", 1),
            api("STREAM.MSG.DELETE.S", {"seq": 1}),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "advisories of a purge while unacknowledged",
        [*ready(2), *CONSUMERS, pull("2", 2), api("STREAM.PURGE.S"), quiet(on="b")],
    ),
    Scenario(
        "advisories of a pause that runs out",
        [
            *ready(1),
            *CONSUMERS,
            lambda session: api("CONSUMER.PAUSE.S.C", {"pause_until": _soon(0.3)})(session),
            pull({"expires": 2 * SECOND}, 1),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "advisories of a pause from the start",
        [
            stream(subjects=["a.>"]),
            *CONSUMERS,
            create({"ack_policy": "explicit", "pause_until": "2099-01-01T00:00:00Z"}),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "advisories of a stream deleted with its consumers",
        [*ready(0), *CONSUMERS, api("STREAM.DELETE.S"), quiet(on="b")],
    ),
]


def _soon(seconds: float) -> str:
    """A time on the machine's clock, which is the servers', too."""
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return at.isoformat().replace("+00:00", "Z")
