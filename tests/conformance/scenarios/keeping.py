"""What streams keep, what they let go, and under which subject: limits, roll-ups, transforms, purges."""

from __future__ import annotations

from typing import Any

from conformance.driver import Session, Step
from conformance.steps import api, publish, publish_all, request, stream, update_stream
from conformance.table import Scenario, Table

INFO = "STREAM.INFO.S"
PURGE = "STREAM.PURGE.S"
ALL: dict[str, Any] = {"subjects_filter": ">"}
_TOKEN = "sub-ject-of-16-bytes"


def transformed(dest: str, src: str = "a.*.*") -> list[Step]:
    """Publish under a transform and see the subject."""
    return [
        stream(subjects=["a.>"], subject_transform={"src": src, "dest": dest}),
        publish_all(f"a.one.{_TOKEN}", "a.x.y", "a.other"),
        api(INFO, ALL),
    ]


def between(first: str, second: str, request_of: Any) -> Step:
    """Publish, remember the time, publish again, and ask with that time."""

    def step(session: Session) -> None:
        from datetime import UTC, datetime

        publish_all(first)(session)
        session.read_until_quiet("a", 0.06)
        moment = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        session.read_until_quiet("a", 0.06)
        publish_all(second)(session)
        request_of(moment)(session)

    return step


def direct(body: Any, replies: int) -> Step:
    return request("$JS.API.DIRECT.GET.S", body, replies=replies)


TRANSFORMS: Table = [
    Scenario(f"a transform with {dest}", transformed(dest))
    for dest in (
        "t.{{wildcard(2)}}.{{Wildcard( 1 )}}",
        "t.$2.$1",
        "t.{{split(2,-)}}",
        "t.{{splitFromLeft(2,4)}}",
        "t.{{SplitFromRight(2,4)}}",
        "t.{{sliceFromLeft(2,5)}}",
        "t.{{SliceFromRight(2,5)}}",
        "t.{{left(2,3)}}.{{right(2,3)}}",
        "t.{{left(2,99)}}",
        "t.{{partition(10,1,2)}}",
        "t.{{partition(10,2,1)}}",
        "t.{{partition(0,1)}}",
    )
] + [
    Scenario("a transform of everything behind a token", transformed("t.>", "a.>")),
    Scenario(
        "transforms that are none",
        [
            *[
                api(
                    "STREAM.CREATE.S",
                    {
                        "name": "S",
                        "subjects": ["a.>"],
                        "subject_transform": {"src": src, "dest": dest},
                    },
                )
                for src, dest in [
                    ("a.*", "t.{{left(1)}}"),
                    ("a.*", "t.{{left(1,x)}}"),
                    ("a.*", "t.{{split(1,.)}}"),
                    ("a.*", "t.{{partition()}}"),
                    ("a..*", "t.$1"),
                    ("b.*", "t.$1"),
                    ("c.>", "t"),
                ]
            ],
        ],
    ),
]

_LIMITS: Table = [
    Scenario(
        "discard new by subject: roll-ups and room elsewhere",
        [
            stream(
                subjects=["a.*"],
                discard="new",
                discard_new_per_subject=True,
                max_msgs_per_subject=1,
                max_msgs=3,
                allow_rollup_hdrs=True,
            ),
            publish("a.x"),
            publish("a.x"),
            publish("a.x", "", {"Nats-Rollup": "sub"}),
            publish("a.y"),
            publish("a.z"),
            publish("a.w"),
            publish("a.x", "", {"Nats-Rollup": "all"}),
            publish("a.w"),
            api(INFO, ALL),
        ],
    ),
    Scenario(
        "a larger value in the place of another",
        [
            stream(subjects=["a.*"], discard="new", max_msgs_per_subject=1, max_bytes=200),
            publish("a.x", "x" * 90),
            publish("a.y", "y" * 9),
            publish("a.x", "x" * 100),
            api(INFO, ALL),
        ],
    ),
    Scenario(
        "values in the places of others, in a stream that is too full",
        [
            stream(subjects=["a.*"], discard="new", max_msgs_per_subject=1),
            *[publish(f"a.{name}", "x" * 90) for name in "wxyz"],
            update_stream(
                subjects=["a.*"], discard="new", max_msgs_per_subject=1, max_bytes=200, max_msgs=2
            ),
            publish("a.x", "x" * 91),
            publish("a.x", "x" * 90),
            publish("a.x", "x" * 89),
            publish("a.n", "x"),
            api(INFO, ALL),
        ],
    ),
    Scenario(
        "roll-ups: of a subject, of all, and what is none",
        [
            stream(subjects=["a.*"], allow_rollup_hdrs=True),
            publish_all("a.x", "a.y", "a.x", "a.y"),
            publish("a.x", "", {"Nats-Rollup": "sub"}),
            api(INFO, ALL),
            publish("a.z", "", {"Nats-Rollup": "ALL"}),
            publish("a.z", "", {"Nats-Rollup": "nonsense"}),
            publish("a.z", "", {"Nats-Rollup": ""}),
            api(INFO, ALL),
        ],
    ),
    Scenario(
        "limits that change under a full stream",
        [
            stream(subjects=["a.*"], max_msgs_per_subject=3),
            publish_all("a.x", "a.y", "a.x", "a.y", "a.x", "a.x"),
            api("STREAM.UPDATE.S", {"name": "S", "subjects": ["a.*"], "max_msgs_per_subject": 1}),
            api(INFO, ALL),
            api("STREAM.UPDATE.S", {"name": "S", "subjects": ["a.*"], "max_bytes": 40}),
            api(INFO, ALL),
            api("STREAM.UPDATE.S", {"name": "S", "subjects": ["b"]}),
            publish("a.x"),
            publish("b"),
        ],
    ),
    Scenario(
        "interest: a message nobody wants has a sequence and is gone",
        [
            stream(subjects=["a.*"], retention="interest"),
            publish("a.x"),
            publish("a.x"),
            api(INFO),
            publish("a.x", "", {"Nats-Expected-Last-Sequence": "2"}),
        ],
    ),
    Scenario(
        "a first sequence and what comes before it",
        [
            stream(subjects=["a"], first_seq=100),
            api(INFO),
            publish("a", "", {"Nats-Expected-Last-Sequence": "99"}),
            api(PURGE, {"seq": 50}),
            api(PURGE, {"seq": 500}),
            publish("a"),
            api(INFO),
        ],
    ),
]

