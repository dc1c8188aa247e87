"""Messages of a stream: publishing, reading one, deleting, purging, and the limits."""

from __future__ import annotations

from conformance.steps import (
    api,
    consumer,
    drain,
    publish,
    publish_all,
    pull,
    raw,
    request,
    stream,
    unanswered,
)
from conformance.table import Scenario, Table

INFO = "STREAM.INFO.S"

AROUND = ("{}", "{} ", " {}", "   {}", "{}\t", "\t{}", " \t{}", "")

MESSAGES: Table = [
    Scenario(
        "get by sequence",
        [
            stream(subjects=["a"]),
            publish("a", "hello", {"K": "v"}),
            api("STREAM.MSG.GET.S", {"seq": 1}),
        ],
    ),
    Scenario(
        "get what is not there", [stream(subjects=["a"]), api("STREAM.MSG.GET.S", {"seq": 9})]
    ),
    Scenario("get from what is not there", [api("STREAM.MSG.GET.NOPE", {"seq": 1})]),
    Scenario(
        "get without saying what",
        [
            stream(subjects=["a"]),
            publish_all("a"),
            api("STREAM.MSG.GET.S"),
            api("STREAM.MSG.GET.S", {}),
        ],
    ),
    Scenario(
        "get by sequence and subject at once",
        [
            stream(subjects=["a"]),
            publish_all("a"),
            api("STREAM.MSG.GET.S", {"seq": 1, "last_by_subj": "a"}),
        ],
    ),
    Scenario(
        "get the last of a subject",
        [
            stream(subjects=["a.*"]),
            publish_all("a.x", "a.y", "a.x", "a.y"),
            api("STREAM.MSG.GET.S", {"last_by_subj": "a.x"}),
            api("STREAM.MSG.GET.S", {"last_by_subj": "a.*"}),
            api("STREAM.MSG.GET.S", {"last_by_subj": "b"}),
        ],
    ),
    Scenario(
        "get the next of a subject",
        [
            stream(subjects=["a.*"]),
            publish_all("a.x", "a.y", "a.x", "a.y"),
            api("STREAM.MSG.GET.S", {"next_by_subj": "a.x"}),
            api("STREAM.MSG.GET.S", {"seq": 2, "next_by_subj": "a.x"}),
            api("STREAM.MSG.GET.S", {"seq": 4, "next_by_subj": "a.x"}),
        ],
    ),
    Scenario(
        "delete a message",
        [
            stream(subjects=["a"]),
            publish_all("a", "a", "a"),
            api("STREAM.MSG.DELETE.S", {"seq": 2}),
            api("STREAM.MSG.GET.S", {"seq": 2}),
            api(INFO),
        ],
    ),
    Scenario(
        "delete a message twice",
        [
            stream(subjects=["a"]),
            publish_all("a", "a", "a"),
            api("STREAM.MSG.DELETE.S", {"seq": 2}),
            api("STREAM.MSG.DELETE.S", {"seq": 2}),
        ],
    ),
    *[
        Scenario(
            f"delete messages that are not there, {storage}",
            [
                stream(subjects=["a"], storage=storage),
                publish_all("a", "a", "a", "a"),
                *[
                    api("STREAM.MSG.DELETE.S", {"seq": seq})
                    for seq in (2, 2, 1, 1, 9, 0, 4, 4, 3, 3, 9)
                ],
            ],
        )
        for storage in ("file", "memory")
    ],
    Scenario(
        "delete a message beyond the end",
        [
            stream(subjects=["a"]),
            publish_all("a"),
            api("STREAM.MSG.DELETE.S", {"seq": 7}),
        ],
    ),
    Scenario(
        "delete the first and the last message",
        [
            stream(subjects=["a"]),
            publish_all("a", "a", "a"),
            api("STREAM.MSG.DELETE.S", {"seq": 1, "no_erase": True}),
            api(INFO),
            api("STREAM.MSG.DELETE.S", {"seq": 3}),
            api(INFO),
        ],
    ),
    Scenario(
        "delete a message that may not be deleted",
        [
            stream(subjects=["a"], deny_delete=True),
            publish_all("a"),
            api("STREAM.MSG.DELETE.S", {"seq": 1}),
        ],
    ),
    Scenario("delete a message without a document", [stream(), api("STREAM.MSG.DELETE.S")]),
    Scenario(
        "purge everything",
        [
            stream(subjects=["a"]),
            publish_all("a", "a"),
            api("STREAM.PURGE.S"),
            api(INFO),
            publish("a"),
        ],
    ),
    Scenario("purge nothing", [stream(subjects=["a"]), api("STREAM.PURGE.S"), api(INFO)]),
    Scenario(
        "purge a subject",
        [
            stream(subjects=["a.*"]),
            publish_all("a.x", "a.y", "a.x"),
            api("STREAM.PURGE.S", {"filter": "a.x"}),
            api(INFO),
        ],
    ),
    Scenario(
        "purge up to a sequence",
        [
            stream(subjects=["a"]),
            publish_all(*["a"] * 5),
            api("STREAM.PURGE.S", {"seq": 4}),
            api(INFO),
        ],
    ),
    Scenario(
        "purge but keep some",
        [
            stream(subjects=["a"]),
            publish_all(*["a"] * 5),
            api("STREAM.PURGE.S", {"keep": 2}),
            api(INFO),
        ],
    ),
    Scenario(
        "purge a subject but keep some",
        [
            stream(subjects=["a.*"]),
            publish_all("a.x", "a.y", "a.x", "a.y", "a.x"),
            api("STREAM.PURGE.S", {"filter": "a.x", "keep": 1}),
            api(INFO, {"subjects_filter": ">", "deleted_details": True}),
        ],
    ),
    Scenario(
        "purge a subject up to a sequence",
        [
            stream(subjects=["a.*"]),
            publish_all("a.x", "a.y", "a.x", "a.y", "a.x"),
            api("STREAM.PURGE.S", {"filter": "a.x", "seq": 5}),
            api(INFO, {"subjects_filter": ">", "deleted_details": True}),
        ],
    ),
    Scenario(
        "purge with a sequence and a number to keep",
        [
            stream(subjects=["a"]),
            publish_all("a"),
            api("STREAM.PURGE.S", {"seq": 1, "keep": 1}),
        ],
    ),
    Scenario(
        "purge where purging is denied",
        [
            stream(subjects=["a"], deny_purge=True),
            publish_all("a"),
            api("STREAM.PURGE.S"),
        ],
    ),
    Scenario("purge what is not there", [api("STREAM.PURGE.NOPE")]),
]

