"""What only servers say, said by a client: headers, acknowledgements, events, answers.

Each is tried on both servers. What a server adds to a message it stands for must be true; what is merely
stored, or sent to who asked for it, is a client's own affair.
"""

from __future__ import annotations

from typing import Any

from conformance.driver import Session, Step
from conformance.steps import (
    api,
    connect,
    consumer,
    drain,
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
from conformance.table import Scenario, Settings, Table

# Header and value; each is published to a stream without, and to one with everything it may mean.
HEADERS = (
    ("Nats-Stream-Source", "ORIGIN 7 > > a"),
    ("Nats-Schedule-Target", "a.b"),
    ("Nats-Schedule-Source", "a.b"),
    ("Nats-Schedule-TTL", "5m"),
    ("Nats-Schedule-Next", "2030-01-01T00:00:00Z"),
    ("Nats-Schedule-Next", "purge"),
    ("Nats-Scheduler", "a.b"),
    ("Nats-Marker-Reason", "MaxAge"),
    ("Nats-Marker-Reason", "Purge"),
    ("KV-Operation", "PURGE"),
    ("Nats-Stream", "OTHER"),
    ("Nats-Subject", "other"),
    ("Nats-Sequence", "77"),
    ("Nats-Time-Stamp", "2001-01-01T00:00:00Z"),
    ("Nats-Last-Sequence", "76"),
    ("Nats-Num-Pending", "0"),
    ("Nats-UpTo-Sequence", "99"),
    ("Nats-Msg-Size", "99"),
    ("Nats-Pin-Id", "mine"),
    ("Nats-Last-Consumer", "9"),
    ("Nats-Last-Stream", "9"),
    ("Nats-Consumer-Stalled", "x"),
    ("Nats-Counter-Sources", '{"O":{"a":"5"}}'),
    ("Nats-Incr", "1"),
    ("Nats-TTL", "1h"),
    ("Nats-TTL", "never"),
    ("Nats-Rollup", "all"),
    ("Nats-Expected-Stream", "OTHER"),
    ("Nats-Expected-Last-Sequence", "99"),
    ("Nats-Batch-Sequence", "1"),
    ("Nats-Batch-Commit", "1"),
    ("Nats-Required-Api-Level", "999"),
    ("Nats-Response-Type", "none"),
    ("Nats-Request-Info", '{"acc":"other"}'),
    ("nats-stream-source", "ORIGIN 7 > > a"),
    ("Status", "503"),
)
DELIVERIES = ("a", "a.b", "$JS.API.X", "$JS.ACK.S.C", "$SYS.X", "a.>", "a b", "$JS.FC.x")
PLACES = ("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Last-Sequence",
          "Nats-Num-Pending", "Nats-Msg-Size")  # fmt: skip
OPEN = {"allow_msg_ttl": True, "allow_msg_schedules": True, "allow_rollup_hdrs": True}


def _get(sequence: int) -> Step:
    return api("STREAM.MSG.GET.S", {"seq": sequence})


def _forge(name: str, **config: Any) -> Scenario:
    steps: list[Step] = [stream(subjects=["a", "a.>"], **config)]
    for header, value in HEADERS:
        steps += [
            publish("a", "x", {header: value}),
            api("STREAM.MSG.GET.S", {"last_by_subj": "a"}),
        ]
    return Scenario(name, [*steps, api("STREAM.INFO.S")])


def _lie() -> dict[str, str]:
    return dict.fromkeys(PLACES, "1") | {"A": "b"}


STORED: Table = [
    _forge("forged: headers in a stream that knows nothing of them"),
    _forge("forged: headers in a stream that knows them", **OPEN),
    Scenario(
        "forged: what a direct get says of a message",
        [
            stream(subjects=["a.>"], allow_direct=True),
            publish("a.b", "x", _lie()),
            api("DIRECT.GET.S", {"seq": 1}),
            api("DIRECT.GET.S.a.b"),
            api("DIRECT.GET.S", {"multi_last": ["a.>"]}, replies=2),
        ],
    ),
    Scenario(
        "forged: what a republished message says of itself",
        [
            stream(subjects=["a"], republish={"src": "a", "dest": "out.a"}),
            raw("SUB out.> 1\n", on="b"),
            drain("b"),
            publish("a", "x", _lie()),
            read(1, on="b"),
        ],
    ),
    Scenario(
        "forged: a counter's sources",
        [
            stream(subjects=["a"], allow_msg_counter=True),
            request("a", headers={"Nats-Incr": "1"}),
            request("a", headers={"Nats-Incr": "1", "Nats-Counter-Sources": '{"O":{"a":"5"}}'}),
            request("a", headers={"Nats-Incr": "1", "Nats-Counter-Sources": '{"P":{"a":"5"}}'}),
            _get(2),
            _get(3),
        ],
    ),
    Scenario(
        "forged: a counter's sources that are none",
        [
            stream(subjects=["a"], allow_msg_counter=True),
            request("a", headers={"Nats-Incr": "1", "Nats-Counter-Sources": "{"}),
            request("a", headers={"Nats-Incr": "1"}),
        ],
    ),
    Scenario(
        "forged: a pin",
        [
            stream(subjects=["a"]),
            consumer(
                priority_groups=["g"], priority_policy="pinned_client", priority_timeout=10**9
            ),
            publish("a", "x", {"Nats-Pin-Id": "mine"}),
            pull({"batch": 1, "group": "g"}, 1),
        ],
    ),
    Scenario(
        "forged: a status in a stream",
        [
            stream(subjects=["a"]),
            consumer(),
            raw("HPUB a 37 37\nNATS/1.0 409 Consumer Deleted\n\n\n"),
            raw("HPUB a 20 20\nNATS/1.0 503 \n\n\n"),
            drain(),
            pull({"batch": 2, "expires": 10**9}, 2),
        ],
    ),
]

EVENTS: Table = [
    Scenario(
        "forged: an acknowledgement of what nobody was given",
        [
            stream(subjects=["a"], retention="workqueue"),
            consumer(),
            publish_all("a", "a", "a"),
            *[
                request(f"$JS.ACK.S.C.{ack}", "+ACK", timeout=0.3)
                for ack in ("1.1.1.0.0", "1.2.2.0.0", "1.99.99.0.0", "x.y.z.0.0")
            ],
            request("$JS.ACK.S.OTHER.1.1.1.0.0", "+ACK"),
            request("$JS.ACK.T.C.1.1.1.0.0", "+TERM"),
            api("STREAM.INFO.S"),
            api("CONSUMER.INFO.S.C"),
        ],
    ),
    Scenario(
        "forged: an answer to flow control nobody asked for",
        [stream(subjects=["a"]), consumer(), request("$JS.FC.S.C.x", "", timeout=0.3)],
    ),
    Scenario(
        "forged: an advisory is but a message",
        [
            connect("b"),
            raw("SUB $JS.EVENT.> 1\n", on="b"),
            drain("b"),
            raw('PUB $JS.EVENT.ADVISORY.STREAM.DELETED.S 12\n{"forged": 1}\n'[:-1] + "\n"),
            drain(),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "forged: an answer of the API where the asker points it",
        [
            stream(subjects=["a"]),
            raw("PUB $JS.API.STREAM.INFO.S a 0\n\n"),
            raw("PUB $JS.API.STREAM.NAMES $JS.API.STREAM.DELETE.S 0\n\n"),
            drain(),
            quiet(0.3),
            api("STREAM.NAMES"),
        ],
    ),
    Scenario(
        "forged: a pull whose messages go back into the stream",
        [
            stream(subjects=["a", "b"]),
            consumer(ack_policy="none", filter_subject="a"),
            publish_all("a"),
            raw('PUB $JS.API.CONSUMER.MSG.NEXT.S.C b 11\n{"batch": 5}\n'[:-1] + "\n"),
            drain(),
            quiet(0.3),
            api("STREAM.INFO.S", {"subjects_filter": ">"}),
        ],
    ),
    Scenario(
        "forged: a push consumer that feeds its own stream",
        [
            stream(subjects=["a", "a.>"]),
            *[
                api(
                    f"CONSUMER.CREATE.S.P{number}",
                    {"stream_name": "S", "config": {"name": f"P{number}", "deliver_subject": to}},
                )
                for number, to in enumerate(DELIVERIES)
            ],
        ],
    ),
    Scenario(
        "forged: republished where it must not go",
        [
            step
            for dest in ("a", ">", "$JS.API.X", "$JS.ACK.S.C", "$SYS.X", "$JS.FC.x", "$JS.EVENT.x")
            for step in (
                api(
                    "STREAM.CREATE.S",
                    {"name": "S", "subjects": ["a"], "republish": {"src": "a", "dest": dest}},
                ),
                unrecorded("STREAM.DELETE.S", None),
            )
        ],
    ),
]

RIGHTS = Settings(
    nats_conf="""
jetstream: enabled
accounts {
  A { jetstream: enabled
      users: [ {user: all, password: p}
               {user: reader, password: p, permissions { publish: ["$JS.API.CONSUMER.MSG.NEXT.S.C", "mine"]
                                                         subscribe: ["_INBOX.reader.>"] }}
               {user: server, password: p, permissions { subscribe: ["ask", "_INBOX.server.>"]
                                                         allow_responses: true }} ]
      exports: [{stream: "a"}, {service: "$JS.API.STREAM.INFO.S"}] }
  B { jetstream: enabled, users: [{user: other, password: p}]
      imports: [{stream: {account: A, subject: "a"}}
                {service: {account: A, subject: "$JS.API.STREAM.INFO.S"}, to: "info"}] }
  $SYS { users: [{user: sys, password: p}] }
}
"""
)


def _as(name: str) -> Step:
    return connect(name, user=name, **{"pass": "p"})


def _begin() -> list[Step]:
    """A stream with two messages and a consumer in A."""

    def step(session: Session) -> None:
        config = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
        for subject, body in (
            ("$JS.API.STREAM.DELETE.S", None),
            ("$JS.API.STREAM.CREATE.S", config),
            ("$JS.API.CONSUMER.CREATE.S.C",
             {"stream_name": "S",
              "config": {"name": "C", "durable_name": "C", "ack_policy": "explicit"}}),
            ("s.1", "x"),
            ("s.2", "y"),
        ):  # fmt: skip
            before = len(session.transcript)
            request(subject, body, on="all")(session)
            del session.transcript[before:]

    return [_as("all"), step]


WITHOUT_RIGHTS: Table = [
    Scenario(
        "forged: by who may not publish it",
        [
            *_begin(),
            _as("reader"),
            raw("SUB _INBOX.reader.> 1\n", on="reader"),
            raw("PUB $JS.API.CONSUMER.MSG.NEXT.S.C _INBOX.reader.1 0\n\n", on="reader"),
            read(1, on="reader"),
            *[
                raw(f"PUB {subject} 4\n+ACK\n", on="reader")
                for subject in (
                    "$JS.ACK.S.C.1.1.1.0.0",
                    "$JS.FC.S.C.x",
                    "$JS.EVENT.ADVISORY.x",
                    "$SYS.REQ.SERVER.PING",
                    "$KV.B.key",
                    "$O.B.C.x",
                    "$SRV.PING",
                    "_INBOX.other.1",
                    "_R_.a.b",
                    "s.3",
                )
            ],
            raw("SUB _INBOX.other.> 2\nSUB > 3\nSUB $JS.ACK.> 4\nSUB $SYS.> 5\n", on="reader"),
            drain("reader"),
            api("CONSUMER.INFO.S.C", on="all"),
        ],
        settings=RIGHTS,
    ),
    Scenario(
        "forged: a reply one may not publish to",
        [
            *_begin(),
            _as("reader"),
            raw("SUB _INBOX.reader.> 1\n", on="reader"),
            raw("PUB $JS.API.CONSUMER.MSG.NEXT.S.C s.loop 0\n\n", on="reader"),
            drain("reader"),
            quiet(0.3, on="reader"),
            api("STREAM.INFO.S", {"subjects_filter": ">"}, on="all"),
        ],
        settings=RIGHTS,
    ),
    Scenario(
        "forged: an acknowledgement from another account",
        [
            *_begin(),
            _as("other"),
            request("$JS.API.CONSUMER.MSG.NEXT.S.C", {"batch": 2}, replies=2, on="all"),
            request("$JS.ACK.S.C.1.1.1.0.0", "+ACK", on="other"),
            request("$JS.API.STREAM.DELETE.S", on="other"),
            api("CONSUMER.INFO.S.C", on="all"),
        ],
        settings=RIGHTS,
    ),
    Scenario(
        "forged: an answer that comes from an imported service",
        [
            *_begin(),
            _as("other"),
            raw("PUB info $JS.API.STREAM.CREATE.T 0\n\n", on="other"),
            request("info", on="other"),
            api("STREAM.NAMES", on="other"),
        ],
        settings=RIGHTS,
    ),
    Scenario(
        "forged: system events by a user of an ordinary account",
        [
            _as("sys"),
            _as("other"),
            raw("SUB $SYS.ACCOUNT.> 1\nSUB $SYS.SERVER.> 2\n", on="sys"),
            drain("sys"),
            quiet(on="sys"),
            raw("SUB $SYS.> 1\n", on="other"),
            raw("PUB $SYS.ACCOUNT.A.CONNECT 2\n{}\n", on="other"),
            request("$SYS.REQ.SERVER.PING", on="other"),
            request("$SYS.REQ.ACCOUNT.A.CONNZ", on="other"),
            drain("other"),
            quiet(on="sys"),
        ],
        settings=RIGHTS,
    ),
    Scenario(
        "forged: more answers than one may give",
        [
            _as("server"),
            _as("all"),
            raw("SUB ask 1\n", on="server"),
            drain("server"),
            raw("SUB _INBOX.all 1\nPUB ask _INBOX.all 0\n\n", on="all"),
            drain("all"),
            read(1, on="server"),
            raw("PUB _INBOX.all 1\n1\nPUB _INBOX.all 1\n2\nPUB _INBOX.else 1\n3\n", on="server"),
            drain("server"),
            quiet(on="all"),
            raw("PUB ask $JS.API.STREAM.DELETE.S 0\n\n", on="all"),
            read(1, on="server"),
        ],
        settings=RIGHTS,
    ),
]

INFO, PURGE, DELETE = (f"$JS.API.STREAM.{verb}.S" for verb in ("INFO", "PURGE", "DELETE"))
NEXT, GET = "$JS.API.CONSUMER.MSG.NEXT.S.C", "$JS.API.DIRECT.GET.S"
DEPUTIES = (
    ("an info", INFO, ""),
    ("a list of names", "$JS.API.STREAM.NAMES", ""),
    ("a message that was pulled", NEXT, '{"batch":1,"no_wait":true}'),
    ("the end of a pull", NEXT, '{"batch":9,"no_wait":true}'),
    ("a message that was got", GET, '{"seq":3}'),
    ("that there is nothing to get", GET, '{"seq":30}'),
    ("an acknowledgement of a publish", "s.3", ""),
    ("the answer to an acknowledgement", "$JS.ACK.S.C.1.1.1.0.0", "+ACK"),
)


def _deputy(what: str, subject: str, body: str, reply: str) -> Scenario:
    """Whatever the server answers, it is asked to send it to a call of its own API."""
    return Scenario(
        f"forged: {what} as a request to {reply}",
        [
            stream(subjects=["s.>"], allow_direct=True),
            consumer(),
            publish_all("s.1", "s.2"),
            publish_all("s.3", payload=""),
            unrecorded("CONSUMER.MSG.NEXT.S.C", {"batch": 1}),
            raw(f"PUB {subject} {reply} {len(body)}\n{body}\n"),
            drain(),
            quiet(0.3),
            api("STREAM.MSG.GET.S", {"seq": 1}),
        ],
    )


TABLE: Table = [
    *STORED,
    *EVENTS,
    *WITHOUT_RIGHTS,
    *[_deputy(*deputy, reply) for deputy in DEPUTIES for reply in (PURGE, DELETE)],
]
