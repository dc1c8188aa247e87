from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

import peers
from headrace.errors import ConfigurationError, ConnectFailedError
from headrace.spark.driver import Driver
from headrace.spark.link import Link
from headrace.spark.offsets import DataLossError, Offset
from headrace.spark.options import parse_options
from waiting import elapse_here, until_here

from .conftest import Feed
from .virtual import Time


def driver(feed: Feed, **options: str) -> Driver:
    everything = {"stream": feed.name, "servers": feed.url, "pollTimeout": "50ms", **options}
    return Driver(parse_options(everything, streaming=True))


def shown(feed: Feed, name: str) -> tuple[int, int]:
    info = feed.control.consumer_info(name)
    assert info is not None
    return info.ack_floor.stream_seq or info.delivered.stream_seq, info.num_pending


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


def test_latest_is_remembered_by_the_durable_across_processes(feed: Feed) -> None:
    feed.publish_numbers(1, 5)
    first = driver(feed, startingOffsets="latest", durable="d")
    assert first.initial_offset().seq == 5
    first.close()
    feed.publish_numbers(6, 9)
    second = driver(feed, startingOffsets="latest", durable="d")
    assert second.initial_offset().seq == 5
    second.close()


def test_progress_is_shown_when_the_next_offset_is_asked_for(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    one = driver(feed, durable="d")
    epoch = one.initial_offset().epoch
    assert shown(feed, "d") == (0, 100)
    assert one.latest_offset(Offset(0, epoch), 40).seq == 40
    assert shown(feed, "d") == (0, 100)
    assert one.latest_offset(Offset(40, epoch), None).seq == 100
    assert shown(feed, "d") == (40, 60)
    assert one.latest_offset(Offset(100, epoch), None).seq == 100
    assert shown(feed, "d") == (100, 0)
    one.close()


def test_a_query_begun_anew_takes_its_durable_back_to_the_start(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    first = driver(feed, durable="d", startingOffsets="50")
    start = first.initial_offset()
    first.latest_offset(Offset(80, start.epoch), None)
    assert shown(feed, "d") == (80, 20)
    first.close()
    anew = driver(feed, durable="d", startingOffsets="11")
    assert anew.initial_offset().seq == 10
    assert shown(feed, "d") == (10, 90)
    anew.close()


def test_progress_is_made_up_for_by_recreating_where_a_server_cannot_reset(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    one = driver(feed, durable="d")
    epoch = one.initial_offset().epoch
    assert one._control is not None
    one._control._resets = False
    one.latest_offset(Offset(70, epoch), None)
    assert shown(feed, "d") == (70, 30)
    one.close()


def test_somebody_else_s_durable_is_not_touched(feed: Feed) -> None:
    feed.publish_numbers(1, 3)
    config = {"durable_name": "theirs", "ack_policy": "explicit"}
    feed.call(f"CONSUMER.CREATE.{feed.name}.theirs", {"stream_name": feed.name, "config": config})
    one = driver(feed, durable="theirs")
    with pytest.raises(ConfigurationError, match="was not made by a Spark query"):
        one.initial_offset()
    one.close()


def test_a_durable_has_one_owner_and_the_query_that_lost_it_is_told(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    first, second = driver(feed, durable="d"), driver(feed, durable="d")
    start = first.initial_offset()
    first.latest_offset(start._replace(seq=40), None)
    assert shown(feed, "d") == (40, 60)
    second.latest_offset(start._replace(seq=70), None)
    with pytest.raises(ConfigurationError, match="another query has started with durable 'd'"):
        first.latest_offset(start._replace(seq=90), None)
    assert shown(feed, "d") == (70, 30)
    second.latest_offset(start._replace(seq=80), None)
    assert shown(feed, "d") == (80, 20)
    first.close()
    second.close()


def test_a_durable_counts_the_subjects_that_are_read_now(feed: Feed) -> None:
    feed.publish([f"k{n % 10}" for n in range(100)])
    first = driver(feed, durable="d", subjects=f"{feed.name}.k1")
    start = first.initial_offset()
    first.latest_offset(start._replace(seq=50), None)
    assert shown(feed, "d") == (50, 5)
    first.close()
    for subjects, pending in ((f"{feed.name}.k1,{feed.name}.k2", 10), (">", 50)):
        again = driver(feed, durable="d", subjects=subjects)
        again.latest_offset(start._replace(seq=50), None)
        assert shown(feed, "d") == (50, pending)
        again.close()


def test_a_durable_deleted_under_a_query_is_made_again_at_once(
    feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    feed.publish_numbers(1, 100)
    one = driver(feed, durable="d", requestTimeout="60s")  # longer than a test may take
    start = one.initial_offset()
    feed.control.delete_consumer("d")
    one.latest_offset(start._replace(seq=40), None)
    assert shown(feed, "d") == (40, 60)
    assert "consumer 'd' of stream" in caplog.text
    one.close()


def test_a_durable_is_refused_where_it_would_decide_what_is_kept(
    make_feed: Callable[..., Feed],
) -> None:
    feed = make_feed(retention="workqueue")
    one = driver(feed, durable="d")
    with pytest.raises(ConfigurationError, match="retention limits"):
        one.initial_offset()
    one.close()


def test_available_now_offers_nothing_that_came_later(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed)
    one.freeze_target()
    feed.publish_numbers(11, 20)
    epoch = one.initial_offset().epoch
    assert one.latest_offset(Offset(0, epoch), 6).seq == 6
    assert one.latest_offset(Offset(6, epoch), 6).seq == 10
    assert one.latest_offset(Offset(10, epoch), 6).seq == 10
    one.close()


def test_an_idle_query_waits_and_wakes_when_a_message_comes(feed: Feed) -> None:
    feed.publish_numbers(1, 3)
    one = driver(feed, pollTimeout="10s")
    start = Offset(3, one.initial_offset().epoch)
    publisher = threading.Timer(0.2, lambda: other.publish_numbers(4, 5))
    other = Feed.__new__(Feed)
    other.__dict__.update(feed.__dict__)
    other.link = feed.connect()
    other._inbox, other._sid = other.link.subscribe()
    publisher.start()
    began = time.monotonic()
    assert one.latest_offset(start, None).seq in (4, 5)
    assert 0.1 < time.monotonic() - began < 5.0
    publisher.join()
    began = time.monotonic()
    one._options = parse_options({"stream": feed.name, "pollTimeout": "100ms"})
    assert one.latest_offset(Offset(5, start.epoch), None).seq == 5
    assert time.monotonic() - began >= 0.09
    one.close()
    other.link.close()
    assert feed.consumers() == 0


def test_an_idle_query_on_a_work_queue_sees_news_too(make_feed: Callable[..., Feed]) -> None:
    feed = make_feed(retention="workqueue")
    one = driver(feed)
    start = one.initial_offset()
    assert one.latest_offset(start, None).seq == 0
    feed.publish_numbers(1, 2)
    assert one.latest_offset(start, None).seq == 2
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


BUCKET = {"max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "discard": "new"}


@pytest.mark.parametrize("max_age_s", [0, 3600])
def test_values_that_newer_ones_replaced_are_no_loss(
    make_feed: Callable[..., Feed], max_age_s: int
) -> None:
    feed = make_feed(**BUCKET, max_age=max_age_s * 1_000_000_000)
    feed.publish(["a", "b", "c"])
    one = driver(feed)
    start = one.initial_offset()
    end = one.latest_offset(start, None)
    assert (start.seq, end.seq) == (0, 3)
    feed.publish(["a", "b", "c", "a"])  # the bucket begins at sequence 5 now
    assert feed.control.head()[0].first_seq == 5
    assert [(piece.lo, piece.hi) for piece in one.plan(start, end)] == []
    after = one.latest_offset(end, None)
    assert after.seq == 7
    assert [(piece.lo, piece.hi) for piece in one.plan(end, after)] == [(4, 7)]
    one.close()
    # A process that starts again knows only its checkpoint.
    again = driver(feed)
    kept = [Offset.from_dict(offset.to_dict()) for offset in (end, after)]
    assert [(piece.lo, piece.hi) for piece in again.plan(*kept)] == [(4, 7)]
    assert ("since" in after.to_dict()) == (max_age_s > 0)
    again.close()


def test_values_that_a_purge_or_a_roll_up_replaced_are_no_loss(
    make_feed: Callable[..., Feed],
) -> None:
    feed = make_feed(**BUCKET | {"max_msgs_per_subject": 5})
    feed.publish(["a", "a", "b", "b"])
    one = driver(feed)
    start = one.initial_offset()
    end = one.latest_offset(start, None)
    feed.call(f"STREAM.PURGE.{feed.name}", {"filter": f"{feed.name}.a"})
    assert [(piece.lo, piece.hi) for piece in one.plan(start, end)] == [(2, 4)]
    one.close()


def test_values_that_may_have_aged_before_they_were_read_are_loss(
    make_feed: Callable[..., Feed],
) -> None:
    feed = make_feed(**BUCKET, max_age=100_000_000)
    feed.publish(["a", "b", "c"])
    one = driver(feed)
    start = one.initial_offset()
    end = one.latest_offset(start, None)
    until_here(lambda: feed.control.head()[0].first_seq == 4, "nothing aged")
    with pytest.raises(DataLossError, match="up to 3 messages from 1 on were removed"):
        one.plan(start, end)
    one.close()


def test_values_beyond_a_limit_of_size_are_loss(make_feed: Callable[..., Feed]) -> None:
    feed = make_feed(max_msgs_per_subject=1, max_msgs=5)
    feed.publish([f"k{n}" for n in range(5)])
    one = driver(feed)
    start = one.initial_offset()
    end = one.latest_offset(start, None)
    feed.publish([f"k{n}" for n in range(5, 8)])
    with pytest.raises(DataLossError, match="up to 3 messages from 1 on were removed"):
        one.plan(start, end)
    one.close()


def test_a_stream_made_again_is_never_mistaken_for_the_old_one(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed)
    start = one.initial_offset()
    feed.call(f"STREAM.DELETE.{feed.name}")
    feed.create()
    feed.publish_numbers(1, 10)
    with pytest.raises(DataLossError, match="not the one this query read before"):
        one.latest_offset(start, None)
    one.close()


def made_again(feed: Feed, messages: int) -> None:
    feed.call(f"STREAM.DELETE.{feed.name}")
    feed.create()
    feed.publish_numbers(1, messages)


def ranges(one: Driver, start: Offset, end: Offset) -> list[tuple[int, int]]:
    kept = [Offset.from_dict(offset.to_dict()) for offset in (start, end)]
    return [(piece.lo, piece.hi) for piece in one.plan(*kept)]


@pytest.mark.parametrize(
    "told", [{"onStreamReset": "earliest"}, {"failOnDataLoss": "false"}], ids=["said", "lax"]
)
def test_a_stream_made_again_is_read_from_its_beginning_as_told(
    feed: Feed, told: dict[str, str]
) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed, durable="d", **told)
    old = one.latest_offset(one.initial_offset(), None)
    made_again(feed, 60)
    first = one.latest_offset(old, 50)
    assert (first.seq, first.epoch != old.epoch) == (50, True)
    assert ranges(one, old, first) == [(0, 50)]
    assert shown(feed, "d") == (0, 60)
    second = one.latest_offset(first, 50)
    assert ranges(one, first, second) == [(50, 60)]
    assert one.latest_offset(second, 50) == second
    assert shown(feed, "d") == (60, 0)
    one.close()
    again = driver(feed, **told)  # a replay of either batch has the same rows
    assert ranges(again, old, first) == [(0, 50)]
    assert ranges(again, first, second) == [(50, 60)]
    again.close()


def test_a_stream_made_again_is_read_from_its_end_as_told(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed, onStreamReset="latest")
    old = one.latest_offset(one.initial_offset(), None)
    made_again(feed, 60)
    first = one.latest_offset(old, None)
    assert ranges(one, old, first) == []
    feed.publish_numbers(61, 70)
    assert ranges(one, old, first) == []
    assert ranges(one, first, one.latest_offset(first, None)) == [(60, 70)]
    one.close()


def test_a_batch_that_is_gone_with_its_stream_is_empty_or_fails_as_told(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one, strict = driver(feed, onStreamReset="earliest"), driver(feed)
    start = one.initial_offset()
    end = one.latest_offset(start, None)
    made_again(feed, 60)
    assert ranges(one, start, end) == []
    with pytest.raises(DataLossError, match="onStreamReset=earliest or latest"):
        ranges(strict, start, end)
    assert ranges(one, end, one.latest_offset(end, None)) == [(0, 60)]
    one.close()
    strict.close()


def test_available_now_ends_at_the_new_end_of_a_stream_made_again(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    one = driver(feed, onStreamReset="earliest")
    one.freeze_target()
    old = one.latest_offset(one.initial_offset(), 40)
    made_again(feed, 30)
    first = one.latest_offset(old, 40)
    assert ranges(one, old, first) == [(0, 30)]
    feed.publish_numbers(31, 40)
    assert one.latest_offset(first, 40) == first
    one.close()


def test_a_stream_that_lost_its_end_is_read_again_as_told(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed, onStreamReset="earliest")
    ahead = Offset(15, one.initial_offset().epoch)
    first = one.latest_offset(ahead, None)
    assert ranges(one, ahead, first) == [(0, 10)]
    one.close()


def test_a_checkpoint_without_an_epoch_goes_on(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed)
    old = Offset.from_dict({"seq": 4, "v": 1})
    end = one.latest_offset(old, None)
    assert ranges(one, old, end) == [(4, 10)]
    one.close()


def test_a_server_that_is_away_for_a_minute_does_not_end_the_query(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    time_ = Time()

    def connect() -> Link:
        if 0 < time_.clock() < 60.0:
            raise ConnectFailedError("cannot reach a NATS server")
        return feed.connect()

    wanted = parse_options({"stream": feed.name, "servers": feed.url}, streaming=True)
    one = Driver(wanted, connect, time_.patience)
    start = one.initial_offset()
    assert one._control is not None
    one._control.link._sock.shutdown(2)
    assert one.latest_offset(start, None).seq == 10
    assert 60.0 < time_.clock() < 70.0
    one.close()


def test_a_server_that_stays_away_ends_the_query_when_its_time_is_up(feed: Feed) -> None:
    time_ = Time()
    links = [feed.connect()]

    def connect() -> Link:
        if not links:
            raise ConnectFailedError("cannot reach a NATS server")
        return links.pop()

    options = {"stream": feed.name, "servers": feed.url, "reconnectTimeout": "30s"}
    one = Driver(parse_options(options, streaming=True), connect, time_.patience)
    start = one.initial_offset()
    one.close()
    with pytest.raises(ConnectFailedError):
        one.latest_offset(start, None)
    assert time_.clock() == pytest.approx(30.0)


def test_a_query_that_never_reached_its_server_is_not_kept_waiting() -> None:
    time_ = Time()

    def connect() -> Link:
        raise ConnectFailedError("cannot reach a NATS server")

    one = Driver(parse_options({"stream": "S"}, streaming=True), connect, time_.patience)
    with pytest.raises(ConnectFailedError):
        one.initial_offset()
    assert time_.clock() < 1.0


def test_a_stream_that_is_deleted_is_waited_for_where_a_new_one_is_wanted(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    time_ = Time()
    waits = time_.slept

    class Maker(Time):
        def sleep(self, seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 3:
                feed.create()
                feed.publish_numbers(1, 5)

    options = {"stream": feed.name, "servers": feed.url, "onStreamReset": "earliest"}
    one = Driver(parse_options(options, streaming=True), None, Maker().patience)
    old = one.latest_offset(one.initial_offset(), None)
    feed.call(f"STREAM.DELETE.{feed.name}")
    strict = driver(feed)
    with pytest.raises(ConfigurationError, match="has no stream"):
        strict.latest_offset(old, None)
    strict.close()
    first = one.latest_offset(old, None)
    assert ranges(one, old, first) == [(0, 5)]
    assert len(waits) == 3
    one.close()


@pytest.mark.peer
def test_a_killed_server_is_waited_for_until_it_is_back(
    nats_server: Callable[..., peers.ServerProcess], caplog: pytest.LogCaptureFixture
) -> None:
    server = nats_server()
    feed = Feed(server.url)
    feed.publish_numbers(1, 10)
    one = driver(feed)
    start = one.initial_offset()
    server.kill()
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(one.latest_offset(start, None).seq))
    asking.start()
    until_here(lambda: "waiting up to" in caplog.text, "nothing was said")
    server.start_again()
    asking.join()
    assert found == [10]
    assert f"for stream '{feed.name}': cannot reach a NATS server" in caplog.text
    one.close()
    feed.link.close()


def batches(one: Driver, limit: int) -> list[tuple[int, int]]:
    """The ranges of the batches up to the stream's end, planned as Spark does."""
    one.freeze_target()
    start = one.initial_offset()
    found = []
    while (end := one.latest_offset(start, limit)) != start:
        pieces = one.plan(start, end)
        found.append((pieces[0].lo, pieces[-1].hi) if pieces else (end.seq, end.seq))
        start = end
    return found


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_few_messages_among_many_sequences_are_one_batch(
    make_feed: Callable[..., Feed], retention: str
) -> None:
    feed = make_feed(retention=retention)
    feed.publish(["keep" if n % 118 == 59 else "gone" for n in range(6000)])
    feed.call(f"STREAM.PURGE.{feed.name}", {"filter": f"{feed.name}.gone"})
    assert feed.control.head()[0].messages == 51
    one = driver(feed)
    assert batches(one, 100) == [(59, 6000)]
    one.close()


def test_a_limit_counts_messages_and_not_sequences(feed: Feed) -> None:
    feed.publish(["keep" if n % 10 == 0 else "gone" for n in range(6000)])
    feed.call(f"STREAM.PURGE.{feed.name}", {"filter": f"{feed.name}.gone"})
    one = driver(feed)
    ends = [0, *(hi for _, hi in batches(one, 250))]
    counts = [sum(1 for n in range(lo, hi) if n % 10 == 0) for lo, hi in pairwise(ends)]
    assert sum(counts) == 600
    assert len(counts) == 3
    assert max(counts) <= 250
    one.close()
    assert feed.consumers() == 0


def test_a_limit_counts_the_messages_of_the_subjects_that_are_read(feed: Feed) -> None:
    feed.publish([f"k{n % 50}" for n in range(5000)])
    one = driver(feed, subjects=f"{feed.name}.k1,{feed.name}.k2")
    assert batches(one, 250) == [(0, 5000)]
    one.close()
    rare = driver(feed, subjects=f"{feed.name}.k7")
    assert batches(rare, 1000) == [(7, 5000)]
    rare.close()


def test_tasks_share_messages_and_not_sequences(feed: Feed) -> None:
    feed.publish(["keep" if n < 1000 else "gone" for n in range(5000)])
    feed.call(f"STREAM.PURGE.{feed.name}", {"filter": f"{feed.name}.gone"})
    one = driver(feed, minMessagesPerTask="200", maxTasks="3")
    start = one.initial_offset()
    pieces = one.plan(start, one.latest_offset(start, None))
    assert [piece.hi for piece in pieces[:-1]] == sorted(piece.lo for piece in pieces[1:])
    assert len(pieces) == 3
    assert all(250 <= min(piece.hi, 1000) - piece.lo <= 450 for piece in pieces)
    one.close()


def test_a_range_without_messages_has_no_tasks(feed: Feed) -> None:
    feed.publish_numbers(1, 50)
    one = driver(feed)
    start = one.initial_offset()
    end = one.latest_offset(start, None)
    feed.call(f"STREAM.PURGE.{feed.name}", {"filter": f"{feed.name}.n", "keep": 1})
    lax = driver(feed, failOnDataLoss="false")
    assert ranges(lax, start, end._replace(seq=49)) == []
    assert ranges(lax, start, end) == [(49, 50)]
    one.close()
    lax.close()


def test_a_broken_connection_of_the_driver_is_replaced(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed, durable="d")
    start = one.initial_offset()
    assert one._control is not None
    one._control.link._sock.shutdown(2)
    assert one.latest_offset(start, None).seq == 10
    one.close()
