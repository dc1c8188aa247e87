"""Who one is, between accounts and towards the server: what is forged, and what comes of it."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.steps import api, connect, drain, greet, quiet, raw, read, request, unanswered
from conformance.table import Scenario, Settings, Table

ACCOUNTS = Settings(
    nats_conf="""
jetstream: enabled
accounts {
  MILL { jetstream: enabled, users: [{user: mill, password: p}],
    exports: [{service: "grind.>"}, {stream: "flour.>"}, {service: "kept.>"}
              {stream: "to.town"}, {stream: "all.>"}] }
  TOWN { jetstream: {max_file: 1MB, disk_max_stream_bytes: 100, max_streams: 1},
    users: [{user: town, password: p}],
    exports: [{service: "buy.>"}],
    imports: [{service: {account: MILL, subject: "grind.>"}, to: "buy.>"}
              {stream: {account: MILL, subject: "flour.>"}}
              {service: {account: MILL, subject: "kept.>"}}
              {stream: {account: MILL, subject: "to.town"}}
              {stream: {account: MILL, subject: "all.>"}, prefix: here}] }
  FARM { users: [{user: farm, password: p}],
    imports: [{service: {account: TOWN, subject: "buy.>"}, to: "order.>"}] }
}
"""
)
NOBODY_STREAMS = Settings(
    nats_conf="""
jetstream: enabled
accounts { A { users: [{user: a, password: p}] } }
"""
)
NO_HEADERS = Settings(nats_conf="no_header_support: true\n")
NO_PASSWORD = Settings(
    nats_conf="""
