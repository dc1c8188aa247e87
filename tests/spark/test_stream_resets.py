"""A stream that was deleted and created again, or restored, is never taken for the one before."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigurationError
from headrace.spark.batches.driver import Driver, Look
from headrace.spark.offsets import DataLossError, Offset
from headrace.spark.options import parse_options

from .conftest import Feed
from .queries import driver, latest_offset, made_again, ranges, shown
from .virtual import Time


def test_a_stream_made_again_is_never_mistaken_for_the_old_one(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed)
    start = one.initial_offset()
    feed.call(f"STREAM.DELETE.{feed.name}")
    feed.create()
    feed.publish_numbers(1, 10)
    with pytest.raises(DataLossError, match="not the one this query read before"):
        latest_offset(one, start, None)
    one.close()


@pytest.mark.parametrize(
    "told", [{"onStreamReset": "earliest"}, {"failOnDataLoss": "false"}], ids=["said", "lax"]
)
def test_a_stream_made_again_is_read_from_its_beginning_as_told(
    feed: Feed, told: dict[str, str]
) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed, durable="d", **told)
    old = latest_offset(one, one.initial_offset(), None)
    made_again(feed, 60)
    first = latest_offset(one, old, 50)
    assert (first.seq, first.epoch != old.epoch) == (50, True)
    assert ranges(one, old, first) == [(0, 50)]
    assert shown(feed, "d") == (0, 60)
    second = latest_offset(one, first, 50)
    assert ranges(one, first, second) == [(50, 60)]
    assert latest_offset(one, second, 50) == second
    assert shown(feed, "d") == (60, 0)
    one.close()
    again = driver(feed, **told)  # a replay of either batch has the same rows
    assert ranges(again, old, first) == [(0, 50)]
    assert ranges(again, first, second) == [(50, 60)]
    again.close()


def test_a_stream_made_again_is_read_from_its_end_as_told(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed, onStreamReset="latest")
    old = latest_offset(one, one.initial_offset(), None)
    made_again(feed, 60)
    first = latest_offset(one, old, None)
    assert ranges(one, old, first) == []
    feed.publish_numbers(61, 70)
    assert ranges(one, old, first) == []
    assert ranges(one, first, latest_offset(one, first, None)) == [(60, 70)]
    one.close()


def test_a_batch_that_is_gone_with_its_stream_is_empty_or_fails_as_told(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one, strict = driver(feed, onStreamReset="earliest"), driver(feed)
    start = one.initial_offset()
    end = latest_offset(one, start, None)
    made_again(feed, 60)
    assert ranges(one, start, end) == []
    with pytest.raises(DataLossError, match="onStreamReset=earliest or latest"):
        ranges(strict, start, end)
    assert ranges(one, end, latest_offset(one, end, None)) == [(0, 60)]
    one.close()
    strict.close()


@pytest.mark.parametrize("epoch_known", [True, False])
def test_a_stream_made_again_while_a_query_waits_is_not_taken_for_the_old_one(
    feed: Feed, epoch_known: bool
) -> None:
    feed.publish_numbers(1, 10)

    class Meddled(Driver):
        def wait(self, look: Look, timeout_s: float) -> bool:
            made_again(feed, 20)
            return True

    one = Meddled(
        parse_options(
            {"stream": feed.name, "servers": feed.url, "onStreamReset": "earliest"}, streaming=True
        )
    )
    old = one.initial_offset()._replace(seq=10)
    first = latest_offset(one, old if epoch_known else old._replace(epoch=""), None)
    assert ranges(one, old, first) == [(0, 20)]
    one.close()


def test_available_now_ends_at_the_new_end_of_a_stream_made_again(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    one = driver(feed, onStreamReset="earliest")
    one.freeze_target()
    old = latest_offset(one, one.initial_offset(), 40)
    made_again(feed, 30)
    first = latest_offset(one, old, 40)
    assert ranges(one, old, first) == [(0, 30)]
    feed.publish_numbers(31, 40)
    assert latest_offset(one, first, 40) == first
    one.close()


def test_a_stream_that_lost_its_end_is_read_again_as_told(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed, onStreamReset="earliest")
    ahead = Offset(15, one.initial_offset().epoch)
    first = latest_offset(one, ahead, None)
    assert ranges(one, ahead, first) == [(0, 10)]
    one.close()


def test_a_checkpoint_without_an_epoch_goes_on(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed)
    old = Offset.from_dict({"seq": 4, "v": 1})
    end = latest_offset(one, old, None)
    assert ranges(one, old, end) == [(4, 10)]
    one.close()


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
    old = latest_offset(one, one.initial_offset(), None)
    feed.call(f"STREAM.DELETE.{feed.name}")
    strict = driver(feed)
    with pytest.raises(ConfigurationError, match="has no stream"):
        latest_offset(strict, old, None)
    strict.close()
    first = latest_offset(one, old, None)
    assert ranges(one, old, first) == [(0, 5)]
    assert len(waits) == 3
    one.close()
