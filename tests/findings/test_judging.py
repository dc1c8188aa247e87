"""What is wrong with streams, consumers and pipelines (`headrace.findings`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from headrace.api.consumers import ConsumerConfig, ConsumerInfo, SequenceInfo
from headrace.api.pipelines import PipelineRecord, QueryRecord
from headrace.api.roles import FEEDS_CHANNEL, ROLE, SPARK_PROGRESS
from headrace.api.streams import (
    LostMessages,
    StreamConfig,
    StreamInfo,
    StreamSourceInfo,
    StreamStateInfo,
)
from headrace.findings.consumers import judge_consumer
from headrace.findings.finding import KINDS, Findings, samples
from headrace.findings.jobs import judge_jobs
from headrace.findings.pipelines import judge_pipeline
from headrace.findings.streams import judge_stream

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
    judge_consumer(findings, msgspec.structs.replace(CONSUMER, **changes), NOW)
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
    at_work = SequenceInfo(last_active="2026-01-01T11:59:20Z")
    assert of_consumer(num_waiting=0, num_ack_pending=1, delivered=at_work) == []
    push = ConsumerConfig(deliver_subject="out", durable_name="c")
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
    judge_consumer(findings, stands, NOW)
    (found,) = findings.found
    assert (found.grade, found.text) == ("problem", f"{text}; nobody has pulled for 1h")
    assert found.mend.startswith("headrace jobs feed orders ")


def of_names(**changes: Any) -> list[str]:
    findings = Findings()
    judge_consumer(findings, msgspec.structs.replace(CONSUMER, **changes), NOW)
    assert all(each.name in KINDS for each in findings.found)
    return [each.name for each in findings.found]


def place(seconds_ago: int, consumer: int = 0, stream: int = 0) -> SequenceInfo:
    when = (NOW - timedelta(seconds=seconds_ago)).isoformat()
    return SequenceInfo(consumer_seq=consumer, stream_seq=stream, last_active=when)


@pytest.mark.parametrize(
    ("seconds", "in_hand", "ack_wait", "names"),
    [
        (59, 3, 30.0, []),
        (61, 3, 30.0, ["nobody-pulls"]),
        (61, 10, 30.0, ["nobody-pulls"]),  # not "raise the limit": nobody is there
        (200, 3, 300.0, []),  # its handler may still be at work
        (301, 3, 300.0, ["nobody-pulls"]),
        (200, 0, 30.0, []),  # who fetches now and then
        (301, 0, 30.0, ["nobody-pulls"]),
    ],
)
def test_messages_in_the_hands_of_who_is_gone_are_no_sign_of_life(
    seconds: int, in_hand: int, ack_wait: float, names: list[str]
) -> None:
    config = ConsumerConfig(max_ack_pending=10, ack_wait=ack_wait, durable_name="c")
    found = of_names(
        num_waiting=0, num_ack_pending=in_hand, config=config, delivered=place(seconds)
    )
    assert found == names
    last = {"delivered": place(9000), "ack_floor": place(seconds)}
    assert of_names(num_waiting=0, num_ack_pending=in_hand, config=config, **last) == names


def test_what_nobody_has_pulled_is_told_though_nothing_waits_beside_it() -> None:
    config = ConsumerConfig(durable_name="c")
    old = place(90)
    assert of_names(
        num_waiting=0, num_pending=0, num_ack_pending=3, config=config, delivered=old
    ) == ["nobody-pulls"]


def test_a_message_that_comes_for_ever_is_named() -> None:
    findings = Findings()
    looked_at = msgspec.structs.replace(
        CONSUMER,
        num_ack_pending=1,
        num_redelivered=1,
        delivered=place(1, consumer=140, stream=100),
        ack_floor=place(400, consumer=40, stream=40),
    )
    judge_consumer(findings, looked_at, NOW)
    (poison,) = findings.found
    assert (poison.name, poison.evidence["sequence"], poison.evidence["deliveries"]) == (
        "poison-message",
        41,
        41,
    )
    assert "message 41" in poison.text
    given_up = msgspec.structs.replace(looked_at, num_ack_pending=0)
    judge_consumer(findings, given_up, NOW)
    few = msgspec.structs.replace(looked_at, delivered=place(1, consumer=105, stream=100))
    judge_consumer(findings, few, NOW)
    assert len(findings.found) == 1


def test_what_removes_itself_is_no_alarm() -> None:
    left = ConsumerConfig(deliver_subject="_INBOX.x", inactive_threshold=300.0)
    assert of_names(config=left) == []
    pulled = ConsumerConfig(inactive_threshold=300.0)
    assert of_names(config=pulled, num_waiting=0, delivered=place(400)) == []


def query(**fields: Any) -> PipelineRecord:
    return PipelineRecord(
        name="shop", host="mill", process=1, since=1.0, written=1000.0,
        queries={"q": QueryRecord(**fields)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("record", "now_s", "names"),
    [
        (query(state="running"), 1010.0, []),
        (query(state="running"), 1100.0, ["pipeline-silent"]),
        (query(state="failed", error="no disk", error_at=990.0), 1010.0, ["query-failed"]),
        (query(state="restarting", failures=3), 1010.0, ["query-restarting"]),
        (msgspec.structs.replace(query(state="done"), ended=1000.0), 9000.0, []),
    ],
)
def test_a_pipeline_is_judged_by_what_its_runner_says(
    record: PipelineRecord, now_s: float, names: list[str]
) -> None:
    findings = Findings()
    judge_pipeline(findings, record, now_s)
    assert [each.name for each in findings.found] == names
    assert all("no disk" in each.text for each in findings.found if each.name == "query-failed")


def test_a_page_of_numbers_has_each_series_once_and_problems_first() -> None:
    findings = Findings()
    findings.note("stream B", "x", name="endless-stream")
    for _ in range(2):
        findings.problem("stream A", "x", name="copy-fails")
    findings.ok("streams", "x")
    assert samples(findings.found) == [
        ((("finding", "copy-fails"), ("severity", "problem"), ("what", "stream A")), 1.0),
        ((("finding", "endless-stream"), ("severity", "note"), ("what", "stream B")), 1.0),
    ]


def test_nobody_is_told_to_delete_what_is_read_without_pulls() -> None:
    shows = ConsumerConfig(metadata={ROLE: SPARK_PROGRESS})
    assert of_consumer(num_waiting=0, config=shows) == []
    findings = Findings()
    for config in (ConsumerConfig(), ConsumerConfig(deliver_subject="out", durable_name="c")):
        looked_at = msgspec.structs.replace(CONSUMER, num_waiting=0, config=config)
        judge_consumer(findings, looked_at, NOW)
    assert len(findings.found) == 2
    assert not any("consumer rm" in each.mend for each in findings.found)


def of_stream(
    state: StreamStateInfo, consumers: list[ConsumerInfo] | None = None, **config: Any
) -> list[tuple[str, str]]:
    findings = Findings()
    stream = StreamInfo(config=StreamConfig(name="A", **config), state=state)
    judge_stream(findings, stream, consumers or [])
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
    judge_stream(findings, info, [])
    assert [each.text for each in findings.found] == [
        "the copy of B fails: no such stream",
        "7 messages behind C, which was silent 10m",
    ]


def test_a_stream_ahead_of_the_clock_is_a_problem() -> None:
    findings = Findings()
    state = StreamStateInfo(messages=1, last_ts="2026-01-02T12:00:00Z")
    config = StreamConfig(name="A", max_age=60)
    for ts in ("2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z", ""):
        judge_stream(findings, StreamInfo(config=config, state=state, ts=ts), [])
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


def of_jobs(
    consumers: list[dict[str, Any]], feeds: list[dict[str, Any]], failing: list[dict[str, Any]]
) -> list[tuple[str, str, str]]:
    findings = Findings()
    judge_jobs(findings, {"consumers": consumers, "failing": failing}, feeds, NOW)
    assert all(each.name in KINDS for each in findings.found)
    return [(each.grade, each.name, each.text) for each in findings.found]


ENDPOINT = {
    "channel": "c", "consumer": "k", "disabled_reason": None, "failing_since": None,
    "jobs": {"QUEUED": 3},
}  # fmt: skip
FEED = {
    "channel": "c", "feed": "f", "stream": "S", "state": "feeding", "problem": None, "lag": 5,
    "unfinished": 9, "seen_at": "2026-01-01T11:59:59Z",
}  # fmt: skip


def test_a_job_service_at_work_is_no_finding() -> None:
    restarted = {**ENDPOINT, "failing_since": "2026-01-01T11:59:30Z"}
    away = {**FEED, "state": "away", "lag": None}
    assert of_jobs([ENDPOINT, restarted], [FEED, away], []) == []


def test_what_fails_in_a_job_service_is_a_problem() -> None:
    part = {"part": "leases", "reason": "disk full", "since": "2026-01-01T11:00:00Z", "tries": 3}
    fails = {**ENDPOINT, "failing_since": "2026-01-01T11:58:00Z"}
    disabled = {**fails, "disabled_reason": "the endpoint answered 410 Gone"}
    feeds = [
        {**FEED, "state": "failing", "problem": "no stream S"},
        {**FEED, "state": "away"},
        {**FEED, "state": "backlog"},
    ]
    assert of_jobs([fails, disabled], feeds, [part]) == [
        ("problem", "jobs-part-fails", "fails, and is tried again: disk full"),
        (
            "problem",
            "endpoint-fails",
            "every call of its endpoint has failed for 2m, 3 jobs queued",
        ),
        (
            "problem",
            "endpoint-disabled",
            "its endpoint is called no more: the endpoint answered 410 Gone; 3 jobs queued",
        ),
        (
            "problem",
            "feed-stands",
            "fails, and is tried again: no stream S; 5 messages of stream S to come",
        ),
        (
            "problem",
            "feed-stands",
            "no process of the job service feeds it; 5 messages of stream S to come when one did",
        ),
        (
            "note",
            "feed-stands",
            "waits, as 9 jobs are not finished; 5 messages of stream S to come",
        ),
    ]
