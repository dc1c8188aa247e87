"""Sources and mirrors: configurations, what is copied, and what becomes of it."""

from __future__ import annotations

import json
import time
from typing import Any

from conformance.driver import Session, Step
from conformance.steps import (
    ack,
    api,
    consumer,
    publish,
    publish_all,
    pull,
    request,
    stream,
    update_stream,
)
from conformance.table import Scenario, Table
from waiting import elapse_here

CREATE = "STREAM.CREATE.T"
UPDATE = "STREAM.UPDATE.T"
INFO = "STREAM.INFO.T"


def caught_up(messages: int, name: str = "T", field: str = "messages", seconds: float = 6) -> Step:
    """Wait, unrecorded, until a stream has so many messages."""

    def step(session: Session) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            call = b"PUB $JS.API.STREAM.INFO.%b watch.it 0\r\n\r\n" % name.encode()
            session.wire("watcher").send(b"SUB watch.it 1\r\n" + call)
            frame = session.wire("watcher").frame()
            state = json.loads(frame[5])["state"] if frame is not None else {}
            session.wire("watcher").send(b"UNSUB 1\r\n")
            if state.get(field) == messages:
                return
            elapse_here(0.02, "either server is asked again")
        session.note(f"{name} never had {messages} messages")

    return step


def sourced(*sources: object, **config: Any) -> Step:
    """A stream T of these sources."""
    return stream("T", subjects=[], sources=list(sources), allow_direct=True, **config)


def mirrored(name: str = "S", **config: Any) -> Step:
    """A stream T that mirrors."""
    mirror = {"name": name, **config.pop("mirror", {})}
    return stream("T", subjects=[], mirror=mirror, allow_direct=True, **config)


def look(sequence: int) -> Step:
    """Read one message of T as it is stored."""
    return request("$JS.API.DIRECT.GET.T", {"seq": sequence})


def look_all(count: int) -> Step:
    return request("$JS.API.DIRECT.GET.T", {"batch": count, "seq": 1}, replies=count + 1)


ORIGIN = [stream(subjects=["s.>"]), publish_all("s.a", "s.b", "s.a", "s.c")]


def made(title: str, *, before: list[Step] | None = None, **config: Any) -> Scenario:
    """What creating T with this says."""
    return Scenario(title, [*(before or []), api(CREATE, {"name": "T", **config}), api(INFO)])


X = {"name": "X"}

