from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.timers import Timer, TimerQueue


def test_timers_run_in_order_of_deadline_and_equal_ones_in_order_of_asking() -> None:
    timers = TimerQueue()
    ran: list[str] = []
    timers.call_at(20, lambda: ran.append("late"))
    timers.call_at(10, lambda: ran.append("first"))
    timers.call_at(10, lambda: ran.append("second"))
    assert timers.next_deadline_ns() == 10
    assert timers.run_due(9) == 0
    assert timers.run_due(20) == 3
    assert ran == ["first", "second", "late"]
    assert timers.next_deadline_ns() is None


def test_a_cancelled_timer_does_not_run_and_cancelling_again_does_nothing() -> None:
    timers = TimerQueue()
    ran: list[str] = []
    timer = timers.call_at(10, lambda: ran.append("cancelled"))
    timers.call_at(20, lambda: ran.append("kept"))
    timer.cancel()
    timer.cancel()
    assert len(timers) == 1
    assert timers.next_deadline_ns() == 20
    timers.run_due(30)
    timer.cancel()
    assert ran == ["kept"]
    assert len(timers) == 0


def test_a_callback_that_always_asks_for_now_does_not_keep_the_caller() -> None:
    timers = TimerQueue()
    count = 0

    def again() -> None:
        nonlocal count
        count += 1
        timers.call_at(0, again)

    timers.call_at(0, again)
    assert timers.run_due(5) == 1
    assert timers.run_due(5) == 1
    assert count == 2


def test_a_timer_may_cancel_one_that_is_due_at_the_same_time() -> None:
    timers = TimerQueue()
    ran: list[str] = []
    timers.call_at(1, lambda: second.cancel())
    second = timers.call_at(2, lambda: ran.append("second"))
    assert timers.run_due(10) == 1
    assert ran == []
    assert len(timers) == 0


def test_a_broken_callback_takes_no_other_with_it() -> None:
    timers = TimerQueue()
    ran: list[str] = []

    def broken() -> None:
        raise ZeroDivisionError

    timers.call_at(1, broken)
    timers.call_at(2, lambda: ran.append("after"))
    with pytest.raises(ZeroDivisionError):
        timers.run_due(10)
    assert timers.run_due(10) == 1
    assert ran == ["after"]


def test_many_cancelled_timers_are_swept_out() -> None:
    timers = TimerQueue()
    handles = [timers.call_at(10, lambda: None) for _ in range(5000)]
    for handle in handles[:-1]:
        handle.cancel()
    assert len(timers) == 1
    assert len(timers._heap) < 3000
    assert timers.run_due(10) == 1


@given(st.lists(st.tuples(st.sampled_from(["add", "cancel", "run"]), st.integers(0, 30))))
def test_timers_run_like_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    timers = TimerQueue()
    ran: list[int] = []
    expected: list[int] = []
    waiting: dict[int, tuple[int, Timer]] = {}
    now = 0
    for number, (step, value) in enumerate(steps):
        if step == "add":
            timer: Timer = timers.call_at(value, partial(ran.append, number))
            waiting[number] = (value, timer)
        elif step == "cancel" and waiting:
            _value, timer = waiting.pop(list(waiting)[value % len(waiting)])
            timer.cancel()
        elif step == "run":
            now = max(now, value)
            due = sorted(
                (deadline, number) for number, (deadline, _) in waiting.items() if deadline <= now
            )
            expected += [number for _, number in due]
            assert timers.run_due(now) == len(due)
            for _, number_due in due:
                del waiting[number_due]
        assert ran == expected
        assert len(timers) == len(waiting)
        deadlines = [deadline for deadline, _ in waiting.values()]
        assert timers.next_deadline_ns() == (min(deadlines) if deadlines else None)


def test_what_there_is_no_time_for_is_due_the_next_time() -> None:
    timers = TimerQueue()
    ran: list[int] = []
    handles = [timers.call_at(number // 2, partial(ran.append, number)) for number in range(10)]
    assert timers.run_due(20, lambda: len(ran) >= 4) == 4
    assert timers.next_deadline_ns() == 2
    handles[4].cancel()
    assert len(timers) == 5
    timers.call_at(2, partial(ran.append, 99))
    assert timers.run_due(20, lambda: len(ran) >= 6) == 2
    assert timers.run_due(20) == 4
    assert ran == [0, 1, 2, 3, 5, 99, 6, 7, 8, 9]
    assert len(timers) == 0
