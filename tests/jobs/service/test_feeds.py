"""The marks of a feed: few, and one of them is always near the end that a stream has kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.jobs.service.feeds import Mark, with_mark

STEPS = st.lists(st.integers(1, 500), min_size=1, max_size=400)


def marks_after(steps: list[int]) -> tuple[Mark, ...]:
    marks: tuple[Mark, ...] = ()
    sequence = 0
    for step in steps:
        sequence += step
        marks = with_mark(marks, (sequence, sequence * 1000))
    return marks


@given(STEPS)
def test_marks_are_few_and_in_order_and_the_newest_is_there(steps: list[int]) -> None:
    marks = marks_after(steps)
    assert marks == tuple(sorted(marks))
    assert marks[-1] == (sum(steps), sum(steps) * 1000)
    assert len(marks) <= 2 * sum(steps).bit_length() + 2


@given(STEPS, st.data())
def test_a_lost_end_leaves_a_mark_that_is_not_much_further_back(
    steps: list[int], data: st.DataObject
) -> None:
    end = sum(steps)
    lost = data.draw(st.integers(1, end))
    kept = [sequence for sequence, _ in marks_after(steps) if sequence <= end - lost]
    known = max(kept, default=0)
    assert end - known <= 8 * lost + 8 * max(steps)
