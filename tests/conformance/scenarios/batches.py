"""Atomic batches: messages published one by one and stored together."""

from __future__ import annotations

from typing import Any

from conformance.driver import Step
from conformance.scenarios.control import listen
from conformance.steps import api, consumer, publish, pull, quiet, raw, request, stream
from conformance.table import Scenario, Table

INFO = "STREAM.INFO.S"
ABANDONED = listen("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>")
_SECOND = 1_000_000_000


def part(
    sequence: object,
    subject: str = "a",
    payload: str = "x",
    *,
    batch: str = "one",
    commit: str = "",
    **more: str,
) -> Step:
    headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(sequence)}
    if commit:
        headers["Nats-Batch-Commit"] = commit
    headers.update({key.replace("_", "-"): value for key, value in more.items()})
    return publish(subject, payload, headers)


def silent(sequence: int, subject: str = "a") -> Step:
    block = f"NATS/1.0\r\nNats-Batch-Id: one\r\nNats-Batch-Sequence: {sequence}\r\n\r\n"
    return raw(f"HPUB {subject} {len(block)} {len(block) + 1}\r\n{block}x\r\n".encode())


def batches(**config: Any) -> Step:
    return stream(**{"subjects": ["a", "b.*"], "allow_atomic": True, **config})


TABLE: Table = [
    Scenario(
        "batch: stored together",
        [
            batches(),
            part(1),
            part(2, "b.x"),
            api(INFO),
            part(3, commit="1"),
            api(INFO),
            consumer(ack_policy="none"),
            pull("3", 3),
        ],
    ),
    Scenario(
        "batch: of one, without replies, and ended without a message",
        [
            batches(),
            part(1, commit="1"),
            silent(1),
            silent(2),
            part(3, commit="1"),
            part(1),
            part(2),
            part(3, commit="eob"),
            consumer(ack_policy="none"),
            pull("6", 6),
        ],
    ),
    Scenario(
        "batch: what is wrong with its headers",
        [
            batches(),
            *ABANDONED,
            part("x"),
            part(""),
            part(-1),
            part(0),
            part(2),
            part(1001),
            part(1001, commit="eob"),
            part(1, batch="i" * 65),
            part(1, batch="i" * 64, commit="1"),
            part(1),
            part(2, commit="2"),
            part(3, commit="1"),
            part(1, commit="eob"),
            part(1),
            part(3),
            part(2, commit="1"),
            publish("a", "x", {"Nats-Batch-Id": "one"}),
            publish("a", "x", {"Nats-Batch-Commit": "1", "Nats-Batch-Sequence": "1"}),
            part(1, Nats_Required_Api_Level="0"),
            part(2, Nats_Required_Api_Level="99"),
            quiet(on="b"),
            api(INFO),
        ],
    ),
    Scenario(
        "batch: on a stream that takes none",
        [batches(allow_atomic=False), part(1), part(1, commit="1"), part("x")],
    ),
    Scenario(
        "batch: too large",
        [
            batches(),
            *ABANDONED,
            *[silent(number) for number in range(1, 1001)],
            part(1001, commit="1"),
            quiet(on="b"),
            *[silent(number) for number in range(1, 1001)],
            part(1001, commit="eob"),
            api(INFO),
        ],
    ),
    Scenario(
        "batch: too many open ones",
        [
            batches(),
            *[part(1, batch=f"batch-{number}") for number in range(51)],
            part(2, batch="batch-7", commit="1"),
            part(1, batch="batch-60", commit="1"),
        ],
    ),
    Scenario(
        "batch: expectations",
        [
            batches(),
            part(1, Nats_Expected_Last_Sequence="7", commit="1"),
            part(1, Nats_Expected_Last_Sequence="0"),
            part(2, commit="1"),
            part(1),
            part(2, Nats_Expected_Last_Sequence="3", commit="1"),
            part(1),
            part(2, Nats_Expected_Last_Sequence="9", commit="1"),
            part(1, Nats_Expected_Last_Subject_Sequence="1", commit="1"),
            part(1, Nats_Expected_Last_Subject_Sequence="2"),
            part(2, Nats_Expected_Last_Subject_Sequence="2", commit="1"),
            part(1, "b.x", Nats_Expected_Last_Subject_Sequence="0"),
            part(2, "b.y", Nats_Expected_Last_Subject_Sequence="0", commit="1"),
            part(1, Nats_Expected_Last_Subject_Sequence_Subject="a", commit="1"),
            part(1, Nats_Expected_Stream="T", commit="1"),
            part(1, Nats_Expected_Last_Msg_Id="x", commit="1"),
            api(INFO),
        ],
    ),
    Scenario(
        "batch: duplicates",
        [
            batches(),
            publish("a", "x", {"Nats-Msg-Id": "0"}),
            part(1, Nats_Msg_Id="1"),
            part(2, Nats_Msg_Id="1", commit="1"),
            part(1, Nats_Msg_Id="0", commit="1"),
            part(1, Nats_Msg_Id="1"),
            part(2, Nats_Msg_Id="2", commit="1"),
            publish("a", "x", {"Nats-Msg-Id": "2"}),
        ],
    ),
    Scenario(
        "batch: roll-ups",
        [
            batches(allow_rollup_hdrs=True),
            publish("a", "x"),
            publish("b.x", "x"),
            part(1, Nats_Rollup="sub"),
            part(2, "b.x"),
            part(3, "b.x", Nats_Rollup="sub", commit="1"),
            part(1, "b.y"),
            part(2, "b.x", Nats_Rollup="all", commit="1"),
            part(1, "b.y"),
            part(2, "b.x", Nats_Rollup="sub", commit="1"),
            api(INFO, {"subjects_filter": ">"}),
            part(1, "b.z", Nats_Rollup="all"),
            part(2, "b.z", commit="1"),
            api(INFO, {"subjects_filter": ">"}),
        ],
    ),
    Scenario(
        "batch: roll-ups not allowed, TTL not allowed",
        [
            batches(),
            part(1, Nats_Rollup="sub", commit="1"),
            part(1, Nats_TTL="5", commit="1"),
            part(1, Nats_TTL="x", commit="1"),
        ],
    ),
    Scenario(
        "batch: messages with a TTL",
        [
            batches(allow_msg_ttl=True),
            part(1, Nats_TTL="1h"),
            part(2, Nats_TTL="x", commit="1"),
            part(1, Nats_TTL="1h"),
            part(2, commit="1"),
            api(INFO),
        ],
    ),
    Scenario(
        "batch: a stream that refuses more",
        [
            batches(
                discard="new", max_msgs=3, max_msgs_per_subject=2, discard_new_per_subject=True
            ),
            publish("a", "x"),
            part(1),
            part(2, commit="1"),
            part(1, "b.x"),
            part(2, "b.y"),
            part(3, "b.z", commit="1"),
            part(1, "b.x"),
            part(2, "b.y", commit="1"),
            publish("b.z", "x"),
            api(INFO),
        ],
    ),
    Scenario(
        "batch: limits that make room",
        [
            batches(max_msgs=3, max_msgs_per_subject=2),
            part(1),
            part(2),
            part(3),
            part(4, "b.x"),
            part(5, "b.y", commit="1"),
            api(INFO, {"subjects_filter": ">"}),
        ],
    ),
    Scenario(
        "batch: counters",
        [
            batches(allow_msg_counter=True),
            part(1, payload="", Nats_Incr="5"),
            part(2, payload="", Nats_Incr="-2"),
            part(3, "b.x", payload="", Nats_Incr="7", commit="1"),
            part(1, payload="", Nats_Incr="1", commit="1"),
            part(1, payload="", commit="1"),
            request("$JS.API.STREAM.MSG.GET.S", {"last_by_subj": "a", "no_hdr": True}),
        ],
    ),
    Scenario(
        "batch: transforms and republishing",
        [
            batches(
                subject_transform={"src": "b.*", "dest": "t.{{wildcard(1)}}"},
                republish={"src": ">", "dest": "out.>"},
            ),
            raw("SUB out.> 1\n", on="b"),
            quiet(on="b"),
            part(1, "b.x"),
            part(2, "b.x"),
            part(3, "a", commit="1"),
            quiet(on="b"),
        ],
    ),
    Scenario(
        "batch: open while the stream changes its mind",
        [
            batches(),
            part(1),
            api("STREAM.UPDATE.S", {"name": "S", "subjects": ["a", "b.*"]}),
            part(2, commit="1"),
            api("STREAM.UPDATE.S", {"name": "S", "subjects": ["a", "b.*"], "allow_atomic": True}),
            part(2, commit="1"),
        ],
    ),
    Scenario(
        "batch: messages too large",
        [
            batches(max_msg_size=200),
            part(1, payload="x" * 200),
            part(1),
            part(2, payload="x" * 200),
            part(2, commit="1"),
        ],
    ),
]
