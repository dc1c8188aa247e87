"""What a member does about one consumer, decided without a server."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.member.config import Plan
from headrace.groups.member.consumer.machine import (
    Created,
    Deleted,
    Differs,
    Elapsed,
    End,
    Event,
    Failed,
    Gone,
    InUse,
    Lost,
    Overlaps,
    Pause,
    Phase,
    Read,
    Release,
    Released,
    State,
    Wanted,
    after,
    retry_s,
)

ONE = Plan("a", (0,), ("0.>",))
TWO = Plan("a", (0, 1), ("0.>", "1.>"))
SHARED = Plan("partition=0", (0,), ("0.>",), True)

AT_WORK = (Wanted(ONE), Created())


def walk(events: Sequence[Event], state: State | None = None) -> State:
    state = state or State()
    for event in events:
        state = after(state, event)
    return state


@pytest.mark.parametrize(
    ("events", "phase"),
    [
        ((), Phase.IDLE),
        ((Wanted(None),), Phase.IDLE),
        ((Wanted(ONE),), Phase.CREATING),
        (AT_WORK, Phase.CONSUMING),
        ((*AT_WORK, Wanted(ONE)), Phase.CONSUMING),  # a change that does not concern it
        ((*AT_WORK, Wanted(TWO)), Phase.RELEASING),
        ((*AT_WORK, Wanted(TWO), Released(True)), Phase.CREATING),
        ((*AT_WORK, Wanted(None), Released(True)), Phase.IDLE),
        ((*AT_WORK, Wanted(TWO), Wanted(None), Released(True)), Phase.IDLE),
        ((*AT_WORK, Wanted(TWO), Released(False)), Phase.PAUSED),  # the pinned one deletes
        ((*AT_WORK, Wanted(TWO), Released(False), Elapsed()), Phase.CREATING),
        ((*AT_WORK, Gone()), Phase.READING),
        ((*AT_WORK, Gone(), Read(ONE)), Phase.CREATING),
        (
            (*AT_WORK, Gone(), Read(None)),
            Phase.IDLE,
        ),  # the group was deleted, or the member dropped
        ((*AT_WORK, Gone(), Failed()), Phase.PAUSED),
        ((*AT_WORK, Lost()), Phase.PAUSED),
        ((*AT_WORK, Lost(), Elapsed()), Phase.CREATING),
        ((*AT_WORK, Lost(forgotten=True)), Phase.CREATING),  # by a server that was restarted
        ((Wanted(ONE), Differs()), Phase.READING),
        ((Wanted(ONE), Differs(), Read(ONE)), Phase.DELETING),
        ((Wanted(ONE), Differs(), Read(TWO)), Phase.CREATING),  # we were behind: nothing is deleted
        ((Wanted(ONE), Differs(), Read(ONE), Deleted()), Phase.CREATING),
        ((Wanted(ONE), Differs(), Read(ONE), InUse()), Phase.PAUSED),  # it is being drained
        ((*AT_WORK, End()), Phase.RELEASING),
        ((*AT_WORK, End(), Released(False)), Phase.OVER),
        ((End(),), Phase.OVER),
        ((Wanted(ONE), End()), Phase.CREATING),  # the call is under way
        ((Wanted(ONE), End(), Created()), Phase.RELEASING),
        ((Wanted(ONE), End(), Failed()), Phase.OVER),
        ((Wanted(ONE), Overlaps(), End()), Phase.OVER),
        ((Wanted(ONE), Overlaps(), End(Release.REMOVE)), Phase.RELEASING),
        ((*AT_WORK, End(), Wanted(TWO), Released(False)), Phase.OVER),
    ],
)
def test_a_table_of_what_follows(events: tuple[Event, ...], phase: Phase) -> None:
    assert walk(events).phase is phase


def test_an_overlap_is_tried_again_soon_and_at_every_change_of_the_record() -> None:
    state, pauses = walk([Wanted(ONE)]), []
    for _ in range(8):
        state = after(state, Overlaps())
        pauses.append(retry_s(state.failures))
        state = after(state, Elapsed())
    assert pauses[:5] == [0.05, 0.1, 0.2, 0.4, 0.8]
    assert pauses[5:] == [1.0, 1.0, 1.0]
    assert walk([Overlaps(), Wanted(TWO)], state).phase is Phase.CREATING


def test_a_standby_does_not_create_before_the_pinned_one_has_deleted() -> None:
    paused = walk([*AT_WORK, Wanted(TWO), Released(False)])
    assert paused.pause is Pause.STANDBY
    assert walk([Wanted(ONE)], paused).phase is Phase.PAUSED
    assert walk([Wanted(ONE), Elapsed()], paused).made == ONE


def test_who_stepped_down_lets_another_one_be_pinned_first() -> None:
    paused = walk([*AT_WORK, Lost()])
    assert paused.pause is Pause.STEPPED_DOWN
    assert walk([Wanted(ONE)], paused).phase is Phase.PAUSED


@pytest.mark.parametrize(
    ("plan", "then", "release"),
    [
        (ONE, TWO, Release.DELETE),
        (ONE, None, Release.DELETE),
        (SHARED, None, Release.HAND_OVER),
    ],
)
def test_a_partitions_own_consumer_stays_for_its_next_owner(
    plan: Plan, then: Plan | None, release: Release
) -> None:
    assert walk([Wanted(plan), Created(), Wanted(then)]).release is release


def test_the_consumer_of_a_partition_that_the_group_has_no_more_goes() -> None:
    last = Plan("partition=11", (11,), ("11.>",), True)
    assert walk([Wanted(last, 12), Created(), Wanted(None, 12)]).release is Release.HAND_OVER
    assert walk([Wanted(last, 12), Created(), Wanted(None, 11)]).release is Release.DELETE


def test_a_consumer_that_vanishes_at_once_again_and_again_is_made_with_pauses() -> None:
    state, pauses = walk(AT_WORK), []
    for _ in range(6):
        state = walk([Gone(settled=False), Read(ONE)], state)
        if state.phase is Phase.PAUSED:
            pauses.append(retry_s(state.failures))
            state = after(state, Elapsed())
        state = after(state, Created())
    assert len(pauses) == 5
    assert pauses == sorted(pauses)
    assert walk([Gone(settled=True), Read(ONE)], state).phase is Phase.CREATING


def test_two_instances_that_delete_each_others_consumer_slow_down() -> None:
    state = walk([Wanted(ONE)])
    paused = 0
    for _ in range(4):
        state = walk([Differs(), Read(ONE), Deleted()], state)
        if state.phase is Phase.PAUSED:
            paused += 1
            state = after(state, Elapsed())
    assert paused == 3


PLANS = st.sampled_from([None, ONE, TWO])
ANSWERS: dict[Phase, list[Event]] = {
    Phase.CREATING: [Created(), Overlaps(), Differs(), Failed(), Failed(refused=True)],
    Phase.CONSUMING: [Gone(), Gone(settled=False), Lost(), Lost(forgotten=True)],
    Phase.RELEASING: [Released(True), Released(False)],
    Phase.PAUSED: [Elapsed()],
    Phase.READING: [Read(None), Read(ONE), Read(TWO), Failed()],
    Phase.DELETING: [Deleted(), InUse(), Failed(), Failed(refused=True)],
}


@given(st.data())
def test_whatever_happens_the_promises_hold(data: st.DataObject) -> None:
    state = State()
    held: Plan | None = None  # what the server was asked for, and was not let go of
    for _ in range(data.draw(st.integers(0, 40))):
        answers = ANSWERS.get(state.phase, [])
        wishes = st.one_of(
            PLANS.map(Wanted), st.sampled_from([End(), End(Release.ABANDON), End(Release.REMOVE)])
        )
        told = not answers or data.draw(st.integers(0, 3)) == 0
        event = data.draw(wishes) if told else data.draw(st.sampled_from(answers))
        before, state = state, after(state, event)
        if isinstance(event, Created) and before.phase is Phase.CREATING:
            held = before.made
        if isinstance(event, (Released, Lost, Gone)) and event in answers:
            held = None
        if state.phase is Phase.CREATING and before.phase is not Phase.CREATING:
            assert held is None, "it asks for another consumer while it holds one"
        if state.phase is Phase.CONSUMING:
            assert state.wanted == state.made == held, "it reads what it should not"
        if state.phase is Phase.DELETING and before.phase is not Phase.DELETING:
            assert state.wanted == state.made, "it deletes what a newer record may have made"
        if before.ending:
            assert state.ending
        if before.phase is Phase.OVER:
            assert state == before
    for _ in range(4):  # told to end, it does so after the answers that are under way
        state = after(state, End())
        if state.phase is not Phase.OVER:
            state = after(state, data.draw(st.sampled_from(ANSWERS[state.phase])))
    assert state.phase is Phase.OVER