CHECKS: Table = [
    made("a mirror with subjects", mirror=X, subjects=["t"]),
    made("a mirror with sources", mirror=X, sources=[X]),
    made("a mirror with a first sequence", mirror=X, first_seq=7),
    made(
        "a mirror with filter and transforms",
        mirror={**X, "filter_subject": "a", "subject_transforms": [{"src": "b", "dest": "c"}]},
    ),
    made("a mirror of a name that can not be", mirror={"name": "X.Y"}),
    made("a mirror of nothing", mirror={}),
    made(
        "a mirror with a bad transform source",
        mirror={**X, "subject_transforms": [{"src": "b..", "dest": "c"}]},
    ),
    made(
        "a mirror with a bad transform",
        mirror={**X, "subject_transforms": [{"src": "b.*", "dest": "c.$2"}]},
    ),
    made(
        "a mirror with overlapping transforms",
        mirror={
            **X,
            "subject_transforms": [{"src": "b.*", "dest": "c"}, {"src": "b.x", "dest": "d"}],
        },
    ),
    made("a mirror of itself", mirror={"name": "T"}),
    made(
        "a mirror with delete markers",
        mirror=X,
        allow_msg_ttl=True,
        subject_delete_marker_ttl=1_000_000_000,
    ),
    made("a source of a name that can not be", sources=[{"name": "X Y"}]),
    made("a source without a name", sources=[{}]),
    made("the same source twice", sources=[X, X]),
    made(
        "the same stream with two filters",
        before=ORIGIN,
        sources=[{"name": "S", "filter_subject": "q"}, {"name": "S", "filter_subject": "r"}],
    ),
    made(
        "a source with filter and transforms",
        sources=[{**X, "filter_subject": "a", "subject_transforms": [{"src": "b", "dest": "c"}]}],
    ),
    made(
        "a source with a bad transform source",
        sources=[{**X, "subject_transforms": [{"src": "b..", "dest": "c"}]}],
    ),
    made(
        "a source with a bad transform",
        sources=[{**X, "subject_transforms": [{"src": "b.*", "dest": "c.$2"}]}],
    ),
    made(
        "a source with overlapping transforms",
        sources=[
            {**X, "subject_transforms": [{"src": "b.*", "dest": "c"}, {"src": "b.x", "dest": "d"}]}
        ],
    ),
    made(
        "a source with transforms that only touch",
        before=ORIGIN,
        sources=[
            {
                "name": "S",
                "subject_transforms": [{"src": "b.*.y", "dest": ""}, {"src": "b.x.*", "dest": "d"}],
            }
        ],
    ),
    made("a source of itself", sources=[{"name": "T"}]),
    made(
        "a source of itself with subjects apart",
        subjects=["t"],
        sources=[{"name": "T", "filter_subject": "u"}],
    ),
    Scenario(
        "a cycle of two",
        [
            stream(subjects=["s"], sources=[{"name": "T"}]),
            api(CREATE, {"name": "T", "sources": [{"name": "S"}]}),
        ],
    ),
    Scenario(
        "a cycle behind a mirror",
        [
            stream("M", subjects=[], mirror={"name": "T"}),
            api(CREATE, {"name": "T", "sources": [{"name": "M"}]}),
        ],
    ),
    Scenario(
        "a source with room for smaller messages",
        [
            stream(subjects=["s"], max_msg_size=100),
            api(CREATE, {"name": "T", "sources": [{"name": "S"}], "max_msg_size": 50}),
        ],
    ),
    Scenario(
        "a mirror with room for smaller messages",
        [
            stream(subjects=["s"], max_msg_size=100),
            api(CREATE, {"name": "T", "mirror": {"name": "S"}, "max_msg_size": 50}),
        ],
    ),
    made("a source with a start time that is none", sources=[{**X, "opt_start_time": "yesterday"}]),
    made(
        "a source with an api prefix of our own",
        sources=[{**X, "external": {"api": "$JS.API", "deliver": "d"}}],
    ),
    Scenario(
        "a mirror becomes another",
        [*ORIGIN, mirrored(), api(UPDATE, {"name": "T", "mirror": {"name": "Y"}})],
    ),
    Scenario(
        "a mirror inherits direct access",
        [
            stream(subjects=["s"], allow_direct=True),
            api(CREATE, {"name": "T", "mirror": {"name": "S"}}),
        ],
    ),
    made("a mirror with direct access of its own", mirror=X, mirror_direct=True),
]

COUNTER = {"allow_msg_counter": True, "allow_direct": True}
ONE, TWO = {"Nats-Incr": "1"}, {"Nats-Incr": "2"}

WITH_OTHER_FEATURES: Table = [
    made("a mirror that counts", mirror=X, allow_msg_counter=True),
    made("a mirror of atomic batches", mirror=X, allow_atomic=True),
    made("a mirror of schedules", mirror=X, allow_msg_schedules=True),
    made("a source with schedules", sources=[X], allow_msg_schedules=True),
    Scenario(
        "source: counters add up",
        [
            stream("A", subjects=["a.>"], **COUNTER),
            stream("B", subjects=["b.>"], **COUNTER),
            publish("a.x", headers=ONE),
            publish("a.x", headers=TWO),
            stream(
                "T",
                subjects=[],
                sources=[{"name": "A", "subject_transforms": [{"src": "a.>", "dest": "t.>"}]}],
                **COUNTER,
            ),
            caught_up(2),
            look(1),
            look(2),
            update_stream(
                "T",
                sources=[
                    {"name": "A", "subject_transforms": [{"src": "a.>", "dest": "t.>"}]},
                    {"name": "B", "subject_transforms": [{"src": "b.>", "dest": "t.>"}]},
                ],
                **COUNTER,
            ),
            publish("b.x", headers=TWO),
            caught_up(3),
            look(3),
            publish("a.x", headers=ONE),
            caught_up(4),
            look(4),
        ],
    ),
    Scenario(
        "mirror: messages that expire by themselves",
        [
            stream(subjects=["s.>"], allow_msg_ttl=True),
            publish("s.a", "x", {"Nats-TTL": "1"}),
            publish("s.a", "x", {"Nats-TTL": "100"}),
            mirrored(allow_msg_ttl=True),
            caught_up(2),
            look(1),
            caught_up(1),
            look(2),
        ],
    ),
]