authorization { users: [{user: bare}, {user: empty, password: ""}, {user: ann, password: p}] }
"""
)

REPLIES = ("_R_.a.b", "$JS.ACK.a.b", "_R_", "_R_x.a", "_R_.", "$JS.ACK")
TO_TOWN = {
    "name": "C",
    "durable_name": "C",
    "deliver_subject": "to.town",
    "ack_policy": "explicit",
}
FORGED = '{"acc":"MILL","user":"miller"}'


def _as(name: str, **options: Any) -> Step:
    return connect(name, user=name, **{"pass": "p"}, **options)


def _hpub(subject: str, reply: str, block: str, payload: str = "") -> str:
    """A publish with a header block as it stands, in the words of ``raw``."""
    size = len(block.replace("\n", "\r\n"))
    return f"HPUB {subject} {reply} {size} {size + len(payload)}\n{block}{payload}\n"


def _asks(name: str, block: str) -> Scenario:
    """TOWN asks MILL with these headers."""
    return Scenario(
        name,
        [
            _as("mill"),
            _as("town"),
            raw("SUB grind.> 1\n", on="mill"),
            drain("mill"),
            raw(_hpub("buy.fine", "my.inbox", block, "corn"), on="town"),
            drain("town"),
            quiet(on="mill"),
        ],
        settings=ACCOUNTS,
    )


FORGERIES: Table = [
    _asks("identity: a request without a word of its own", "NATS/1.0\nA: b\n\n"),
    _asks("identity: forged", f"NATS/1.0\nNats-Request-Info: {FORGED}\nA: b\n\n"),
    _asks(
        "identity: forged twice",
        f"NATS/1.0\nNats-Request-Info: {FORGED}\nA: b\nNats-Request-Info: {FORGED}\n\n",
    ),
]
TABLE: Table = [
    *FORGERIES,
    Scenario(
        "identity: through two accounts",
        [
            _as("mill"),
            _as("farm"),
            raw("SUB grind.> 1\n", on="mill"),
            drain("mill"),
            raw("PUB order.fine my.inbox 2\nhi\n", on="farm"),
            raw(
                _hpub("order.fine", "my.inbox", f"NATS/1.0\nNats-Request-Info: {FORGED}\n\n"),
                on="farm",
            ),
            drain("farm"),
            quiet(on="mill"),
        ],
        settings=ACCOUNTS,
    ),
    Scenario(
        "identity: what crosses as a stream keeps its headers",
        [
            _as("mill"),
            _as("town"),
            raw("SUB flour.> 1\n", on="town"),
            drain("town"),
            raw(
                _hpub("flour.fine", "a.reply", f"NATS/1.0\nNats-Request-Info: {FORGED}\n\n"),
                on="mill",
            ),
            drain("mill"),
            quiet(on="town"),
        ],
        settings=ACCOUNTS,
    ),
    Scenario(
        "identity: nothing of a request stays in a stream",
        [
            _as("mill"),
            _as("town"),
            api("STREAM.CREATE.KEPT", {"name": "KEPT", "subjects": ["kept.>"]}, on="mill"),
            request("kept.a", "1", headers={"A": "b"}, on="town"),
            request("kept.a", "2", headers={"Nats-Request-Info": FORGED, "A": "b"}, on="town"),
            request("kept.a", "3", headers={"Nats-Request-Info": FORGED, "A": "b"}, on="mill"),
            request("kept.a", "4", headers={"Nats-Request-Info": FORGED}, on="mill"),
            request("kept.a", "5", on="town"),
            *[api("STREAM.MSG.GET.KEPT", {"seq": seq}, on="mill") for seq in range(1, 6)],
            api("STREAM.DELETE.KEPT", on="mill"),
        ],
        settings=ACCOUNTS,
    ),
    Scenario(
        "identity: replies nobody may name",
        [
            _as("mill"),
            raw("SUB x 1\n", on="mill"),
            *[raw(f"PUB x {reply} 0\n\n", on="mill") for reply in REPLIES],
            drain("mill"),
        ],
        settings=ACCOUNTS,
    ),
    Scenario(
        "identity: an answer to nobody",
        [
            _as("mill"),
            raw("PUB _R_.a.b my.inbox 0\n\nSUB my.inbox 1\n", on="mill"),
            drain("mill"),
        ],
        settings=ACCOUNTS,
    ),
    Scenario(
        "push: delivered to who imports exactly its subject",
        [
            _as("mill"),
            _as("town"),
            api(
                "STREAM.CREATE.P", {"name": "P", "subjects": ["p"], "storage": "memory"}, on="mill"
            ),
            api(
                "CONSUMER.CREATE.P.C",
                {"stream_name": "P", "config": TO_TOWN},
                on="mill",
            ),
            request("p", "1", on="mill"),
            api("CONSUMER.INFO.P.C", on="mill"),
            raw("SUB to.town 1\n", on="town"),
            read(1, on="town"),
            api("CONSUMER.INFO.P.C", on="mill"),
            api("STREAM.DELETE.P", on="mill"),
        ],
        settings=ACCOUNTS,
    ),
    Scenario(
        "second info: after the first PONG",
        [
            greet(),
            raw('CONNECT {"verbose":false,"protocol":1}\nPING\nPING\n'),
            read(3),
            quiet(),
        ],
    ),
    Scenario(
        "second info: not for a client of old",
        [greet(), raw('CONNECT {"verbose":false,"protocol":0}\nPING\nPING\n'), read(2), quiet()],
    ),
    Scenario(
        "second info: not before CONNECT",
        [greet(), raw('PING\nCONNECT {"verbose":false,"protocol":1}\nPING\n'), read(2), quiet()],
    ),
    Scenario(
        "second info: of an account",
        [
            greet(),
            raw('CONNECT {"verbose":false,"protocol":1,"user":"town","pass":"p"}\nPING\n'),
            read(2),
            quiet(),
        ],
        settings=ACCOUNTS,
    ),
    Scenario(
        "limits: a stream larger than an account's streams may be",
        [
            _as("town"),
            api("STREAM.CREATE.L", {"name": "L", "max_bytes": 101}, on="town"),
            api("STREAM.CREATE.L", {"name": "L", "max_bytes": 100}, on="town"),
            api("STREAM.UPDATE.L", {"name": "L", "max_bytes": 101}, on="town"),
            api("STREAM.CREATE.M", {"name": "M", "max_bytes": 10}, on="town"),
            api("STREAM.DELETE.L", on="town"),
        ],
        settings=ACCOUNTS,
    ),
    Scenario(
        "accounts: without streams beside one that has",
        [
            _as("farm"),
            *[
                api(call, on="farm")
                for call in (
                    "INFO",
                    "STREAM.NAMES",
                    "STREAM.LIST",
                    "STREAM.INFO.S",
                    "STREAM.PURGE.S",
                )
            ],
            *[api(call, on="farm") for call in ("CONSUMER.NAMES.S", "CONSUMER.LIST.S")],
            unanswered("$JS.API.X", on="farm"),
        ],
        settings=ACCOUNTS,
    ),
    Scenario(
        "accounts: none has streams",
        [
            connect(user="a", **{"pass": "p"}),
            api("INFO"),
            api("STREAM.NAMES"),
            api("STREAM.CREATE.X", {"name": "X"}),
            api("CONSUMER.MSG.NEXT.S.C"),
            api("DIRECT.GET.S"),
            unanswered("$JS.API.X"),
        ],
        settings=NOBODY_STREAMS,
    ),
    Scenario(
        "no headers: what the server says and takes",
        [
            greet(record=True),
            raw('CONNECT {"verbose":false,"headers":true,"protocol":0}\nSUB a 1\nPUB a 2\nhi\n'),
            drain(),
            raw(_hpub("a", "", "NATS/1.0\nA: b\n\n")),
            quiet(),
        ],
        settings=NO_HEADERS,
    ),
    Scenario(
        "no headers: nobody there",
        [
            greet(),
            raw('CONNECT {"verbose":false,"headers":true,"no_responders":true}\nPING\n'),
            quiet(),
        ],
        settings=NO_HEADERS,
    ),
    *[
        Scenario(
            f"bare users: {name} {said}",
            [greet(), raw('CONNECT {"verbose":false,' + said + "}\nPING\n"), quiet()],
            settings=NO_PASSWORD,
        )
        for name, said in [
            ("without", '"user":"bare"'),
            ("without", '"user":"bare","pass":""'),
            ("without", '"user":"bare","pass":"x"'),
            ("empty", '"user":"empty"'),
            ("empty", '"user":"empty","pass":"x"'),
            ("nobody", '"user":""'),
            ("nobody", '"user":"ann"'),
        ]
    ],
]
