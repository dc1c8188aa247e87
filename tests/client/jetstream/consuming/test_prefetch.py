"""How much may be ahead of a handler, and how old it is: pure."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.jetstream.consuming.prefetch import GROWTH, Ages, Pace

TIMES = st.floats(0, 40)


def test_nothing_is_ahead_before_it_is_known_how_long_a_message_takes() -> None:
    assert Pace(30, 500).room == 0


def test_what_is_ahead_grows_by_and_by_and_shrinks_at_once() -> None:
    pace = Pace(30, 500)
    rooms = []
    for _ in range(4):
        pace.handled(10, 0.001)
        rooms.append(pace.room)
    assert rooms == [GROWTH, GROWTH**2, 500, 500]
    pace.handled(1, 5.0)
    assert pace.room == 3
    pace.handled(1, 20.0)
    assert pace.room == 0


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1_000)), min_size=1))
def test_what_is_ahead_is_handled_in_half_of_the_time_at_the_pace_of_the_last_messages(
    looks: list[tuple[int, float]],
) -> None:
    pace = Pace(30, 500)
    for messages, seconds in looks:
        pace.handled(messages, seconds)
        assert 0 <= pace.room <= 500
        assert pace.room * seconds / messages <= 15 * (1 + 1e-9)


@given(st.lists(st.tuples(TIMES, st.integers(0, 5), st.integers(0, 5)), max_size=40))
def test_ages_are_those_of_a_list_of_times(steps: list[tuple[float, int, int]]) -> None:
    """Against what keeps the time of each message: never younger, and never older by more than a grain."""
    ages, model, now = Ages(16.0), deque[float](), 100.0
    for seconds, came, taken in steps:
        now += seconds
        if came:
            ages.arrived(came, now)
            model.extend([now] * came)
        for _ in range(min(taken, len(model))):
            model.popleft()
        over, are_old = ages.look(len(model), now)
        least_over = sum(now - each >= 12.0 for each in model)
        most_over = sum(now - each >= 12.0 - ages.grain for each in model)
        assert least_over <= over <= most_over
        for _ in range(over):
            model.popleft()
        oldest = now - model[0] if model else 0.0
        assert are_old or oldest < 16.0 / 3
        assert not are_old or oldest >= 16.0 / 3 - ages.grain
        if are_old:
            ages.renewed(now)
            model = deque([now] * len(model))
            assert ages.look(len(model), now) == (0, False)
        assert ages.next_look(now) > now


def test_what_came_while_nobody_looked_may_be_as_old_as_that() -> None:
    ages = Ages(16.0)
    ages.arrived(3, 10.0)
    ages.arrived(2, 30.0)
    ages.doubt(12.0)
    assert ages.look(5, 24.5) == (5, False)
    assert ages.look(2, 24.5) == (2, False)
    assert ages.look(2, 20.0) == (0, True)


def test_what_came_after_everything_was_let_go_of_is_young() -> None:
    """Where messages keep coming there is never a moment without any."""
    ages = Ages(16.0, in_order=False)
    ages.arrived(5, 100.0)
    assert ages.look(5, 112.0) == (5, False)
    ages.arrived(3, 112.1)
    assert ages.look(3, 112.2) == (0, False)
    assert ages.look(3, 118.0) == (0, True)
