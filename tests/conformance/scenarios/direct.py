"""Direct get: single messages, batches, the last of many subjects, and what is refused."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.steps import api, publish, publish_all, stream
from conformance.table import Scenario, Table

GET = "DIRECT.GET.S"


def filled(**config: Any) -> list[Step]:
    """A stream of six messages on three subjects, the third of them deleted."""
    return [
        stream(subjects=["a.>"], allow_direct=True, **config),
        publish_all("a.x", "a.y", "a.x", "a.z", "a.x"),
        publish("a.y", "hello", {"K": "v"}),
        api("STREAM.MSG.DELETE.S", {"seq": 3}),
    ]


def get(body: object, replies: int = 1, subject: str = "") -> Step:
    return api(GET + subject, body, replies=replies)


def case(name: str, *steps: Step) -> Scenario:
    return Scenario("direct get: " + name, [*filled(), *steps])


TABLE: Table = [
    case("by sequence", get({"seq": 1}), get({"seq": 6}), get({"seq": 3}), get({"seq": 99})),
    case("the last of a subject", get({"last_by_subj": "a.y"}), get({"last_by_subj": "a.q"})),
    case("the last of a pattern", get({"last_by_subj": "a.*"}), get({"last_by_subj": "a..b"})),
    case("the next of a subject", get({"seq": 2, "next_by_subj": "a.x"})),
    case("the next of a subject from the start", get({"next_by_subj": "a.y"})),
    case("the next beyond the end", get({"seq": 6, "next_by_subj": "a.x"})),
    case("by the subject of the request", get(None, subject=".a.y"), get(None, subject=".a.q")),
    case("by the subject and a body", get({"seq": 1}, subject=".a.y")),
    case("without headers", get({"seq": 6, "no_hdr": True})),
    case("by the subject without headers", get({"no_hdr": True}, subject=".a.y")),
    case("nothing asked", get(None), get({}), get({"batch": 2}), get({"no_hdr": True})),
    case("nonsense", get("nonsense"), get("{"), get({"seq": "one"}), get({"nonsense": 1})),
    case(
        "contradictions",
        get({"seq": 1, "last_by_subj": "a.x"}),
        get({"seq": 1, "start_time": "2024-01-01T00:00:00Z"}),
        get({"last_by_subj": "a.x", "next_by_subj": "a.x"}),
        get({"last_by_subj": "a.x", "batch": 2}),
        get({"last_by_subj": "a.x", "multi_last": ["a.x"]}),
        get({"next_by_subj": "a.x", "multi_last": ["a.x"]}),
        get({"multi_last": ["a.x"], "up_to_seq": 1, "up_to_time": "2024-01-01T00:00:00Z"}),
    ),
    case("a batch", get({"seq": 1, "batch": 3}, 4)),
    case("a batch beyond the end", get({"seq": 4, "batch": 10}, 4)),
    case("a batch of one", get({"seq": 2, "batch": 1}, 2)),
    case("a batch of a subject", get({"seq": 1, "batch": 5, "next_by_subj": "a.x"}, 3)),
    case("a batch of a subject without a sequence", get({"batch": 5, "next_by_subj": "a.y"}, 3)),
    case("a batch by time", get({"start_time": "2024-01-01T00:00:00Z", "batch": 2}, 3)),
    case("a batch of nothing", get({"seq": 99, "batch": 5}), get({"batch": 1, "seq": 0})),
    case("a batch limited in bytes", get({"seq": 1, "batch": 5, "max_bytes": 5}, 3)),
    case("a batch without headers", get({"seq": 1, "batch": 2, "no_hdr": True}, 3)),
    case("the last of several", get({"multi_last": ["a.x", "a.y"]}, 3)),
    case("the last of all", get({"multi_last": ["a.>"]}, 4)),
    case("the last of several from a sequence", get({"multi_last": ["a.>"], "seq": 5}, 3)),
    case("the last of several up to a sequence", get({"multi_last": ["a.>"], "up_to_seq": 4}, 4)),
    case("the last of several in a batch", get({"multi_last": ["a.>"], "batch": 2}, 3)),
    case("the last of nothing", get({"multi_last": ["b.>"]})),
    case(
        "the last before all",
        get({"multi_last": ["a.>"], "up_to_time": "2020-01-01T00:00:00Z"}),
    ),
    case("the last of several without headers", get({"multi_last": ["a.y"], "no_hdr": True}, 2)),
    Scenario(
        "direct get: a stream that does not allow it",
        [stream(subjects=["a.>"]), publish("a.x"), get({"seq": 1})],
    ),
    Scenario("direct get: a stream that is not there", [get({"seq": 1})]),
]
