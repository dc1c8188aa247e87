from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from distances import FAR_S
from headrace.api.consumers import ConsumerInfo
from headrace.errors import ConfigurationError
from headrace.spark.links.control import Control
from headrace.spark.offsets import DataLossError, Offset
from headrace.spark.options import parse_options
from headrace.testing import Link
from waiting import elapse_here

from ..conftest import Feed
from ..queries import driver, latest_offset, ranges


def test_earliest_is_what_the_stream_still_holds(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    feed.call(f"STREAM.PURGE.{feed.name}", {"seq": 4})
    one = driver(feed)
    assert one.initial_offset().seq == 3
    feed.call(f"STREAM.PURGE.{feed.name}", {"seq": 6})
    assert one.initial_offset().seq == 3  # the same answer however often it is asked
    one.close()


def test_a_start_by_sequence_reads_that_message_first(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed, startingOffsets="7")
    assert one.initial_offset().seq == 6
    one.close()
    beyond = driver(feed, startingOffsets="12")
    with pytest.raises(ConfigurationError, match="ends at sequence 10"):
        beyond.initial_offset()
    beyond.close()


def test_a_start_by_time_reads_the_first_message_stored_then_or_later(feed: Feed) -> None:
    feed.publish_numbers(1, 3)
    elapse_here(0.01, "times are told apart by milliseconds")
    moment = time.time_ns() // 1_000_000
    elapse_here(0.01, "times are told apart by milliseconds")
    feed.publish_numbers(4, 6)
    one = driver(feed, startingTimestamp=str(moment))
    assert one.initial_offset().seq == 3
    one.close()
    late = driver(feed, startingTimestamp=str(moment + 60_000))
    assert late.initial_offset().seq == 6
    late.close()


def test_available_now_offers_nothing_that_came_later(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed)
    one.freeze_target()
    feed.publish_numbers(11, 20)
    epoch = one.initial_offset().epoch
    assert latest_offset(one, Offset(0, epoch), 6).seq == 6
    assert latest_offset(one, Offset(6, epoch), 6).seq == 10
    assert latest_offset(one, Offset(10, epoch), 6).seq == 10
    one.close()


def test_over_a_far_link_batches_join_and_end_where_the_stream_did_though_it_grows(
    feed: Feed,
) -> None:
    over = threading.Event()
    published = 10
    feed.publish_numbers(1, published)
    grows = Feed.__new__(Feed)
    grows.__dict__.update(feed.__dict__)
    grows.link = feed.connect()
    grows._inbox, grows._sid = grows.link.subscribe()

    def publish() -> None:
        nonlocal published
        while not over.is_set():
            grows.publish_numbers(published + 1, published + 5)
            published += 5

    publisher = threading.Thread(target=publish)
    with Link(feed.url, FAR_S) as link:
        one = driver(feed, servers=link.url)
        publisher.start()
        try:
            end = one.initial_offset()
            read: list[tuple[int, int]] = []
            for _ in range(6):
                before = published
                start, end = end, latest_offset(one, end, None)
                assert before <= end.seq <= published + 5, (
                    "what is there when it is asked, and no more"
                )
                read += ranges(one, start, end)
        finally:
            over.set()
            publisher.join()
            one.close()
            grows.link.close()
    ends = [hi for _, hi in read]
    assert [lo for lo, _ in read] == [0, *ends[:-1]]
    assert ends[-1] == end.seq


def test_an_idle_query_waits_and_wakes_when_a_message_comes(feed: Feed) -> None:
    feed.publish_numbers(1, 3)
    one = driver(feed, pollTimeout="1h")
    start = Offset(3, one.initial_offset().epoch)
    publisher = threading.Timer(0.2, lambda: other.publish_numbers(4, 5))
    other = Feed.__new__(Feed)
    other.__dict__.update(feed.__dict__)
    other.link = feed.connect()
    other._inbox, other._sid = other.link.subscribe()
    publisher.start()
    began = time.monotonic()
    assert latest_offset(one, start, None).seq in (4, 5)
    assert time.monotonic() - began > 0.1
    publisher.join()
    began = time.monotonic()
    one._options = parse_options({"stream": feed.name, "pollTimeout": "100ms"})
    assert latest_offset(one, Offset(5, start.epoch), None).seq == 5
    assert time.monotonic() - began >= 0.09
    one.close()
    other.link.close()
    assert feed.consumers() == 0


def test_the_consumer_of_a_wait_does_not_outlive_a_stopped_query_for_long(feed: Feed) -> None:
    one = driver(feed)
    start = one.initial_offset()
    assert latest_offset(one, start, None) == start
    (waiting,) = feed.call(f"CONSUMER.LIST.{feed.name}")["consumers"]
    assert waiting["config"]["inactive_threshold"] <= 6_000_000_000
    one.close()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, True),
        ({"max_msgs_per_subject": 100_000}, False),
        ({"allow_msg_ttl": True}, False),
        ({"retention": "interest"}, False),
    ],
)
def test_messages_that_somebody_deleted_before_they_were_read_are_mentioned(
    make_feed: Callable[..., Feed],
    config: dict[str, object],
    said: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = make_feed(**config)
    if "retention" in config:  # somebody has to want the messages
        durable = {"durable_name": "theirs", "ack_policy": "explicit"}
        feed.call(
            f"CONSUMER.CREATE.{feed.name}.theirs", {"stream_name": feed.name, "config": durable}
        )
    feed.publish(["a", "b", "a", "b", "b", "a"])
    one = driver(feed)
    start = one.initial_offset()
    end = latest_offset(one, start, None)
    one.plan(start, end)
    assert caplog.text == ""
    feed.call(f"STREAM.PURGE.{feed.name}", {"filter": f"{feed.name}.b"})
    one.plan(start, end)
    text = f"stream {feed.name!r}: 3 of the sequences 1 to 6 have no message"
    assert (text in caplog.text) is said
    one.close()


def test_an_idle_query_on_a_work_queue_sees_news_too(make_feed: Callable[..., Feed]) -> None:
    feed = make_feed(retention="workqueue")
    one = driver(feed)
    start = one.initial_offset()
    assert latest_offset(one, start, None).seq == 0
    feed.publish_numbers(1, 2)
    assert latest_offset(one, start, None).seq == 2
    one.close()


def test_a_lost_head_fails_the_batch_or_is_skipped_as_told(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    strict = driver(feed)
    start = strict.initial_offset()
    feed.call(f"STREAM.PURGE.{feed.name}", {"seq": 5})
    end = Offset(10, start.epoch)
    with pytest.raises(DataLossError, match="up to 4 messages from 1 on were removed"):
        strict.plan(start, end)
    strict.close()
    lax = driver(feed, failOnDataLoss="false")
    assert [tuple(piece)[:2] for piece in lax.plan(start, end)] == [(4, 10)]
    lax.close()


def test_one_consumer_waits_for_message_after_message(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Control.create_ephemeral
    made: list[str] = []

    def created(control: Control, **config: Any) -> ConsumerInfo:
        info = create(control, **config)
        made.append(info.name)
        return info

    monkeypatch.setattr(Control, "create_ephemeral", created)
    one = driver(feed)
    start = one.initial_offset()
    for number in range(1, 6):
        look = one.look(start)
        assert look.is_idle
        if number == 3:
            assert not one.wait(look, 0.05)
        feed.publish_numbers(number, number)
        assert one.wait(look, 2.0)
        start = latest_offset(one, start, None)
        assert start.seq == number
    assert len(made) == 1
    feed.publish_numbers(6, 9)  # several in one batch: the consumer stands at the first of them
    start = latest_offset(one, start, None)
    look = one.look(start)
    assert not one.wait(look, 0.05)
    feed.publish_numbers(10, 10)
    assert one.wait(look, 2.0)
    assert len(made) == 2
    one.close()
    assert feed.consumers() == 0
