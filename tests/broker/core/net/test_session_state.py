"""The table of a session's states, as a function."""

from __future__ import annotations

from functools import reduce
from itertools import product

import pytest

from headrace.broker.core.net.session import TRANSITIONS, SessionEvent, SessionState, next_state

S, E = SessionState, SessionEvent


@pytest.mark.parametrize(
    ("start", "events", "end"),
    [
        (S.AWAITING_LOGIN, [E.ENTER], S.OPEN),
        (S.AWAITING_LOGIN, [E.DEFER], S.DECIDING),
        (S.AWAITING_LOGIN, [E.DEFER, E.DECIDE], S.AWAITING_LOGIN),
        (S.AWAITING_LOGIN, [E.DEFER, E.DECIDE, E.ENTER], S.OPEN),
        (S.AWAITING_LOGIN, [E.DEFER, E.DECIDE, E.DEFER, E.DECIDE, E.ENTER], S.OPEN),
        (S.AWAITING_LOGIN, [E.DEFER, E.DECIDE, E.CLOSE], S.CLOSED),
        (S.OPEN, [E.ENTER], S.OPEN),
        (S.OPEN, [E.DEFER], S.DECIDING_AGAIN),
        (S.OPEN, [E.DEFER, E.DECIDE], S.OPEN),
    ],
)
def test_what_follows(start: SessionState, events: list[SessionEvent], end: SessionState) -> None:
    assert reduce(next_state, events, start) is end


@pytest.mark.parametrize("state", [state for state in S if state is not S.CLOSED])
def test_every_life_may_end_at_any_time(state: SessionState) -> None:
    assert next_state(state, E.CLOSE) is S.CLOSED


@pytest.mark.parametrize(
    ("state", "event"), [pair for pair in product(S, E) if pair not in TRANSITIONS]
)
def test_what_is_not_in_the_table_cannot_happen(state: SessionState, event: SessionEvent) -> None:
    with pytest.raises(RuntimeError, match=f"{event.name} cannot happen .* {state.name}"):
        next_state(state, event)


def test_nothing_happens_after_the_end() -> None:
    assert not [event for state, event in TRANSITIONS if state is S.CLOSED]


def test_whoever_is_let_in_stays_in_until_the_end() -> None:
    for (before, event), after in TRANSITIONS.items():
        if before.is_in and event is not E.CLOSE:
            assert after.is_in
        if after.is_in and not before.is_in:
            assert event is E.ENTER


def test_input_is_kept_exactly_while_a_decision_is_awaited() -> None:
    for (before, event), after in TRANSITIONS.items():
        assert after.is_deciding == (event is E.DEFER)
        assert before.is_deciding == (
            event is E.DECIDE or (before.is_deciding and event is E.CLOSE)
        )


def test_every_state_is_reached_from_one_of_the_first() -> None:
    reached = {S.AWAITING_LOGIN}
    while (more := {TRANSITIONS[b, e] for b, e in TRANSITIONS if b in reached}) - reached:
        reached |= more
    assert reached == set(S)
