"""Pauses between attempts, and when their time is up."""

from __future__ import annotations

import pytest

from headrace.retries import Patience, pause_s


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
