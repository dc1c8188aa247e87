"""Counters: messages that say by how much a number changes."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.steps import api, publish, publish_all, stream
from conformance.table import Scenario, Table

INFO = "STREAM.INFO.S"
GET = "STREAM.MSG.GET.S"
_SECOND = 1_000_000_000


def _count(by: str, subject: str = "c.a", payload: str = "", **more: str) -> Step:
    headers = {"Nats-Incr": by, **{key.replace("_", "-"): value for key, value in more.items()}}
    return publish(subject, payload, headers)


_NAMED: list[tuple[str, dict[str, Any]]] = [
    ("A", {"discard": "new"}),
    ("B", {"allow_msg_ttl": True}),
    ("C", {"allow_msg_schedules": True}),
    ("D", {"retention": "workqueue"}),
    ("E", {"retention": "interest"}),
    ("G", {"compression": "s2"}),
]

TABLE: Table = [
    Scenario(
        "counters: up, down, by nothing, and beyond any machine's numbers",
        [
            stream(subjects=["c.*"], allow_msg_counter=True),
            *[_count(by) for by in ("1", "+5", "-10", "0", "-0", "99999999999999999999999")],
            _count("7", "c.b"),
            api(GET, {"last_by_subj": "c.a"}),
            api(INFO),
        ],
    ),
    Scenario(
        "counters: what is no increment",
        [
            stream(subjects=["c.*"], allow_msg_counter=True),
            *[_count(by) for by in ("x", "1.5", "+", "1 2", "0x10", "1_000", "--1")],
            _count("1", payload="x"),
            publish("c.a", "x"),
            publish("c.a", ""),
            publish("c.a", "", {"K": "v"}),
            publish("c.a", "", {"Nats-Msg-Id": "one"}),
        ],
    ),
    Scenario(
        "counters: headers that do not go with them",
        [
            stream(subjects=["c.*"], allow_msg_counter=True, allow_rollup_hdrs=True),
            _count("1", Nats_Rollup="sub"),
            _count("1", Nats_Expected_Stream="S"),
            _count("1", Nats_Expected_Last_Sequence="0"),
            _count("1", Nats_Expected_Last_Subject_Sequence="0"),
            _count("1", Nats_Expected_Last_Subject_Sequence_Subject="c.b"),
            _count("1", Nats_Expected_Last_Msg_Id="x"),
            _count("1", Nats_Msg_Id="one", K="v"),
            _count("1", Nats_Msg_Id="one"),
            _count("1", Nats_TTL="5"),
            api(GET, {"seq": 1}),
        ],
    ),
    Scenario(
        "counters: on a stream that does not count",
        [
            stream(subjects=["c.*"]),
            _count("1"),
            _count("x"),
            _count("1", payload="x"),
        ],
    ),
    Scenario(
        "counters: what is there is none",
        [
            stream("T", subjects=["t"], republish={"src": "t", "dest": "c.a"}),
            stream(subjects=["c.*"], allow_msg_counter=True, max_msgs_per_subject=1),
            _count("1"),
            _count("1"),
            publish_all("t"),
            api("STREAM.PURGE.S"),
            _count("5"),
        ],
    ),
    Scenario(
        "counters: configurations",
        [
            *[
                api(f"STREAM.CREATE.{name}", {"name": name, "allow_msg_counter": True, **config})
                for name, config in _NAMED
            ],
            api("STREAM.UPDATE.G", {"name": "G"}),
        ],
    ),
    Scenario(
        "counters: with delete markers",
        [
            api(
                "STREAM.CREATE.S",
                {
                    "name": "S",
                    "allow_msg_counter": True,
                    "subject_delete_marker_ttl": _SECOND,
                },
            ),
        ],
    ),
]
