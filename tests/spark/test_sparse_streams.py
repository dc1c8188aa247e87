"""Limits and tasks count messages where a stream has gaps or a query reads few subjects."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from headrace.spark.batches.driver import Driver

from .conftest import Feed
from .queries import driver, latest_offset, ranges


def batches(one: Driver, limit: int) -> list[tuple[int, int]]:
    """The ranges of the batches up to the stream's end, planned as Spark does."""
    one.freeze_target()
    start = one.initial_offset()
    found = []
    while (end := latest_offset(one, start, limit)) != start:
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
    pieces = one.plan(start, latest_offset(one, start, None))
    assert [piece.hi for piece in pieces[:-1]] == sorted(piece.lo for piece in pieces[1:])
    assert len(pieces) == 3
    assert all(250 <= min(piece.hi, 1000) - piece.lo <= 450 for piece in pieces)
    one.close()


def test_a_range_without_messages_has_no_tasks(feed: Feed) -> None:
    feed.publish_numbers(1, 50)
    one = driver(feed)
    start = one.initial_offset()
    end = latest_offset(one, start, None)
    feed.call(f"STREAM.PURGE.{feed.name}", {"filter": f"{feed.name}.n", "keep": 1})
    lax = driver(feed, failOnDataLoss="false")
    assert ranges(lax, start, end._replace(seq=49)) == []
    assert ranges(lax, start, end) == [(49, 50)]
    one.close()
    lax.close()
