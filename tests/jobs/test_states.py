"""The state machine, against the specification's table and against a model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.jobs.errors import JobsError
from headrace.jobs.states import (
    TERMINAL,
    TRANSITIONS,
    Count,
    Event,
    State,
    failure_event,
    follow,
    requested_event,
)

C, R, D, B, SAME = Event.CLAIM, Event.REVIVE, Event.COMPLETE, Event.BURY, None
NO = 400
ASKED = [
    "INFLIGHT",
    "INFLIGHT+T",
    "DELIVERED",
    "DEAD",
    "DELIVERED+T",
    "DEAD+T",
    "QUEUED",
    "other",
    "",
]
TABLE: dict[State, list[Any]] = {
    State.QUEUED: [C, C, NO, NO, NO, NO, SAME, NO, NO],
    State.INFLIGHT: [SAME, NO, D, B, NO, NO, NO, NO, NO],
    State.DELIVERED: [NO, NO, SAME, NO, NO, NO, NO, NO, NO],
    State.DEAD: [R, R, NO, SAME, NO, NO, NO, NO, NO],
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("column", range(len(ASKED)), ids=ASKED)
def test_every_cell_of_the_specified_table(state: State, column: int) -> None:
    asked, _, timed = ASKED[column].partition("+")
    expected = TABLE[state][column]
    if expected == NO:
        with pytest.raises(JobsError) as refused:
            requested_event(state, asked, 10 if timed else 0)
        assert refused.value.status == 400
    else:
        assert requested_event(state, asked, 10 if timed else 0) is expected


def test_states_are_matched_case_sensitively() -> None:
    with pytest.raises(JobsError):
        requested_event(State.QUEUED, "inflight", 0)


def test_the_numbers_on_disk_never_change() -> None:
    assert {state.name: int(state) for state in State} == {
        "QUEUED": 1001,
        "INFLIGHT": 1002,
        "DELIVERED": 1003,
        "DEAD": 1004,
    }


def test_a_delivered_job_stays_delivered_unless_an_operator_replays_it() -> None:
    assert follow(State.DELIVERED, Event.REPLAY).target is State.QUEUED
    for event in set(Event) - {Event.REPLAY}:
        with pytest.raises(JobsError, match="invalid transition"):
            follow(State.DELIVERED, event)


def test_every_state_is_reached_and_only_finished_ones_end() -> None:
    targets = {rule.target for rule in TRANSITIONS.values()}
    assert targets | {State.QUEUED} == set(State)
    assert {State.DELIVERED, State.DEAD} == TERMINAL


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_job_is_retried_exactly_as_often_as_allowed(retries_max: int, start: int) -> None:
    retries, executions = 0, 0
    while True:
        executions += 1
        event = failure_event(retries, retries_max)
        rule = follow(State.INFLIGHT, event)
        retries = rule.count.after(retries)
        if rule.target is State.DEAD:
            break
        assert rule.target is State.QUEUED
    assert executions == retries_max + 1
    assert retries == retries_max
    assert failure_event(retries_max + start, retries_max) is Event.EXHAUST


@given(st.lists(st.sampled_from(Event), max_size=60))
def test_any_sequence_of_events_keeps_the_count_of_retries_sound(events: list[Event]) -> None:
    state, retries, failures = State.QUEUED, 0, 0
    for event in events:
        try:
            rule = follow(state, event)
        except JobsError:
            assert (state, event) not in TRANSITIONS
            continue
        state, retries = rule.target, rule.count.after(retries)
        failures = {Count.KEEP: failures, Count.ADD: failures + 1, Count.RESET: 0}[rule.count]
        assert retries == failures
        assert (event in {Event.RETRY, Event.REVIVE}) == (rule.count is Count.ADD)
        assert (event in {Event.REQUEUE, Event.REPLAY}) == (rule.count is Count.RESET)