PUBLISHING: Table = [
    Scenario(
        "a publish is acknowledged", [stream(subjects=["a"]), publish("a", "x"), publish("a")]
    ),
    Scenario("a publish that no stream covers", [stream(subjects=["a"]), publish("b", "x")]),
    Scenario(
        "a publish without a reply is stored",
        [
            stream(subjects=["a"]),
            raw("PUB a 1\nx\n"),
            drain(),
            publish("a"),
            api(INFO),
        ],
    ),
    Scenario(
        "a stream that acknowledges nothing",
        [
            stream(subjects=["a"], no_ack=True),
            unanswered("a", "x"),
            api("STREAM.MSG.GET.S", {"seq": 1}),
        ],
    ),
    Scenario(
        "subscribers hear what a stream stores",
        [
            stream(subjects=["a"]),
            raw("SUB a 1\n", on="b"),
            drain("b"),
            publish("a", "x"),
            drain("b"),
        ],
    ),
    Scenario(
        "the same message id twice",
        [
            stream(subjects=["a"]),
            publish("a", "x", {"Nats-Msg-Id": "one"}),
            publish("a", "y", {"Nats-Msg-Id": "one"}),
            publish("a", "z", {"Nats-Msg-Id": "two"}),
            api(INFO),
        ],
    ),
    Scenario(
        "the expected stream",
        [
            stream(subjects=["a"]),
            publish("a", "x", {"Nats-Expected-Stream": "S"}),
            publish("a", "x", {"Nats-Expected-Stream": "T"}),
        ],
    ),
    Scenario(
        "the expected last sequence",
        [
            stream(subjects=["a"]),
            publish("a", "x", {"Nats-Expected-Last-Sequence": "0"}),
            publish("a", "x", {"Nats-Expected-Last-Sequence": "1"}),
            publish("a", "x", {"Nats-Expected-Last-Sequence": "1"}),
            publish("a", "x", {"Nats-Expected-Last-Sequence": "none"}),
            api(INFO),
        ],
    ),
    Scenario(
        "the expected last message id",
        [
            stream(subjects=["a"]),
            publish("a", "x", {"Nats-Msg-Id": "one"}),
            publish("a", "x", {"Nats-Msg-Id": "two", "Nats-Expected-Last-Msg-Id": "one"}),
            publish("a", "x", {"Nats-Expected-Last-Msg-Id": "one"}),
        ],
    ),
    Scenario(
        "the expected last sequence of a subject",
        [
            stream(subjects=["a.*"]),
            publish("a.x", "x", {"Nats-Expected-Last-Subject-Sequence": "0"}),
            publish("a.y", "x", {"Nats-Expected-Last-Subject-Sequence": "0"}),
            publish("a.x", "x", {"Nats-Expected-Last-Subject-Sequence": "0"}),
            publish("a.x", "x", {"Nats-Expected-Last-Subject-Sequence": "1"}),
            publish("a.x", "x", {"Nats-Expected-Last-Subject-Sequence": "2"}),
        ],
    ),
    Scenario(
        "the expected last sequence of another subject",
        [
            stream(subjects=["a.*"]),
            publish("a.x"),
            publish(
                "a.y",
                "x",
                {
                    "Nats-Expected-Last-Subject-Sequence": "1",
                    "Nats-Expected-Last-Subject-Sequence-Subject": "a.x",
                },
            ),
            publish(
                "a.y",
                "x",
                {
                    "Nats-Expected-Last-Subject-Sequence": "7",
                    "Nats-Expected-Last-Subject-Sequence-Subject": "a.*",
                },
            ),
            publish("a.y", "x", {"Nats-Expected-Last-Subject-Sequence-Subject": "a.x"}),
        ],
    ),
    Scenario(
        "a duplicate with a wrong expectation",
        [
            stream(subjects=["a"]),
            publish("a", "x", {"Nats-Msg-Id": "one"}),
            publish("a", "x", {"Nats-Msg-Id": "one", "Nats-Expected-Last-Sequence": "9"}),
            publish("a", "x", {"Nats-Msg-Id": "one", "Nats-Expected-Stream": "T"}),
        ],
    ),
    Scenario(
        "a message over the stream's size",
        [
            stream(subjects=["a"], max_msg_size=10),
            publish("a", "x" * 10),
            publish("a", "x" * 11),
            publish("a", "x" * 5, {"K": "v"}),
        ],
    ),
    Scenario(
        "headers over the limit",
        [
            stream(subjects=["a"]),
            publish("a", "x", {"K": "v" * 65_536}),
            api(INFO),
        ],
    ),
    Scenario(
        "a roll-up where none is allowed",
        [
            stream(subjects=["a"]),
            publish("a", "x", {"Nats-Rollup": "sub"}),
        ],
    ),
    Scenario(
        "a time to live where none is allowed",
        [
            stream(subjects=["a"]),
            publish("a", "x", {"Nats-TTL": "5s"}),
            publish("a", "x", {"Nats-TTL": "x"}),
        ],
    ),
    Scenario(
        "old messages give way",
        [
            stream(subjects=["a"], max_msgs=2),
            publish_all(*["a"] * 5),
            api(INFO),
        ],
    ),
    Scenario(
        "old bytes give way",
        [
            stream(subjects=["a"], max_bytes=100),
            publish_all(*["a"] * 5),
            api(INFO),
        ],
    ),
    Scenario(
        "old messages of a subject give way",
        [
            stream(subjects=["a.*"], max_msgs_per_subject=1),
            publish_all("a.x", "a.y", "a.x", "a.x"),
            api(INFO, {"subjects_filter": ">", "deleted_details": True}),
        ],
    ),
    Scenario(
        "new messages are refused",
        [
            stream(subjects=["a"], max_msgs=2, discard="new"),
            publish_all("a", "a"),
            publish("a"),
            api(INFO),
        ],
    ),
    Scenario(
        "new bytes are refused",
        [
            stream(subjects=["a"], max_bytes=100, discard="new"),
            publish("a", "x" * 40),
            publish("a", "x" * 40),
        ],
    ),
    Scenario(
        "a message larger than the whole stream",
        [
            stream(subjects=["a"], max_bytes=100),
            publish("a", "x" * 200),
            api(INFO),
        ],
    ),
    Scenario(
        "the subject's oldest gives way although new ones are refused",
        [
            stream(subjects=["a.*"], max_msgs_per_subject=1, discard="new"),
            publish("a.x"),
            publish("a.x"),
            api(INFO),
        ],
    ),
    Scenario(
        "new messages of a subject are refused",
        [
            stream(
                subjects=["a.*"],
                max_msgs_per_subject=1,
                discard="new",
                discard_new_per_subject=True,
            ),
            publish("a.x"),
            publish("a.x"),
            publish("a.y"),
        ],
    ),
    Scenario(
        "a transform puts a partition in front",
        [
            stream(
                subjects=["flights.*.*"],
                subject_transform={
                    "src": "flights.*.*",
                    "dest": "flights.{{partition(8,2)}}.{{wildcard(1)}}.{{wildcard(2)}}",
                },
            ),
            *[publish(f"flights.JFK.N{number}") for number in (14228, 24211, 619, 804, 668)],
            api(INFO, {"subjects_filter": ">"}),
        ],
    ),
    Scenario(
        "a transform hashes two tokens, or the whole subject",
        [
            stream(
                subjects=["a.*.*"],
                subject_transform={
                    "src": "a.*.*",
                    "dest": "p.{{partition(16,1,2)}}.{{Partition(16)}}.{{wildcard(2)}}.{{wildcard(1)}}",
                },
            ),
            publish("a.x.y"),
            publish("a.y.x"),
            publish("a.xx.y"),
            api(INFO, {"subjects_filter": ">"}),
        ],
    ),
    Scenario(
        "a transform leaves other subjects alone",
        [
            stream(subjects=["a.*", "b"], subject_transform={"src": "a.*", "dest": "t.$1"}),
            publish("a.x"),
            publish("b"),
            api(INFO, {"subjects_filter": ">"}),
        ],
    ),
    Scenario(
        "a request into a stream's subject is acknowledged like a publish",
        [
            stream(subjects=["a"]),
            request("a", "x"),
        ],
    ),
    Scenario(
        "a work queue forgets what is acknowledged",
        [
            stream(subjects=["a"], retention="workqueue"),
            publish_all("a", "a"),
            consumer(ack_policy="explicit"),
            pull("2", 2),
            api(INFO),
        ],
    ),
]

BLANKS: Table = [
    Scenario(
        f"blanks around the value of {header}, {value}",
        [
            stream(subjects=["a"], allow_msg_ttl=True, allow_rollup_hdrs=True),
            publish("a", "x", {"Nats-Msg-Id": "k"}),
            *(publish("a", "x", {header: around.format(value)}) for around in AROUND),
        ],
    )
    for header, value in (
        ("Nats-Msg-Id", "order-1"),
        ("Nats-TTL", "5m"),
        ("Nats-TTL", "never"),
        ("Nats-Rollup", "sub"),
        ("Nats-Expected-Stream", "S"),
        ("Nats-Expected-Last-Sequence", "1"),
        ("Nats-Expected-Last-Msg-Id", "k"),
        ("Nats-Expected-Last-Subject-Sequence", "1"),
    )
]

TABLE: Table = [*MESSAGES, *PUBLISHING, *BLANKS]
