"""Several streams in one query, and how much a micro-batch takes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import ConfigurationError
from headrace.spark.batches.plans import plan_batch
from headrace.spark.batches.query import Query
from headrace.spark.links.control import Control
from headrace.spark.options import parse_options
from headrace.spark.tasks.read_slice import read_slice
from waiting import until_here

from ..conftest import Feed
from ..virtual import Time

Make = Callable[..., Feed]


def query(*feeds: Feed, time: Time | None = None, **options: str) -> Query:
    time = time or Time()
    given = {
        "servers": feeds[0].url,
        "stream": ",".join(feed.name for feed in feeds),
        "pollTimeout": "50ms",
        **options,
    }
    return Query(parse_options(given, streaming=True), clock=time.clock, sleep=time.sleep)


def sequences(offset: dict[str, Any]) -> dict[str, int]:
    return {name: one["seq"] for name, one in offset["s"].items()}


def rows(one: Query, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int]]:
    """What the tasks of a batch read, after its offsets were kept and read as Spark does."""
    kept = [json.loads(json.dumps(offset)) for offset in (start, end)]
    found = []
    for piece in one.plan(*kept):
        for batch in read_slice(one._options, ("stream", "sequence"), piece):
            found += [(row["stream"], row["sequence"]) for row in batch.to_pylist()]
    return found


def test_a_query_of_two_streams_reads_both_and_goes_on_where_it_was(make_feed: Make) -> None:
    a, b = make_feed(), make_feed()
    a.publish_numbers(1, 10)
    b.publish_numbers(1, 20)
    one = query(a, b, startingOffsets=json.dumps({a.name: 4, b.name: "earliest"}), durable="d")
    start = one.initial_offset()
    assert sequences(start) == {a.name: 3, b.name: 0}
    end = one.latest_offset(start)
    assert sequences(end) == {a.name: 10, b.name: 20}
    expected = [(a.name, n) for n in range(4, 11)] + [(b.name, n) for n in range(1, 21)]
    found = rows(one, start, end)  # a stream's are in order, the streams in that of their names
    assert found == sorted(expected, key=lambda row: row[0])
    assert one.latest_offset(end) is end
    b.publish_numbers(21, 22)
    more = one.latest_offset(end)
    assert rows(one, end, more) == [(b.name, 21), (b.name, 22)]
    one.latest_offset(more)
    assert [feed.control.consumer_info("d").num_pending for feed in (a, b)] == [0, 0]  # type: ignore[union-attr]
    assert one.latest == more
    one.close()


def test_an_offset_names_streams_in_one_order_whatever_the_options_say(make_feed: Make) -> None:
    a, b = make_feed(), make_feed()
    one, other = query(a, b), query(b, a)
    texts = {json.dumps(each.initial_offset()) for each in (one, other)}
    assert len(texts) == 1
    one.close()
    other.close()


def test_a_stream_that_is_added_begins_at_its_start_and_a_replay_has_the_same_rows(
    make_feed: Make,
) -> None:
    a, b = make_feed(), make_feed()
    a.publish_numbers(1, 3)
    b.publish_numbers(1, 5)
    alone = query(a)
    start = alone.latest_offset(alone.initial_offset())
    alone.close()
    both = query(a, b, startingOffsets=json.dumps({a.name: "earliest", b.name: 3}))
    end = both.latest_offset(start)
    assert rows(both, start, end) == [(b.name, 3), (b.name, 4), (b.name, 5)]
    both.close()
    again = query(a, b)  # another start now: the batch in the log keeps its own
    assert rows(again, start, end) == [(b.name, 3), (b.name, 4), (b.name, 5)]
    assert again.latest_offset(end) is end
    again.close()


def test_a_stream_that_is_taken_out_is_mentioned(
    make_feed: Make, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = make_feed(), make_feed()
    a.publish_numbers(1, 3)
    both = query(a, b)
    start = both.initial_offset()
    both.close()
    alone = query(a)
    assert alone.latest_offset(start)["seq"] == 3
    assert f"no longer reads {b.name}" in caplog.text
    alone.close()


def test_limits_hold_for_all_streams_together_and_no_stream_starves(make_feed: Make) -> None:
    a, b = make_feed(), make_feed()
    a.publish_numbers(1, 900)
    b.publish_numbers(1, 2)
    one = query(a, b, maxOffsetsPerTrigger="100")
    at = one.initial_offset()
    taken = []
    while (end := one.latest_offset(at)) != at:
        taken.append(len(rows(one, at, end)))
        if len(taken) == 1:
            assert sequences(end)[b.name] >= 1
        at = end
    assert sum(taken) == 902
    assert max(taken) <= 100
    assert len(taken) <= 12
    assert sequences(one.latest_offset(one.initial_offset(), limited=False)) == sequences(at)
    one.close()


def test_bytes_are_limited_by_the_mean_size(make_feed: Make) -> None:
    feed = make_feed()
    feed.publish(["n"] * 100, lambda index: b"x" * 1000)
    one = query(feed, maxBytesPerTrigger="20000")
    start = one.initial_offset()
    end = one.latest_offset(start)
    assert 10 <= end["seq"] <= 20
    assert one.latest_offset(start, limited=False)["seq"] == 100
    tiny = query(feed, maxBytesPerTrigger="10")
    assert tiny.latest_offset(start)["seq"] == 1
    one.close()
    tiny.close()


def test_a_batch_waits_for_its_minimum_but_not_beyond_the_delay(make_feed: Make) -> None:
    feed, time = make_feed(), Time()
    one = query(feed, time=time, minOffsetsPerTrigger="10", maxTriggerDelay="1m", pollTimeout="10s")
    feed.publish_numbers(1, 3)
    first = one.latest_offset(one.initial_offset())
    assert first["seq"] == 3, "the first batch is not delayed"
    feed.publish_numbers(4, 12)
    assert one.latest_offset(first) is first
    assert time.slept == [10.0], "it pauses, for Spark asks again at once"
    feed.publish_numbers(13, 13)
    second = one.latest_offset(first)
    assert second["seq"] == 13
    feed.publish_numbers(14, 14)
    asked = 1
    while (third := one.latest_offset(second)) is second:
        asked += 1
    assert third["seq"] == 14
    assert asked == 7
    feed.publish_numbers(15, 15)
    one.freeze_target()
    assert one.latest_offset(third)["seq"] == 15, "nothing is awaited under availableNow"
    one.close()


def test_the_minimum_counts_the_subjects_that_are_read(make_feed: Make) -> None:
    feed = make_feed()
    one = query(feed, minOffsetsPerTrigger="10", subjects=f"{feed.name}.wanted")
    feed.publish(["wanted"])
    first = one.latest_offset(one.initial_offset())
    feed.publish(["wanted"] * 9 + ["other"] * 100)
    assert one.latest_offset(first) is first
    feed.publish(["wanted"])
    assert one.latest_offset(first)["seq"] == 111
    one.close()


def test_tasks_are_at_least_as_many_as_wanted_and_shared_by_the_streams(make_feed: Make) -> None:
    a, b = make_feed(), make_feed()
    a.publish_numbers(1, 30)
    b.publish_numbers(1, 10)
    one = query(a, b, minPartitions="4")
    start = one.initial_offset()
    pieces = one.plan(start, one.latest_offset(start))
    assert [(p.stream, p.width) for p in pieces] == [(a.name, 10)] * 3 + [(b.name, 10)]
    few = query(a, b, maxTasks="2", minMessagesPerTask="1")
    assert len(few.plan(start, few.latest_offset(start))) == 2
    one.close()
    few.close()


def test_a_batch_read_of_two_streams_has_bounds_for_each(make_feed: Make) -> None:
    a, b = make_feed(), make_feed()
    a.publish_numbers(1, 10)
    b.publish_numbers(1, 10)
    options = parse_options(
        {
            "servers": a.url,
            "stream": f"{a.name}, {b.name}",
            "startingOffsets": json.dumps({a.name: 2, b.name: -2}),
            "endingOffsets": json.dumps({a.name: -1, b.name: 4}),
        },
        streaming=False,
    )
    found = [(piece.stream, piece.lo, piece.hi) for piece in plan_batch(options)]
    assert found == [(a.name, 1, 10), (b.name, 0, 4)]


def test_a_start_by_time_may_have_to_exist(make_feed: Make) -> None:
    a, b = make_feed(), make_feed()
    a.publish_numbers(1, 3)
    times = json.dumps({a.name: "2013-01-01T00:00:00Z", b.name: "2013-01-01T00:00:00Z"})
    lax = query(a, b, startingOffsetsByTimestamp=times, startingOffsets="earliest")
    assert sequences(lax.initial_offset()) == {a.name: 0, b.name: 0}
    lax.close()
    strict = query(
        a, b, startingOffsetsByTimestamp=times, startingOffsetsByTimestampStrategy="error"
    )
    with pytest.raises(ConfigurationError, match=f"{b.name!r} has no message stored at or after"):
        strict.initial_offset()
    strict.close()


def test_an_idle_query_asks_the_server_a_few_times_a_second(
    make_feed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = make_feed(), make_feed()
    one = query(a, b)
    at = one.initial_offset()
    one.latest_offset(at)
    asked: list[str] = []
    call = Control._call

    def spy(control: Control, tokens: tuple[str, ...], *rest: Any) -> Any:
        asked.append(tokens[0])
        return call(control, tokens, *rest)

    monkeypatch.setattr(Control, "_call", spy)
    for _ in range(4):  # a second, with the default pollTimeout
        assert one.latest_offset(at) is at
    assert len(asked) <= 5 * 2
    one.close()


STOPPED = """
import sys
from headrace.spark.options import parse_options
from headrace.spark.batches.query import Query, exit_on_sigterm