COPIES: Table = [
    Scenario(
        "source: everything",
        [*ORIGIN, sourced({"name": "S"}), caught_up(4), api(INFO), look(1), look(4)],
    ),
    Scenario(
        "source: what comes later",
        [
            *ORIGIN,
            sourced({"name": "S"}),
            caught_up(4),
            publish("s.z", "new"),
            caught_up(5),
            look(5),
        ],
    ),
    Scenario(
        "source: one filter",
        [
            *ORIGIN,
            sourced({"name": "S", "filter_subject": "s.a"}),
            caught_up(2),
            api(INFO),
            look_all(2),
        ],
    ),
    Scenario(
        "source: from a sequence",
        [*ORIGIN, sourced({"name": "S", "opt_start_seq": 3}), caught_up(2), look_all(2)],
    ),
    Scenario(
        "source: a transform",
        [
            *ORIGIN,
            sourced(
                {"name": "S", "subject_transforms": [{"src": "s.*", "dest": "t.{{wildcard(1)}}.x"}]}
            ),
            caught_up(4),
            api(INFO),
            look_all(4),
        ],
    ),
    Scenario(
        "source: several transforms",
        [
            *ORIGIN,
            sourced(
                {
                    "name": "S",
                    "subject_transforms": [
                        {"src": "s.a", "dest": "t.a"},
                        {"src": "s.b", "dest": ""},
                    ],
                }
            ),
            caught_up(3),
            api(INFO),
            look_all(3),
        ],
    ),
    Scenario(
        "source: partitions",
        [
            *ORIGIN,
            sourced(
                {"name": "S", "subject_transforms": [{"src": ">", "dest": "{{Partition(4)}}.>"}]}
            ),
            caught_up(4),
            look_all(4),
        ],
    ),
    Scenario(
        "source: the same origin twice",
        [
            *ORIGIN,
            sourced({"name": "S", "filter_subject": "s.a"}, {"name": "S", "filter_subject": "s.b"}),
            caught_up(3),
        ],
    ),
    Scenario(
        "source: headers of its own",
        [
            *ORIGIN[:1],
            publish(
                "s.a",
                "x",
                {
                    "Own": "1",
                    "Nats-Expected-Stream": "S",
                    "Nats-Msg-Id": "one",
                    "Nats-Expected-Last-Sequence": "0",
                },
            ),
            publish("s.a", "x", {"Nats-Expected-Stream": "S"}),
            sourced({"name": "S"}),
            caught_up(2),
            look(1),
            look(2),
        ],
    ),
    Scenario(
        "source: duplicates of what is there",
        [
            *ORIGIN[:1],
            publish("s.a", "x", {"Nats-Msg-Id": "one"}),
            publish("s.a", "y"),
            stream("T", subjects=["t"], duplicate_window=60_000_000_000, allow_direct=True),
            publish("t", "mine", {"Nats-Msg-Id": "one"}),
            update_stream(
                "T",
                subjects=["t"],
                duplicate_window=60_000_000_000,
                allow_direct=True,
                sources=[{"name": "S"}],
            ),
            caught_up(2),
            look(1),
            look(2),
        ],
    ),
    Scenario(
        "source: chained",
        [
            *ORIGIN,
            stream("M", subjects=[], sources=[{"name": "S"}]),
            caught_up(4, "M"),
            sourced({"name": "M"}),
            caught_up(4),
            look(4),
        ],
    ),
    Scenario(
        "source: the stream's own transform comes after",
        [
            *ORIGIN,
            sourced({"name": "S"}, subject_transform={"src": "s.*", "dest": "own.$1"}),
            caught_up(4),
            look(1),
        ],
    ),
    Scenario(
        "source: beside subjects of its own",
        [
            *ORIGIN,
            stream("T", subjects=["t"], sources=[{"name": "S"}], allow_direct=True),
            caught_up(4),
            publish("t", "x"),
            caught_up(5),
            look(5),
        ],
    ),
    Scenario(
        "source: rollups apply where allowed",
        [
            stream(subjects=["s.>"], allow_rollup_hdrs=True),
            publish_all("s.a", "s.a"),
            sourced({"name": "S"}, allow_rollup_hdrs=True),
            caught_up(2),
            publish("s.a", "all", {"Nats-Rollup": "sub"}),
            caught_up(3, field="last_seq"),
            caught_up(1),
            look(3),
        ],
    ),
    Scenario(
        "source: a full work queue goes on when there is room",
        [
            *ORIGIN,
            sourced({"name": "S"}, retention="workqueue", discard="new", max_msgs=3),
            caught_up(3),
            consumer(stream="T"),
            pull({"batch": 3}, frames=3, stream="T"),
            ack(0),
            ack(1),
            ack(2),
            caught_up(4, field="last_seq"),
            look(4),
        ],
    ),
    Scenario(
        "source: added by an update",
        [
            *ORIGIN,
            stream("T", subjects=["t"], allow_direct=True),
            publish("t", "x"),
            update_stream(
                "T",
                subjects=["t"],
                allow_direct=True,
                sources=[{"name": "S"}],
            ),
            caught_up(5),
            look(5),
        ],
    ),
    Scenario(
        "source: taken out by an update",
        [
            *ORIGIN,
            sourced(
                {"name": "S"},
            ),
            caught_up(4),
            api(UPDATE, {"name": "T", "subjects": ["t"]}),
            publish("s.a", "x"),
            api(INFO),
        ],
    ),
    Scenario(
        "source: of an origin that is missing",
        [sourced({"name": "S"}), caught_up(0), api("STREAM.LIST")],
    ),
    Scenario(
        "mirror: everything", [*ORIGIN, mirrored(), caught_up(4), api(INFO), look(1), look(4)]
    ),
    Scenario(
        "mirror: gaps stay",
        [
            *ORIGIN,
            api("STREAM.MSG.DELETE.S", {"seq": 2}),
            mirrored(),
            caught_up(3),
            api(INFO, {"deleted_details": True}),
            look(3),
            look(2),
        ],
    ),
    Scenario(
        "mirror: of the end of a stream",
        [*ORIGIN, api("STREAM.PURGE.S", {"seq": 3}), mirrored(), caught_up(2), api(INFO)],
    ),
    Scenario(
        "mirror: from a sequence",
        [*ORIGIN, mirrored(mirror={"opt_start_seq": 3}), caught_up(2), api(INFO)],
    ),
    Scenario(
        "mirror: one filter",
        [
            *ORIGIN,
            mirrored(mirror={"filter_subject": "s.a"}),
            caught_up(2),
            api(INFO, {"deleted_details": True}),
        ],
    ),
    Scenario(
        "mirror: a transform",
        [
            *ORIGIN,
            mirrored(mirror={"subject_transforms": [{"src": "s.*", "dest": "t.$1"}]}),
            caught_up(4),
            api(INFO),
            look(2),
        ],
    ),
    Scenario(
        "mirror: headers of its own",
        [
            *ORIGIN[:1],
            publish("s.a", "x", {"Own": "1", "Nats-Expected-Stream": "S", "Nats-Msg-Id": "one"}),
            publish("s.a", "x", {"Nats-Expected-Stream": "S"}),
            mirrored(),
            caught_up(2),
            look(1),
            look(2),
        ],
    ),
    Scenario(
        "mirror: nobody publishes to it",
        [*ORIGIN, mirrored(), caught_up(4), publish("T", "x"), publish("s.z", "x"), caught_up(5)],
    ),
    Scenario(
        "mirror: promoted",
        [
            *ORIGIN,
            mirrored(),
            caught_up(4),
            api(UPDATE, {"name": "T", "subjects": ["t"], "allow_direct": True}),
            publish("t", "x"),
            publish("s.a", "x"),
            api(INFO),
        ],
    ),
    Scenario(
        "mirror: promoted without subjects",
        [
            *ORIGIN,
            mirrored(),
            caught_up(4),
            api(UPDATE, {"name": "T", "allow_direct": True}),
            publish("T", "x"),
            api(INFO),
        ],
    ),
    Scenario(
        "mirror: of a mirror",
        [
            *ORIGIN,
            stream("M", subjects=[], mirror={"name": "S"}),
            caught_up(4, "M"),
            mirrored("M"),
            caught_up(4),
            api(INFO),
        ],
    ),
    Scenario(
        "mirror: keeps what the origin purged",
        [
            *ORIGIN,
            mirrored(),
            caught_up(4),
            api("STREAM.PURGE.S"),
            publish("s.a", "x"),
            caught_up(5),
            api(INFO),
        ],
    ),
    Scenario(
        "mirror: has limits of its own",
        [*ORIGIN, mirrored(max_msgs=2), caught_up(2), caught_up(4, field="last_seq"), api(INFO)],
    ),
]

TABLE: Table = [*CHECKS, *WITH_OTHER_FEATURES, *COPIES]
