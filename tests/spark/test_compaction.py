"""What newer messages replace is no loss to a query; what limits of age and size remove is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.spark.offsets import DataLossError, Offset
from waiting import until_here

from .conftest import Feed
from .queries import driver, latest_offset

BUCKET = {"max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "discard": "new"}


@pytest.mark.parametrize("max_age_s", [0, 3600])
def test_values_that_newer_ones_replaced_are_no_loss(
    make_feed: Callable[..., Feed], max_age_s: int
) -> None:
    feed = make_feed(**BUCKET, max_age=max_age_s * 1_000_000_000)
    feed.publish(["a", "b", "c"])
    one = driver(feed)
    start = one.initial_offset()
    end = latest_offset(one, start, None)
    assert (start.seq, end.seq) == (0, 3)
    feed.publish(["a", "b", "c", "a"])  # the bucket begins at sequence 5 now
    assert feed.control.head()[0].first_seq == 5
    assert [(piece.lo, piece.hi) for piece in one.plan(start, end)] == []
    after = latest_offset(one, end, None)
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
    end = latest_offset(one, start, None)
    feed.call(f"STREAM.PURGE.{feed.name}", {"filter": f"{feed.name}.a"})
    assert [(piece.lo, piece.hi) for piece in one.plan(start, end)] == [(2, 4)]
    one.close()


def test_values_that_may_have_aged_before_they_were_read_are_loss(
    make_feed: Callable[..., Feed],
) -> None:
    feed = make_feed(**BUCKET, max_age=100_000_000)
    feed.publish(["a", "b", "c"])
    one = driver(feed)
    epoch = feed.control.head()[0].epoch
    start, end = Offset(0, epoch), Offset(3, epoch)
    until_here(lambda: feed.control.head()[0].first_seq == 4, "nothing aged")
    with pytest.raises(DataLossError, match="up to 3 messages from 1 on were removed"):
        one.plan(start, end)
    one.close()


def test_values_beyond_a_limit_of_size_are_loss(make_feed: Callable[..., Feed]) -> None:
    feed = make_feed(max_msgs_per_subject=1, max_msgs=5)
    feed.publish([f"k{n}" for n in range(5)])
    one = driver(feed)
    start = one.initial_offset()
    end = latest_offset(one, start, None)
    feed.publish([f"k{n}" for n in range(5, 8)])
    with pytest.raises(DataLossError, match="up to 3 messages from 1 on were removed"):
        one.plan(start, end)
    one.close()