options = {"servers": sys.argv[1], "stream": sys.argv[2], "pollTimeout": "60s"}
query = Query(parse_options(options, streaming=True))
exit_on_sigterm(query)
start = query.initial_offset()
print("waiting", flush=True)
query.latest_offset(start)
print("not reached", flush=True)
"""


def test_a_query_that_waits_ends_at_once_and_quietly_when_spark_kills_it(feed: Feed) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, feed.url, feed.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        until_here(lambda: feed.consumers() == 1, "it waits for news")
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=5)
    assert (process.returncode, out, said) == (0, b"", b"")


def test_the_partitions_of_a_query_may_change_between_two_starts(feed: Feed) -> None:
    feed.publish([f"key{n % 50}" for n in range(300)])
    by_hash: dict[str, Any] = {
        "splitBy": "partition",
        "partitionBy": "hash=2",
        "minMessagesPerTask": "1",
    }
    before = query(feed, **by_hash, partitions="4", maxOffsetsPerTrigger="100")
    start = before.initial_offset()
    middle = before.latest_offset(start)
    found = rows(before, start, middle)
    before.close()
    after = query(feed, **by_hash, partitions="7")
    assert sorted(rows(after, start, middle)) == sorted(found), "a replay has the same rows"
    end = after.latest_offset(middle)
    assert len(after.plan(middle, end)) == 7
    found += rows(after, middle, end)
    after.close()
    assert sorted(found) == [(feed.name, n) for n in range(1, 301)]
