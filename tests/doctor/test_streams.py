from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from headrace.api.consumers import ConsumerConfig, ConsumerInfo, SequenceInfo
from headrace.api.roles import FEEDS_CHANNEL, ROLE, SPARK_PROGRESS
from headrace.api.streams import (
    LostMessages,
    StreamConfig,
    StreamInfo,
    StreamSourceInfo,
    StreamStateInfo,
)
from headrace.doctor.findings import Findings
from headrace.doctor.streams import look_at_consumer, look_at_stream

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CONSUMER = ConsumerInfo(
    stream_name="A",
    name="c",
    created="2026-01-01T11:00:00Z",
    config=ConsumerConfig(max_ack_pending=10),
    num_pending=5,
    num_waiting=1,
)


def of_consumer(**changes: Any) -> list[tuple[str, str]]:
    findings = Findings()
    look_at_consumer(findings, msgspec.structs.replace(CONSUMER, **changes), NOW)
    return [(each.grade, each.text) for each in findings.found]


def test_a_consumer_at_work_is_no_finding() -> None:
    assert of_consumer() == []
    assert of_consumer(num_waiting=0, num_pending=0) == []
    recent = SequenceInfo(last_active="2026-01-01T11:59:00Z")
    assert of_consumer(num_waiting=0, delivered=recent) == []


def test_a_consumer_that_stands_still_is_a_problem() -> None:
    (full,) = of_consumer(num_ack_pending=10)
    assert full == ("problem", "10 messages without an answer, as many as allowed: it stands still")
    (unused,) = of_consumer(num_waiting=0)
    assert unused == ("problem", "nobody has pulled for 1h, 5 messages waiting")
    assert of_consumer(num_waiting=0, num_ack_pending=1) == []  # somebody works on it
    push = ConsumerConfig(deliver_subject="out")
    assert of_consumer(config=push)[0][1] == "nobody listens on out, 5 messages waiting"
    assert of_consumer(config=push, push_bound=True) == []
    assert of_consumer(paused=True, pause_remaining=60)[0][0] == "note"


def test_a_consumer_that_feeds_jobs_tells_its_place_and_who_says_why_it_waits() -> None:
    feeds = ConsumerConfig(metadata={FEEDS_CHANNEL: "orders"})
    at = SequenceInfo(stream_seq=7)
    text = "feeds the channel orders of a job service: up to sequence 7, 5 messages to come"
    assert of_consumer(config=feeds, ack_floor=at) == [("ok", text)]
    findings = Findings()
    stands = msgspec.structs.replace(CONSUMER, config=feeds, ack_floor=at, num_waiting=0)
    look_at_consumer(findings, stands, NOW)
    (found,) = findings.found
    assert (found.grade, found.text) == ("problem", f"{text}; nobody has pulled for 1h")
    assert found.mend.startswith("headrace jobs feed orders ")


def test_nobody_is_told_to_delete_what_is_read_without_pulls() -> None:
    shows = ConsumerConfig(metadata={ROLE: SPARK_PROGRESS})
    assert of_consumer(num_waiting=0, config=shows) == []
    findings = Findings()
    for config in (ConsumerConfig(), ConsumerConfig(deliver_subject="out")):
        looked_at = msgspec.structs.replace(CONSUMER, num_waiting=0, config=config)
        look_at_consumer(findings, looked_at, NOW)
    assert len(findings.found) == 2
    assert not any("consumer rm" in each.mend for each in findings.found)


def of_stream(
    state: StreamStateInfo, consumers: list[ConsumerInfo] | None = None, **config: Any
) -> list[tuple[str, str]]:
    findings = Findings()
    stream = StreamInfo(config=StreamConfig(name="A", **config), state=state)
    look_at_stream(findings, stream, consumers or [])
    return [(each.grade, each.text) for each in findings.found]


@pytest.mark.parametrize(
    ("state", "config", "text"),
    [
        (StreamStateInfo(lost=LostMessages(msgs=(3, 4))), {}, "2 messages found damaged"),
        (
            StreamStateInfo(messages=10),
            {"max_msgs": 10, "discard": "new"},
            "10 of 10 messages: full",
        ),
        (
            StreamStateInfo(messages=1),
            {"retention": "workqueue"},
            "no consumer: a work queue keeps",
        ),
        (StreamStateInfo(bytes=2 << 30), {}, "2.0 GiB, and nothing limits it"),
    ],
)
def test_what_is_wrong_with_a_stream(
    state: StreamStateInfo, config: dict[str, Any], text: str
) -> None:
    (found,) = of_stream(state, **config)
    assert text in found[1]


def test_a_stream_in_order_is_no_finding() -> None:
    assert of_stream(StreamStateInfo(messages=10, bytes=1000), max_msgs=10) == []
    assert of_stream(StreamStateInfo(messages=1), [CONSUMER], retention="workqueue") == []
    assert of_stream(StreamStateInfo(bytes=2 << 30), max_age=60) == []


def test_a_copy_that_fails_is_a_problem() -> None:
    findings = Findings()
    source = StreamSourceInfo(name="B", error={"description": "no such stream"})
    late = StreamSourceInfo(name="C", lag=7, active=600)
    info = StreamInfo(config=StreamConfig(name="A"), sources=(source, late))
    look_at_stream(findings, info, [])
    assert [each.text for each in findings.found] == [
        "the copy of B fails: no such stream",
        "7 messages behind C, which was silent 10m",
    ]


def test_a_stream_ahead_of_the_clock_is_a_problem() -> None:
    findings = Findings()
    state = StreamStateInfo(messages=1, last_ts="2026-01-02T12:00:00Z")
    config = StreamConfig(name="A", max_age=60)
    for ts in ("2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z", ""):
        look_at_stream(findings, StreamInfo(config=config, state=state, ts=ts), [])
    (found,) = findings.found
    assert (found.grade, found.what) == ("problem", "stream A")
    assert found.text.startswith("its newest message is from 1d later than the server's clock")


def test_a_stream_that_is_moved_or_was_is_told_with_the_command_that_leads_on() -> None:
    empty = StreamStateInfo()
    (renamed,) = of_stream(empty, metadata={"headrace.rename.to": "B"})
    assert renamed == (
        "problem",
        "is being renamed to B: it takes no messages, and its consumers pause",
    )
    marks = {"headrace.repartition.to": "A8"}
    (left,) = of_stream(empty, [CONSUMER], metadata=marks)
    assert left == (
        "note",
        "takes no messages any more: A8 takes them, with other partitions; its consumers have 5 left",
    )
    (done,) = of_stream(empty, metadata=marks)
    assert done == ("note", "takes no messages any more: A8 takes them, with other partitions")
