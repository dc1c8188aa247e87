from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.planning import split_by_partition, split_by_sequence

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
