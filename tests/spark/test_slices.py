from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.slices import (
    Count,
    end_of_batch,
    share_out,
    split_by_count,
    split_by_partition,
    split_by_sequence,
)

bounds = st.tuples(
    st.integers(min_value=0, max_value=10**9), st.integers(min_value=0, max_value=10**7)
)
counts = st.integers(min_value=1, max_value=64)


@given(bounds, counts, st.integers(min_value=1, max_value=10**6))
def test_slices_by_sequence_are_the_range_without_gap_or_overlap(
    where: tuple[int, int], max_tasks: int, min_messages: int
) -> None:
    lo, hi = where[0], where[0] + where[1]
    slices = split_by_sequence(lo, hi, max_tasks=max_tasks, min_messages=min_messages)
    if lo == hi:
        assert slices == []
        return
    assert slices[0].lo == lo
    assert slices[-1].hi == hi
    assert all(a.hi == b.lo for a, b in pairwise(slices))
    assert all(s.width > 0 and s.partitions == () for s in slices)
    assert len(slices) <= max_tasks
    if len(slices) > 1:
        assert min(s.width for s in slices) >= min_messages
        assert max(s.width for s in slices) - min(s.width for s in slices) <= 1


@given(bounds, counts, counts)
def test_slices_by_partition_each_read_the_range_and_share_the_partitions(
    where: tuple[int, int], partitions: int, max_tasks: int
) -> None:
    lo, hi = where[0], where[0] + where[1]
    slices = split_by_partition(lo, hi, partitions=partitions, max_tasks=max_tasks)
    if lo == hi:
        assert slices == []
        return
    assert all((s.lo, s.hi) == (lo, hi) for s in slices)
    assert len(slices) == min(partitions, max_tasks)
    if len(slices) > 1:
        owned = sorted(p for s in slices for p in s.partitions)
        assert owned == list(range(partitions))
    else:
        assert slices[0].partitions == ()
    assert slices == split_by_partition(lo, hi, partitions=partitions, max_tasks=max_tasks)


def counter(held: list[int], asked: list[int] | None = None) -> Count:
    """Counts the messages of a stream that holds these sequences."""

    def count(lo: int, hi: int) -> int:
        if asked is not None:
            asked.append(hi)
        return bisect_right(held, hi) - bisect_right(held, lo)

    return count


sparse = st.lists(st.integers(min_value=1, max_value=5000), unique=True).map(sorted)


@given(sparse, st.integers(min_value=0, max_value=5000), st.integers(min_value=1, max_value=500))
def test_a_batch_has_nearly_as_many_messages_as_it_may_and_never_more(
    held: list[int], lo: int, limit: int
) -> None:
    last = 5000
    count = counter(held)
    end = end_of_batch(lo, last, limit, count)
    assert lo <= end <= last
    assert count(lo, end) <= limit
    if count(lo, last) <= limit:
        assert end == last
    else:
        assert count(lo, end) >= max(1, limit * 7 // 8)


def test_few_messages_among_many_sequences_are_one_batch() -> None:
    held = list(range(1000, 60_001, 1180))
    assert end_of_batch(0, 60_000, 1000, counter(held)) == 60_000


def test_where_the_messages_lie_is_found_with_few_questions() -> None:
    asked: list[int] = []
    evenly = list(range(1, 60_000_000, 30))
    end = end_of_batch(0, 60_000_000, 100_000, counter(evenly, asked))
    assert 2_500_000 < end <= 3_000_000
    assert len(asked) <= 4
    asked.clear()
    crowded = [*range(1, 10), *range(59_000_000, 60_000_000)]
    end = end_of_batch(0, 60_000_000, 100_000, counter(crowded, asked))
    assert 59_080_000 < end <= 59_100_000
    assert len(asked) <= 30


@given(sparse, st.integers(min_value=1, max_value=300), st.integers(min_value=1, max_value=20))
def test_slices_by_count_are_the_range_and_share_its_messages(
    held: list[int], min_messages: int, max_tasks: int
) -> None:
    count = counter(held)
    slices = split_by_count(10, 4990, max_tasks=max_tasks, min_messages=min_messages, count=count)
    assert slices[0].lo == 10
    assert slices[-1].hi == 4990
    assert all(a.hi == b.lo for a, b in pairwise(slices))
    messages = count(10, 4990)
    assert 1 <= len(slices) <= max(1, min(max_tasks, messages // min_messages))
    if len(slices) > 1 and messages < 4000:
        shares = [count(s.lo, s.hi) for s in slices]
        assert max(shares) <= 2 * messages // len(slices) + len(slices)


def test_an_empty_range_has_no_slice_by_count() -> None:
    assert split_by_count(7, 7, max_tasks=4, min_messages=1, count=counter([])) == []


def test_a_dense_range_is_not_counted_more_than_once() -> None:
    asked: list[int] = []
    count = counter(list(range(1, 1001)), asked)
    slices = split_by_count(0, 1000, max_tasks=4, min_messages=100, count=count)
    assert [s.width for s in slices] == [250] * 4
    assert len(asked) == 1
    asked.clear()
    assert len(split_by_count(0, 1000, max_tasks=1, min_messages=100, count=count)) == 1
    assert asked == []


weights = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 10**7), min_size=1)


@given(st.integers(1, 10**7), weights)
def test_shares_are_the_total_at_most_and_everybody_gets_some_of_enough(
    total: int, given: dict[str, int]
) -> None:
    shares = share_out(total, given)
    assert shares.keys() == given.keys()
    assert 0 <= sum(shares.values()) <= total
    wanting = [name for name in given if given[name]]
    assert all(shares[name] == 0 for name in given if name not in wanting)
    assert sum(shares[name] > 0 for name in wanting) == min(len(wanting), total)


def test_shares_are_in_proportion() -> None:
    assert share_out(100, {"a": 300, "b": 100}) == {"a": 75, "b": 25}
    assert share_out(2, {"a": 5, "b": 1, "c": 9}) == {"a": 1, "b": 0, "c": 1}
