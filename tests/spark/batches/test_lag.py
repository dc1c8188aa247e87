from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import ConfigurationError
from headrace.spark.batches.driver import StreamLag
from headrace.spark.batches.lag import Lag, document, prometheus
from headrace.spark.options.source import LagRule
from waiting import until_here

from ..conftest import Feed
from ..virtual import Time
from .test_query import query

Make = Callable[..., Feed]


class Listener:
    """What is published on a subject, as it came."""

    def __init__(self, feed: Feed, subject: str) -> None:
        self._link = feed.connect()
        self._link.send(b"SUB %b 99\r\nPING\r\n" % subject.encode())
        self._link._live.add(b"99")

    def take(self, count: int = 0) -> list[dict[str, Any]]:
        """So many, and whatever has come besides: what another connection publishes takes its own time."""
        self._link.request("$JS.API.INFO")
        found: list[dict[str, Any]] = []

        def has_come() -> bool:
            found.extend(json.loads(frame[5]) for frame in self._link.poll(0.05))
            return len(found) >= count

        until_here(has_come, f"{count} messages")
        return found

    def close(self) -> None:
        self._link.close()


def test_lag_is_published_when_it_is_due_and_when_the_query_has_caught_up(feed: Feed) -> None:
    time = Time()
    listener = Listener(feed, f"lag.{feed.name}")
    one = query(
        feed, time=time, durable="d", lagSubject=f"lag.{feed.name}", maxOffsetsPerTrigger="40"
    )
    feed.publish_numbers(1, 100)
    at = one.initial_offset()
    at = one.latest_offset(at)
    (first,) = listener.take(1)
    assert (first["durable"], first["messages_behind"]) == ("d", 100)
    assert first["streams"][feed.name]["last_sequence"] == 100
    assert 0 <= first["seconds_behind"] < 60
    at = one.latest_offset(at)
    assert listener.take() == [], "not more often than lagInterval"
    time.slept.append(1.5)
    at = one.latest_offset(at)
    (second,) = listener.take(1)
    assert second["messages_behind"] == 20
    assert second["streams"][feed.name]["committed_sequence"] == 80
    assert one.latest_offset(at) is at
    (last,) = listener.take(1)
    assert (last["messages_behind"], last["seconds_behind"]) == (0, 0.0)
    assert one.latest_offset(at) is at
    assert listener.take() == []
    listener.close()
    one.close()


def test_the_last_batch_of_available_now_counts_and_so_does_what_came_later(feed: Feed) -> None:
    listener = Listener(feed, f"lag.{feed.name}")
    one = query(feed, lagSubject=f"lag.{feed.name}")
    feed.publish_numbers(1, 10)
    one.freeze_target()
    feed.publish_numbers(11, 13)
    at = one.latest_offset(one.initial_offset())
    assert at["seq"] == 10
    assert one.latest_offset(at) is at
    assert [each["messages_behind"] for each in listener.take(2)] == [13, 3]
    listener.close()
    one.close()


def test_lag_counts_the_subjects_that_are_read_and_the_age_is_theirs(feed: Feed) -> None:
    feed.publish(["a"] * 5 + ["b"] * 3)
    one = query(feed, subjects=f"{feed.name}.b", lagSubject=f"lag.{feed.name}")
    (driver,) = one.drivers.values()
    lag = driver.lag(driver.look(one.drivers[feed.name].initial_offset()))
    assert (lag.messages, lag.committed, lag.last) == (3, 0, 8)
    head = driver.look(driver.initial_offset()).head
    oldest_ns = feed.control.next_time(6)
    assert lag.seconds <= (head.now_ns - oldest_ns) / 1e9
    one.close()


def test_a_bucket_keeps_the_latest_lag(make_feed: Make) -> None:
    feed = make_feed()
    bucket = make_feed(subjects=["$KV.lag.>"], max_msgs_per_subject=1)
    one = query(feed, lagSubject="$KV.lag.mine")
    one.latest_offset(one.initial_offset())
    answer = bucket.call(f"STREAM.MSG.GET.{bucket.name}", {"last_by_subj": "$KV.lag.mine"})
    assert answer["message"]["subject"] == "$KV.lag.mine"
    one.close()


def test_lag_is_served_as_prometheus_metrics(make_feed: Make) -> None:
    a, b = make_feed(), make_feed()
    a.publish_numbers(1, 5)
    one = query(a, b, durable="d", metricsAddress="0")
    one.latest_offset(one.initial_offset())
    url = f"http://127.0.0.1:{one.lag.port}"
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    labels = f'{{stream="{a.name}",durable="d"}}'
    assert f"headrace_spark_messages_behind{labels} 5\n" in text
    assert f"headrace_spark_last_sequence{labels} 5\n" in text
    assert f'headrace_spark_messages_behind{{stream="{b.name}",durable="d"}} 0\n' in text
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=5)
    refused.value.close()
    taken = LagRule(address=("127.0.0.1", one.lag.port))
    with pytest.raises(ConfigurationError, match=r"metricsAddress .* cannot be used"):
        Lag(taken, "d", {}, Time().clock)
    one.close()


def test_lag_of_several_streams_is_the_sum_and_the_oldest() -> None:
    lags = [StreamLag("A", 1, 9, 8, 1.25), StreamLag("B", 3, 3, 0, 0.0)]
    whole = json.loads(document("d", lags, 1_000_000_000))
    assert (whole["messages_behind"], whole["seconds_behind"]) == (8, 1.25)
    assert whole["at"] == "1970-01-01T00:00:01Z"
    text = prometheus("d", lags)
    assert 'headrace_spark_seconds_behind{stream="A",durable="d"} 1.25\n' in text
    assert text.count("# TYPE") == 5
