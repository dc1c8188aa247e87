"""Pauses between attempts, and when their time is up."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.retries import Patience, backoff_s, pause_s


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(0, 0.5), (1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 5.0), (1_000_000, 5.0)],
)
def test_pauses_double_from_the_first_up_to_a_limit(failures: int, seconds: float) -> None:
    assert pause_s(failures, 0.5, 5.0) == seconds


@given(st.integers(1, 10_000), st.integers())
def test_pauses_double_up_to_their_cap_and_are_never_less_than_half(
    failures: int, seed: int
) -> None:
    pause = backoff_s(failures, 0.1, 5.0, Random(seed).random)
    whole = min(5.0, 0.1 * 2.0 ** min(failures - 1, 63))
    assert whole / 2 <= pause <= whole


def test_the_time_for_attempts_begins_at_the_first_failure_and_cuts_the_last_pause() -> None:
    clock, error = Clock(), RuntimeError("away")
    patience = Patience(4.0, clock, 1.0, 60.0)
    clock.now_s += 1000.0
    pauses = []
    for _ in range(3):
        pauses.append(patience.pause_s(error))
        clock.now_s += pauses[-1]
    assert pauses == [1.0, 2.0, 1.0]
    with pytest.raises(RuntimeError, match="away"):
        patience.pause_s(error)


def test_after_a_success_the_next_failure_is_the_first_again() -> None:
    clock, error = Clock(), RuntimeError("away")
    patience = Patience(2.0, clock, 1.0, 60.0)
    clock.now_s += patience.pause_s(error)
    patience.restart()
    clock.now_s += 5.0
    assert patience.pause_s(error) == 1.0
    assert patience.failures == 1


def test_no_time_is_no_further_attempt() -> None:
    with pytest.raises(RuntimeError, match="away"):
        Patience(0.0, Clock(), 1.0, 60.0).pause_s(RuntimeError("away"))


def test_those_who_wait_by_chance_come_apart() -> None:
    clock, error = Clock(), RuntimeError("away")
    first, other = (Patience(60.0, clock, 1.0, 5.0, Random(seed).random) for seed in (1, 2))
    pauses = [(first.pause_s(error), other.pause_s(error)) for _ in range(4)]
    assert all(one != another for one, another in pauses)
    assert all(0.5 <= each <= 5.0 for pair in pauses for each in pair)
