"""Sources and mirrors of another account's streams, and of those a durable consumer leads to."""

from __future__ import annotations

import json
import time
from typing import Any

from conformance.driver import Session, Step
from conformance.scenarios.sources import caught_up
from conformance.steps import api, connect, consumer, drain, publish_all, raw, request, stream
from conformance.table import Scenario, Settings, Table
from waiting import elapse_here

ACCOUNTS = """
accounts {
  A {
    jetstream: enabled
    users: [{user: a, password: p}]
    exports: [
      {service: "$JS.API.>"}
      {service: "$JS.FC.>"}
      {stream: "deliver.>"}
    ]
  }
  B {
    jetstream: enabled
    users: [{user: b, password: p}]
    imports: [
      {service: {account: A, subject: "$JS.API.>"}, to: "JS.A.API.>"}
      {service: {account: A, subject: "$JS.FC.>"}}
      {stream: {account: A, subject: "deliver.>"}}
    ]
  }
}
"""
BOTH = """
accounts {
  A { users: [{user: a, password: p}]
      exports: [{service: "q.>", response_type: stream}, {stream: "q.>"}] }
  B { users: [{user: b, password: p}]
      imports: [{service: {account: A, subject: "q.>"}}] }
  C { users: [{user: c, password: p}]
      imports: [{stream: {account: A, subject: "q.>"}}] }
}
"""
EXTERNAL = {"api": "JS.A.API", "deliver": "deliver.b"}
S = {"name": "S", "external": EXTERNAL}
CREATE = "STREAM.CREATE.T"
INFO = "STREAM.INFO.T"


def abroad(title: str, *steps: Step) -> Scenario:
    """``a`` and everything that is set up is of one account, ``b`` of the other."""
    beginning = [
        connect("a", user="a", **{"pass": "p"}),
        connect("set-up", user="a", **{"pass": "p"}),
        connect("publisher", user="a", **{"pass": "p"}),
        connect("b", user="b", **{"pass": "p"}),
        connect("watcher", user="b", **{"pass": "p"}),
    ]
    ending = [api("STREAM.DELETE.T", on="b"), api("STREAM.DELETE.S")]
    # A server of its own each: the next one begins with nothing.
    settings = Settings(nats_conf=f"# {title}\n{ACCOUNTS}")
    return Scenario(f"external: {title}", [*beginning, *steps, *ending], settings)


def made(title: str, **config: Any) -> Scenario:
    """What creating T with this says."""
    return Scenario(title, [api(CREATE, {"name": "T", **config})])


X = {"name": "X"}
CONSUMER = {"name": "C", "deliver_subject": "d"}

CHECKS: Table = [
    made(
        "external: a prefix to deliver with a wildcard",
        sources=[{**X, "external": {"api": "A", "deliver": "d.*"}}],
    ),
    made(
        "external: an api with a wildcard",
        sources=[{**X, "external": {"api": "A.>", "deliver": "d"}}],
    ),
    made(
        "external: an api of our own, of a mirror", mirror={**X, "external": {"api": "$JS.API.x"}}
    ),
    made("external: with a domain of its own", sources=[{**X, "domain": "hub"}]),
    made("external: twice", sources=[{**X, "external": EXTERNAL}, {**X, "external": EXTERNAL}]),
    made("external: of itself", mirror={"name": "T", "external": EXTERNAL}),
    made("external: one of two prefixes", sources=[X, {**X, "external": EXTERNAL}]),
    made("source consumer: without a name", sources=[{**X, "consumer": {"deliver_subject": "d"}}]),
    made("source consumer: without a subject", sources=[{**X, "consumer": {"name": "C"}}]),
    made("source consumer: empty", sources=[{**X, "consumer": {}}]),
    made(
        "source consumer: to a wildcard",
        sources=[{**X, "consumer": {"name": "C", "deliver_subject": "d.*"}}],
    ),
    made(
        "source consumer: of a name that can not be",
        sources=[{**X, "consumer": {"name": "C.D", "deliver_subject": "d"}}],
    ),
    made(
        "source consumer: with a start", sources=[{**X, "consumer": CONSUMER, "opt_start_seq": 3}]
    ),
    made(
        "source consumer: with a filter",
        sources=[{**X, "consumer": CONSUMER, "filter_subject": "x"}],
    ),
    made(
        "source consumer: twice, renaming",
        sources=[
            {**X, "consumer": CONSUMER, "subject_transforms": [{"src": ">", "dest": f"{to}.>"}]}
            for to in ("a", "b")
        ],
    ),
    made("source consumer: twice", sources=[{**X, "consumer": CONSUMER}] * 2),
    made("mirror consumer: without a name", mirror={**X, "consumer": {"deliver_subject": "d"}}),
    made(
        "mirror consumer: with a filter", mirror={**X, "consumer": CONSUMER, "filter_subject": "x"}
    ),
    made("mirror consumer: with an unknown field", mirror={**X, "consumer": {"x": 1}}),
    made("mirror consumer: as asked", mirror={**X, "consumer": CONSUMER}),
    made("source consumer: as asked", sources=[{**X, "consumer": CONSUMER}]),
]


