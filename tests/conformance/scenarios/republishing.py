"""Republishing: what a stream has stored goes out again under another subject."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.steps import api, drain, publish, publish_all, quiet, raw, stream
from conformance.table import Scenario, Table

INFO = "STREAM.INFO.S"


def listening(pattern: str) -> list[Step]:
    return [raw(f"SUB {pattern} 1\n", on="b"), drain(on="b")]


def rule(**settings: Any) -> Step:
    return stream(subjects=["a.>", "b"], republish=settings)


def _create(name: str, **config: Any) -> Step:
    return api(f"STREAM.CREATE.{name}", {"name": name, **config})


TABLE: Table = [
    Scenario(
        "republish: everything, with the sequence before on the same subject",
        [
            rule(src=">", dest="out.>"),
            *listening("out.>"),
            publish_all("a.x", "b", "a.x", "a.y", "a.x"),
            publish("a.x", "hello", {"K": "v", "Nats-Msg-Id": "one"}),
            publish("a.x", "hello", {"Nats-Msg-Id": "one"}),
            publish("a.x", "hello", {"Nats-Expected-Last-Sequence": "99"}),
            quiet(on="b"),
            api(INFO),
        ],
    ),
    Scenario(
        "republish: one subject, by a function",
        [
            rule(src="a.*", dest="out.{{wildcard(1)}}.{{partition(3,1)}}"),
            *listening("out.>"),
            publish_all("a.x", "b", "a.x.y", "a.z"),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "republish: headers only",
        [
            rule(src=">", dest="out.>", headers_only=True),
            *listening("out.>"),
            publish("a.x", "12345"),
            publish("a.x", "", {"K": "v"}),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "republish: of the transformed subject",
        [
            stream(
                subjects=["a.*"],
                subject_transform={"src": "a.*", "dest": "t.{{wildcard(1)}}"},
                republish={"src": ">", "dest": ">"},
            ),
            *listening("t.>"),
            publish_all("a.x", "a.y"),
            quiet(on="b"),
            api(INFO),
        ],
    ),
    Scenario(
        "republish: into another stream",
        [
            rule(src="a.>", dest="c.>"),
            stream("T", subjects=["c.>"]),
            publish_all("a.x", "a.y"),
            quiet(),
            api("STREAM.MSG.GET.T", {"seq": 2, "no_hdr": True}),
        ],
    ),
    Scenario(
        "republish: nobody needs the message",
        [
            stream(subjects=["a"], retention="interest", republish={"dest": "out.>"}),
            *listening("out.>"),
            publish("a", "x"),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "republish: begins and ends with an update",
        [
            stream(subjects=["a"]),
            *listening("out.>"),
            publish("a", "x"),
            api(
                "STREAM.UPDATE.S", {"name": "S", "subjects": ["a"], "republish": {"dest": "out.>"}}
            ),
            publish("a", "y"),
            api("STREAM.UPDATE.S", {"name": "S", "subjects": ["a"]}),
            publish("a", "z"),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "republish: configurations",
        [
            _create("A", subjects=["a.>"], republish={"dest": "a.x"}),
            _create("B", subjects=["b.>"], republish={"src": "b.>", "dest": ">"}),
            _create("C", subjects=["c.*"], republish={"src": "c.*", "dest": "out.>"}),
            _create("D", subjects=["d.*"], republish={"src": "d.*", "dest": "out.{{wildcard(2)}}"}),
            _create("E", subjects=["e.*"], republish={"src": "e.*"}),
            _create("F", subjects=["f.*"], republish={}),
            _create("G", subjects=["g.*"], republish={"src": "x.>", "dest": "y.>"}),
            _create("H", subjects=["h.*"], republish={"dest": "out.>"}, pedantic=True),
            _create("I", subjects=["i.*"], republish={"src": "i..x", "dest": "out"}),
            _create("J", subjects=["j.*"], republish={"dest": "out.>", "nonsense": 1}),
        ],
    ),
]
