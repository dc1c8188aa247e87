"""A stream that was deleted and created again, or restored, is never taken for the one before."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headrace.errors import ConfigurationError
from headrace.spark.batches.driver import Driver, Look
from headrace.spark.offsets import DataLossError, Offset
from headrace.spark.options import parse_options

from .conftest import ON_BOTH, Feed
from .queries import copied, driver, latest_offset, made_again, put_back, ranges, shown
from .virtual import Time

pytestmark = ON_BOTH  # they keep or do not keep what tells one stream from another


def test_a_stream_made_again_is_never_mistaken_for_the_old_one(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed)
    old = latest_offset(one, one.initial_offset(), None)
    made_again(feed, 10)
    with pytest.raises(DataLossError, match="not the one this query read before"):
        latest_offset(one, old, None)
    one.close()
    lax = driver(feed, onStreamReset="continue")  # which is what the error says
    assert ranges(lax, old, latest_offset(lax, old, None)) == [(0, 10)]
    lax.close()


def test_a_copy_that_was_put_back_is_the_same_stream_and_that_is_said_once(
    feed: Feed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    feed.publish_numbers(1, 10)
    one = driver(feed, durable="d")
    start = one.initial_offset()
    middle = latest_offset(one, start, 6)
    end = latest_offset(one, middle, None)
    put_back(feed, copied(feed, tmp_path / "copy"))
    other = feed.control.head()[0].epoch != end.epoch  # nats-server keeps the time of its creation
    feed.publish_numbers(11, 20)
    caplog.set_level(logging.WARNING, "headrace.spark")
    for _ in range(2):
        one.look(end)
    assert sum("is the same one" in each for each in caplog.messages) == other
    assert ranges(one, middle, end) == [(6, 10)], "the batch that ran when it was put back"
    more = latest_offset(one, end, None)
    assert ranges(one, end, more) == [(10, 20)]
    again = driver(feed)
    assert ranges(again, start, middle) == [(0, 6)]
    assert ranges(again, end, more) == [(10, 20)]
    assert latest_offset(again, more, None) == more
    assert shown(feed, "d")[0] == 10
    one.close()
    again.close()


def test_a_stream_that_gave_sequences_to_other_messages_is_refused_or_read_behind_what_was_read(
    feed: Feed, tmp_path: Path
) -> None:
    feed.publish_numbers(1, 10)
    copy = copied(feed, tmp_path / "copy")
    feed.publish_numbers(11, 20)
    strict, told = driver(feed), driver(feed, onStreamReset="continue")
    start = strict.initial_offset()
    first = latest_offset(strict, start, 8)
    second = latest_offset(strict, first, 8)
    third = latest_offset(strict, second, 8)
    assert (first.seq, second.seq, third.seq) == (8, 16, 20)
    put_back(feed, copy)
    with pytest.raises(DataLossError, match="ends at sequence 10, before 16"):
        latest_offset(strict, second, None)
    feed.publish_numbers(111, 130)
    with pytest.raises(DataLossError, match=r"no message 16 stored at.*onStreamReset=continue"):
        latest_offset(strict, second, None)
    with pytest.raises(DataLossError, match="no message 20 stored at"):
        ranges(strict, second, third)
    assert ranges(strict, start, first) == [(0, 8)], "what comes before is as it was"
    # A batch that had begun has what is left of it, and the query goes on behind that.
    assert ranges(told, first, second) == [(8, 10)]
    assert ranges(told, second, third) == []
    fourth = latest_offset(told, second, None)
    assert ranges(told, second, fourth) == [(10, 30)]
    assert latest_offset(told, fourth, None) == fourth
    again = driver(feed)
    assert ranges(again, second, fourth) == [(10, 30)], "with the option or without"
    strict.close()
    told.close()
    again.close()


def test_a_stream_that_only_lost_its_end_is_read_on_from_what_comes(
    feed: Feed, tmp_path: Path
) -> None:
    feed.publish_numbers(1, 10)
    copy = copied(feed, tmp_path / "copy")
    feed.publish_numbers(11, 20)
    told = driver(feed, onStreamReset="continue")
    end = latest_offset(told, told.initial_offset(), None)
    put_back(feed, copy)
    first = latest_offset(told, end, None)
    assert ranges(told, end, first) == []
    feed.publish_numbers(111, 112)
    assert ranges(told, first, latest_offset(told, first, None)) == [(10, 12)]
    told.close()


@pytest.mark.parametrize("kept", [7, 14])
def test_where_the_message_read_last_is_gone_one_option_says_that_the_stream_is_the_same(
    feed: Feed, tmp_path: Path, kept: int
) -> None:
    feed.publish_numbers(1, 20)
    one = driver(feed, failOnDataLoss="true")
    start = one.initial_offset()
    end = latest_offset(one, start, 12)
    assert end.seq == 12
    feed.call(f"STREAM.PURGE.{feed.name}", {"seq": kept})
    feed.call(f"STREAM.MSG.DELETE.{feed.name}", {"seq": 12})
    assert latest_offset(one, end, None).seq == 20, "the same stream still goes on"
    put_back(feed, copied(feed, tmp_path / "copy"))
    elsewhere = end._replace(
        epoch="2020-01-01T00:00:00Z"
    )  # nats-server keeps the creation of a copy
    with pytest.raises(
        DataLossError, match=r"message 12, .*, is not there.*onStreamReset=continue"
    ):
        latest_offset(one, elsewhere, None)
    lax = {"onStreamReset": "continue", "failOnDataLoss": "false"}
    told = driver(feed, **lax)
    more = latest_offset(told, elsewhere, None)
    assert ranges(told, elsewhere, more) == [(max(12, kept - 1), 20)]
    unnoted = elsewhere._replace(stored_ns=0)  # there was no message at its end
    with pytest.raises(DataLossError, match=r"If it is the same one, set onStreamReset=continue"):
        latest_offset(one, unnoted, None)
    more = latest_offset(told, unnoted, None)
    assert ranges(told, unnoted, more) == [(max(12, kept - 1), 20)]
    one.close()
    told.close()


def test_where_no_time_was_noted_and_the_end_is_lost_no_option_helps(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    told = driver(feed, onStreamReset="continue")
    ahead = Offset(15, told.initial_offset().epoch)
    with pytest.raises(DataLossError, match=r"ends at sequence 10.*start again with a new") as said:
        latest_offset(told, ahead, None)
    assert "onStreamReset" not in str(said.value)
    told.close()


def test_a_query_that_has_read_nothing_begins_with_any_stream(feed: Feed) -> None:
    one = driver(feed)
    start = one.initial_offset()
    made_again(feed, 10)
    assert ranges(one, start, latest_offset(one, start, None)) == [(0, 10)]
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
    with pytest.raises(DataLossError, match="onStreamReset=continue"):
        ranges(strict, start, end)
    assert ranges(one, end, latest_offset(one, end, None)) == [(0, 60)]
    one.close()
    strict.close()


def test_a_stream_made_again_while_a_query_waits_is_not_taken_for_the_old_one(feed: Feed) -> None:
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
    old = one.end(one.look(one.initial_offset()), None)
    first = latest_offset(one, old, None)
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
