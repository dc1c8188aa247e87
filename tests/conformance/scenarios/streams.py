"""Streams: their calls, configurations and errors."""

from __future__ import annotations

from typing import Any

from conformance.steps import (
    api,
    consumer,
    publish,
    publish_all,
    stream,
    unanswered,
)
from conformance.table import Scenario, Table

CREATE = "STREAM.CREATE.S"
UPDATE = "STREAM.UPDATE.S"
INFO = "STREAM.INFO.S"


def refused(title: str, **config: Any) -> Scenario:
    """A configuration that must not become a stream."""
    return Scenario(title, [api(CREATE, {"name": "S", **config}), api(INFO)])


def update(title: str, before: dict[str, Any], after: dict[str, Any]) -> Scenario:
    steps = [stream(**before), api(UPDATE, {"name": "S", **after}), api(INFO)]
    return Scenario(title, steps)


LIFE: Table = [
    Scenario("account info", [api("INFO")]),
    Scenario("account info counts", [stream(subjects=["a"]), consumer(), api("INFO")]),
    Scenario("an unknown call stays unanswered", [unanswered("$JS.API.NOTHING.HERE")]),
    Scenario(
        "calls for clusters",
        [
            stream(subjects=["a"]),
            api("STREAM.LEADER.STEPDOWN.S"),
            api("STREAM.LEADER.STEPDOWN.NOPE", {"x": 1}),
            api("STREAM.PEER.REMOVE.S", {"peer": "x"}),
            api("CONSUMER.LEADER.STEPDOWN.S.C"),
        ],
    ),
    Scenario(
        "backups that cannot be",
        [
            stream(subjects=["a"]),
            api("STREAM.SNAPSHOT.S"),
            api("STREAM.SNAPSHOT.S", "{}"),
            api("STREAM.SNAPSHOT.S", '{"deliver'),
            api("STREAM.SNAPSHOT.NOPE", {"deliver_subject": "d"}),
            api("STREAM.RESTORE.T"),
            api("STREAM.RESTORE.T", {"config": {"name": "U"}}),
            api("STREAM.RESTORE.S", {"config": {"name": "S", "subjects": ["a"]}}),
        ],
    ),
    Scenario(
        "a backup of a stream",
        [stream(subjects=["a"]), api("STREAM.SNAPSHOT.S", {"deliver_subject": "d"})],
    ),
    Scenario("create a stream from its name alone", [api(CREATE, {"name": "S"})]),
    Scenario(
        "create a stream with everything",
        [
            api(
                CREATE,
                {
                    "name": "S",
                    "description": "all of it",
                    "subjects": ["a.>", "b.*"],
                    "retention": "limits",
                    "max_consumers": 7,
                    "max_msgs": 100,
                    "max_bytes": 100_000,
                    "max_age": 3_600_000_000_000,
                    "max_msgs_per_subject": 10,
                    "max_msg_size": 1000,
                    "discard": "new",
                    "storage": "memory",
                    "num_replicas": 1,
                    "duplicate_window": 60_000_000_000,
                    "allow_direct": True,
                    "deny_delete": True,
                    "deny_purge": True,
                    "metadata": {"owner": "me"},
                    "subject_transform": {"src": "a.>", "dest": "t.>"},
                },
            )
        ],
    ),
    Scenario("create a work queue", [api(CREATE, {"name": "S", "retention": "workqueue"})]),
    Scenario(
        "create a stream in pedantic mode",
        [api(CREATE, {"name": "S", "subjects": ["a"], "pedantic": True})],
    ),
    Scenario(
        "create the same stream twice",
        [stream(subjects=["a"]), api(CREATE, {"name": "S", "subjects": ["a"]})],
    ),
    Scenario(
        "create a different stream of the same name",
        [stream(subjects=["a"]), api(CREATE, {"name": "S", "subjects": ["b"]})],
    ),
    Scenario(
        "a first sequence of one's own",
        [
            stream(subjects=["a"], first_seq=100),
            publish("a"),
            api(INFO),
        ],
    ),
    Scenario("info of a stream that is not there", [api("STREAM.INFO.NOPE")]),
    Scenario(
        "info with subjects",
        [
            stream(subjects=["a.>"]),
            publish_all("a.x", "a.y", "a.x"),
            api(INFO, {"subjects_filter": ">"}),
            api(INFO, {"subjects_filter": "a.x"}),
            api(INFO, {"subjects_filter": "none"}),
        ],
    ),
    Scenario(
        "info with deleted messages",
        [
            stream(subjects=["a"]),
            publish_all(*["a"] * 5),
            api("STREAM.MSG.DELETE.S", {"seq": 2}),
            api("STREAM.MSG.DELETE.S", {"seq": 4}),
            api(INFO),
            api(INFO, {"deleted_details": True}),
        ],
    ),
    Scenario("info with an unknown field", [stream(), api(INFO, {"nonsense": 1})]),
    Scenario("the state of an empty stream", [stream(subjects=["a"]), api(INFO)]),
    Scenario(
        "the state of a stream with headers and payloads",
        [stream(subjects=["a"]), publish("a", "hello", {"K": "v"}), publish("a", "ho"), api(INFO)],
    ),
    Scenario(
        "the state of a memory stream",
        [
            stream(subjects=["a"], storage="memory"),
            publish("a", "hello", {"K": "v"}),
            publish("a", "ho"),
            api(INFO),
        ],
    ),
    Scenario("no names", [api("STREAM.NAMES")]),
    Scenario(
        "names are sorted",
        [stream("B"), stream("A"), stream("C"), api("STREAM.NAMES"), api("STREAM.NAMES", {})],
    ),
    Scenario(
        "names by subject",
        [
            stream("A", subjects=["a.>"]),
            stream("B", subjects=["b.*"]),
            api("STREAM.NAMES", {"subject": "a.x"}),
            api("STREAM.NAMES", {"subject": ">"}),
            api("STREAM.NAMES", {"subject": "c"}),
        ],
    ),
    Scenario("names beyond the end", [stream("A"), api("STREAM.NAMES", {"offset": 5})]),
    Scenario("list of streams", [stream("B"), stream("A"), api("STREAM.LIST")]),
    Scenario(
        "list of streams by subject",
        [stream("B"), stream("A"), api("STREAM.LIST", {"subject": "B"})],
    ),
    Scenario("an empty list", [api("STREAM.LIST")]),
    Scenario("delete", [stream(), api("STREAM.DELETE.S"), api(INFO)]),
    Scenario("delete what is not there", [api("STREAM.DELETE.NOPE")]),
    Scenario("delete with a body", [stream(), api("STREAM.DELETE.S", {"x": 1}), api(INFO)]),
]