_PURGES: Table = [
    Scenario(
        "purges: every way to say how much",
        [
            stream(subjects=["a.*"]),
            *[
                step
                for body in (
                    {"keep": 1},
                    {"keep": 99},
                    {"filter": "a.x", "keep": 1},
                    {"filter": "a.x", "seq": 3},
                    {"filter": "a.none"},
                    {"filter": "b"},
                    {"filter": "a..x"},
                    {"filter": ">", "keep": 2},
                    {"seq": 1},
                    {"seq": -1},
                    {"nonsense": 1},
                )
                for step in (publish_all("a.x", "a.y", "a.x"), api(PURGE, body))
            ],
            api(INFO, ALL),
        ],
    ),
]

_DIRECT: Table = [
    Scenario(
        "direct get: the last of each until a time",
        [
            stream(subjects=["a.*"], allow_direct=True),
            between("a.x", "a.x", lambda at: direct({"multi_last": ["a.*"], "up_to_time": at}, 2)),
            between("a.y", "a.x", lambda at: direct({"multi_last": ["a.*"], "up_to_time": at}, 3)),
            direct({"multi_last": ["a.*"], "up_to_time": "2020-01-01T00:00:00Z"}, 1),
            direct({"multi_last": ["a.*"], "up_to_time": "2100-01-01T00:00:00Z"}, 3),
            direct({"multi_last": ["a.*"], "up_to_time": "nonsense"}, 1),
            direct({"multi_last": ["a.*"], "up_to_seq": 2}, 2),
            direct({"multi_last": ["a.*"], "up_to_seq": 99}, 3),
            direct(
                {"multi_last": ["a.*"], "up_to_seq": 2, "up_to_time": "2100-01-01T00:00:00Z"}, 1
            ),
        ],
    ),
    Scenario(
        "direct get: the last of each, page by page",
        [
            stream(subjects=["a.*"], allow_direct=True),
            publish_all(*[f"a.{number}" for number in range(5)]),
            direct({"multi_last": ["a.*"], "batch": 2}, 3),
            direct({"multi_last": ["a.*"], "batch": 2, "seq": 3, "up_to_seq": 5}, 3),
            direct({"multi_last": ["a.*"], "batch": 2, "seq": 5, "up_to_seq": 5}, 2),
            direct({"multi_last": ["a.0", "a.0", "a.3"]}, 3),
            direct({"multi_last": ["a.9"]}, 1),
            direct({"multi_last": []}, 1),
            direct({"multi_last": ["a.*"], "max_bytes": 1}, 2),
        ],
    ),
    Scenario(
        "direct get: batches from a time, by subject, in bytes",
        [
            stream(subjects=["a.*"], allow_direct=True),
            between("a.x", "a.y", lambda at: direct({"start_time": at, "batch": 5}, 2)),
            publish_all("a.x", "a.y"),
            direct({"start_time": "2020-01-01T00:00:00Z", "next_by_subj": "a.y", "batch": 5}, 3),
            direct({"start_time": "2100-01-01T00:00:00Z", "batch": 5}, 1),
            direct({"seq": 1, "batch": 5, "max_bytes": 10}, 4),
            direct({"seq": 1, "batch": 2, "up_to_seq": 1}, 3),
            direct({"start_time": "2020-01-01T00:00:00Z"}, 1),
        ],
    ),
]

TABLE: Table = [*TRANSFORMS, *_LIMITS, *_PURGES, *_DIRECT]
