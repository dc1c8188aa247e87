"""Finds the one of many that makes something fail, by halves. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.failures.poison import first_failing


@given(st.integers(1, 5000), st.data())
def test_the_first_failing_message_is_found_with_as_few_reads_as_halves(
    size: int, data: st.DataObject
) -> None:
    bad = data.draw(st.sets(st.integers(1, size), max_size=5))
    asked: list[tuple[int, int]] = []

    def fails(low: int, high: int) -> bool:
        asked.append((low, high))
        return any(low <= each <= high for each in bad)

    assert first_failing(1, size, fails) == min(bad, default=None)
    assert len(asked) <= size.bit_length() + 2


def test_what_fails_only_together_is_nobody_s_failure() -> None:
    assert first_failing(1, 8, lambda low, high: high - low >= 3) is None
    assert first_failing(5, 4, lambda low, high: True) is None
