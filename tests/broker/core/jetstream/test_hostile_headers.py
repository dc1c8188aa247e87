"""Whatever stands in the headers of a message: it is stored or refused in words, and nothing breaks."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jetstream_world import Client, World

NAMES = [
    *("Nats-Msg-Id", "Nats-TTL", "Nats-Rollup", "Nats-Incr", "Nats-Stream-Source"),
    *("Nats-Expected-Stream", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Msg-Id"),
    "Nats-Expected-Last-Subject-Sequence",
    "Nats-Expected-Last-Subject-Sequence-Subject",
    *("Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit", "Nats-Required-Api-Level"),
    *("Nats-Schedule", "Nats-Schedule-Target", "Nats-Schedule-Source", "Nats-Schedule-TTL"),
    *("Nats-Schedule-Rollup", "Nats-Schedule-Time-Zone", "Nats-Schedule-Next", "Nats-Scheduler"),
    *("Nats-Marker-Reason", "KV-Operation", "Nats-Counter-Sources"),
]
VALUES = [
    *("", "x", "-1", "0", "1", "2", "+5", "9" * 30, "9" * 1200, "1s", "1.5s", "never", "999ms"),
    *("sub", "all", "eob", "purge", "S", "s.a", "s.b", "s.*", "s..a", "elsewhere", "UTC"),
    *("@at 2024-01-01T00:00:00Z", "@at 9999-12-31T23:59:59Z", "@at 0001-01-01T00:00:00Z"),
    *(
        "@every 1s",
        "@every 290y",
        "@every 99999999h",
        "0 0 0 29 2 *",
        "0 0 0 30 2 *",
        "* * * * * *",
    ),
    *("\xff\xfe", "\x00", "é", "a: b", "{}", "PURGE"),
]
block = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=6)
EVERYTHING = {
    "allow_msg_ttl": True,
    "allow_atomic": True,
    "allow_rollup_hdrs": True,
    "subject_delete_marker_ttl": 2_000_000_000,
}
KINDS = [
    {},
    {**EVERYTHING, "allow_msg_schedules": True, "republish": {"dest": "out.>"}},
    {"allow_msg_counter": True, "allow_atomic": True, "max_msgs_per_subject": 2},
    {**EVERYTHING, "discard": "new", "max_msgs": 5, "max_bytes": 2000, "max_age": 5_000_000_000},
    {**EVERYTHING, "retention": "interest", "max_msg_size": 300},
]


def publish(client: Client, headers: list[tuple[str, str]], payload: bytes) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    raw = b"NATS/1.0\r\n" + lines.encode("latin-1") + b"\r\n"
    inbox = client.subscribe()
    sizes = b"%d %d" % (len(raw), len(raw) + len(payload))
    client.send(b"HPUB s.a %b %b\r\n%b%b\r\n" % (inbox.subject, sizes, raw, payload))
    answers = inbox.take()
    assert len(answers) == 1, (headers, client.errors)
    if answers[0].payload:
        answer = json.loads(answers[0].payload)
        assert ("error" in answer) != (answer.get("seq", 0) > 0)
    inbox.close()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.lists(st.tuples(block, st.sampled_from([b"", b"x"])), max_size=8))
def test_every_message_is_answered_and_the_stream_goes_on(
    kind: dict[str, Any], messages: Any
) -> None:
    world = World()
    client = world.client()
    client.stream(subjects=["s.*"], **kind)
    for headers, payload in messages:
        publish(client, headers, payload)
        world.advance(0.6)
    world.advance(15)
    assert client.errors == []
    before = client.api("STREAM.INFO.S")["state"]
    world.restart()
    client = world.client()
    assert client.api("STREAM.INFO.S")["state"]["last_seq"] == before["last_seq"]
    world.advance(15)
    assert client.api("STREAM.INFO.S")["state"]["last_seq"] >= before["last_seq"]