CONFIGURATION: Table = [
    Scenario("create without a document", [api(CREATE)]),
    Scenario("create from something that is not JSON", [api(CREATE, "nonsense")]),
    Scenario("create with broken JSON", [api(CREATE, '{"name": "S"')]),
    Scenario("create with an unknown field", [api(CREATE, {"name": "S", "nonsense": 1})]),
    Scenario(
        "create with a field of the wrong type", [api(CREATE, {"name": "S", "max_msgs": "x"})]
    ),
    Scenario("create with another name than the subject says", [api(CREATE, {"name": "T"})]),
    Scenario("create without a name", [api(CREATE, {"subjects": ["a"]})]),
    Scenario("a name with a blank", [api("STREAM.CREATE.A", {"name": "A B"}), api("STREAM.NAMES")]),
    Scenario("a name that is too long", [api("STREAM.CREATE." + "x" * 256, {"name": "x" * 256})]),
    Scenario(
        "names of thousands of characters are answered, and the connection stays",
        [
            api("STREAM.CREATE." + "x" * 3900, {"name": "x" * 3900}),
            api("STREAM.CREATE." + "x" * 3900, {"name": "x" * 5000}),
            api("STREAM.CREATE.S", {"name": "x" * 5000}),
            api("STREAM.INFO." + "x" * 3900),
            api("STREAM.DELETE." + "x" * 3900),
            api("STREAM.RESTORE." + "x" * 3900, {"config": {"name": "x" * 3900}, "state": {}}),
            stream(),
            api("CONSUMER.CREATE." + "x" * 3900, {"stream_name": "x" * 3900, "config": {}}),
            api("CONSUMER.INFO.S." + "x" * 3900),
            api("STREAM.INFO.S"),
        ],
    ),
    refused("a description that is too long", description="x" * 4097),
    refused("metadata that is too long", metadata={"k": "x" * 140_000}),
    refused("an unknown retention", retention="forever"),
    refused("an unknown discard policy", discard="middle"),
    refused("an unknown storage", storage="tape"),
    refused("an unknown compression", compression="zip"),
    refused("a negative age", max_age=-1),
    refused("an age under a tenth of a second", max_age=1_000_000),
    refused("a negative duplicate window", duplicate_window=-1),
    refused("a duplicate window under a tenth of a second", duplicate_window=1000),
    refused(
        "a duplicate window beyond the age",
        max_age=1_000_000_000,
        duplicate_window=2_000_000_000,
    ),
    refused("three replicas on one server", num_replicas=3),
    refused("more replicas than there can be", num_replicas=6),
    refused("negative replicas", num_replicas=-1),
    refused("a malformed subject", subjects=["a..b"]),
    refused("an empty subject", subjects=[""]),
    refused("a subject twice", subjects=["a", "a"]),
    refused("subjects that overlap each other", subjects=["a.*", "a.b"]),
    refused("all subjects need no_ack", subjects=[">"]),
    refused("the subjects of the API", subjects=["$JS.API.>"]),
    refused("sealed from the start", subjects=["a"], sealed=True),
    refused("discard new per subject without discard new", discard_new_per_subject=True),
    refused("roll-ups without purge", allow_rollup_hdrs=True, deny_purge=True),
    refused(
        "discard new per subject without a limit per subject",
        discard="new",
        discard_new_per_subject=True,
    ),
    Scenario(
        "subjects that overlap another stream",
        [stream("A", subjects=["a.>"]), api(CREATE, {"name": "S", "subjects": ["a.b"]})],
    ),
    Scenario(
        "limits below zero become none",
        [
            api(
                CREATE,
                {
                    "name": "S",
                    "max_msgs": -5,
                    "max_bytes": -5,
                    "max_consumers": -9,
                    "max_msg_size": -2,
                },
            )
        ],
    ),
    Scenario(
        "a duplicate window follows a short age", [api(CREATE, {"name": "S", "max_age": 10**9})]
    ),
    refused("a transform with a broken source", subject_transform={"src": "a..b", "dest": "b"}),
    refused(
        "a transform to a wildcard that is not there",
        subject_transform={"src": "a.*", "dest": "b.{{wildcard(2)}}"},
    ),
    refused(
        "a transform with an unknown function",
        subject_transform={"src": "a.*", "dest": "b.{{nonsense(1)}}"},
    ),
    update(
        "update the description", {"subjects": ["a"]}, {"subjects": ["a"], "description": "new"}
    ),
    update("update the subjects", {"subjects": ["a"]}, {"subjects": ["a", "b.>"]}),
    update("update to limits", {"subjects": ["a"]}, {"subjects": ["a"], "max_msgs": 5}),
    update(
        "update refuses another storage",
        {"subjects": ["a"]},
        {"subjects": ["a"], "storage": "memory"},
    ),
    update(
        "update refuses to become a work queue",
        {"subjects": ["a"]},
        {"subjects": ["a"], "retention": "workqueue"},
    ),
    update(
        "update refuses to allow deletes again",
        {"subjects": ["a"], "deny_delete": True},
        {"subjects": ["a"]},
    ),
    update(
        "update refuses to allow purges again",
        {"subjects": ["a"], "deny_purge": True},
        {"subjects": ["a"]},
    ),
    update(
        "update refuses another maximum of consumers",
        {"subjects": ["a"]},
        {"subjects": ["a"], "max_consumers": 3},
    ),
    update("update refuses another name", {"subjects": ["a"]}, {"name": "T", "subjects": ["a"]}),
    Scenario("update what is not there", [api(UPDATE, {"name": "S"})]),
    Scenario(
        "an update to fewer messages removes the oldest",
        [
            stream(subjects=["a"]),
            publish_all(*["a"] * 5),
            api(UPDATE, {"name": "S", "subjects": ["a"], "max_msgs": 2}),
        ],
    ),
]

TABLE: Table = [*LIFE, *CONFIGURATION]