def made_abroad(**config: Any) -> Step:
    """Create T in the other account without recording the answer."""

    def step(session: Session) -> None:
        body = {"name": "T", "allow_direct": True, **config}
        inbox = session.inbox("b")
        session.publish("b", f"$JS.API.{CREATE}".encode(), inbox, b"", json.dumps(body).encode())
        frame = session.wire("b").frame()
        if frame is None or b'"error":{' in frame[-1]:
            session.note(f"set-up failed: {frame!r}")

    return step


def look(count: int) -> Step:
    """Read all of T as it is stored."""
    subject = "$JS.API.DIRECT.GET.T"
    return request(subject, {"batch": count, "seq": 1}, replies=count + 1, on="b")


def copied(kind: str, source: dict[str, Any]) -> Scenario:
    config = {"mirror": source} if kind == "mirror" else {"sources": [source]}
    return abroad(
        f"a {kind}",
        stream(subjects=["s.>"]),
        publish_all("s.a", "s.b"),
        made_abroad(**config),
        caught_up(2),
        publish_all("s.c"),
        caught_up(3),
        look(3),
        api(INFO, on="b"),
    )


RENAMING = {"subject_transforms": [{"src": "s.*", "dest": "t.$1"}]}

COPIES: Table = [
    copied("mirror", S),
    copied("source", S),
    copied("source that renames", {**S, **RENAMING}),
    copied("source with a filter", {**S, "filter_subject": "s.*"}),
]

FLOW: dict[str, Any] = {"ack_policy": "flow_control", "max_ack_pending": 2}
CONSUMER_INFO = "CONSUMER.INFO.S.C"


def led(kind: str, **config: Any) -> Scenario:
    """A copy in the same account, through a consumer of its own."""
    source = {"name": "S", "consumer": CONSUMER}
    copy: dict[str, Any] = {"mirror": source} if kind == "mirror" else {"sources": [source]}
    return Scenario(
        f"{kind} consumer: led by it",
        [
            stream(subjects=["s.>"], **config),
            consumer(**FLOW, deliver_subject="d"),
            publish_all("s.a", "s.b"),
            stream("T", subjects=[], allow_direct=True, **copy),
            caught_up(2),
            publish_all("s.c", "s.d", "s.e"),
            caught_up(5),
            request("$JS.API.DIRECT.GET.T", {"batch": 5, "seq": 1}, replies=6),
            floor(5),
            api(CONSUMER_INFO),
            api(INFO),
        ],
    )


def floor(sequence: int) -> Step:
    """Wait, unrecorded, until the consumer's floor is there: a heartbeat may have to ask for it."""

    def step(session: Session) -> None:
        deadline = time.monotonic() + 6
        inbox = session.inbox("set-up")
        while time.monotonic() < deadline:
            session.publish("set-up", f"$JS.API.{CONSUMER_INFO}".encode(), inbox, b"", b"")
            frame = session.wire("set-up").frame()
            if frame and json.loads(frame[-1])["ack_floor"]["stream_seq"] == sequence:
                return
            elapse_here(0.02, "either server is asked again")
        session.note(f"the floor was never {sequence}")

    return step


def failing() -> Step:
    """Wait, unrecorded, until T says what keeps it from copying."""

    def step(session: Session) -> None:
        deadline = time.monotonic() + 6
        inbox = session.inbox("set-up")
        while time.monotonic() < deadline:
            session.publish("set-up", f"$JS.API.{INFO}".encode(), inbox, b"", b"")
            frame = session.wire("set-up").frame()
            if frame and "error" in json.loads(frame[-1])["sources"][0]:
                return
            elapse_here(0.02, "either server is asked again")
        session.note("nothing failed")

    return step


LED: Table = [
    led("mirror"),
    led("source"),
    Scenario(
        "source consumer: of another policy",
        [
            stream(subjects=["s.>"]),
            consumer(deliver_subject="d"),
            stream("T", subjects=[], sources=[{"name": "S", "consumer": CONSUMER}]),
            failing(),
            api(INFO),
        ],
    ),
    abroad(
        "a source led by a consumer",
        stream(subjects=["s.>"]),
        consumer(**FLOW, deliver_subject="deliver.c"),
        made_abroad(sources=[{**S, "consumer": {"name": "C", "deliver_subject": "deliver.c"}}]),
        publish_all("s.a", "s.b", "s.c"),
        caught_up(3),
        look(3),
        floor(3),
        api(CONSUMER_INFO),
        api(INFO, on="b"),
    ),
]

SHARED: Table = [
    Scenario(
        "a subject that is exported as a service and as a stream",
        [
            *(connect(name, user=name, **{"pass": "p"}) for name in ("a", "b", "c")),
            raw("SUB q.> 1\n", "a"),
            raw("SUB q.> 1\n", "c"),
            raw("PUB q.x 6\nsecret\n", "b"),
            drain("b"),
            drain("a"),
            drain("c"),
            raw("PUB q.x 4\nnews\n", "a"),
            drain("a"),
            drain("c"),
            raw("UNSUB 1\n", "a"),
            drain("a"),
            request("q.x", "nobody is there", on="b"),
            drain("c"),
        ],
        Settings(nats_conf=BOTH),
    )
]

TABLE: Table = [*CHECKS, *COPIES, *LED, *SHARED]
