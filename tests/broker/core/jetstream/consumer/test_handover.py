"""Handing a pin over: the client before finishes what it has in hand."""

from __future__ import annotations

from typing import Any

from headrace.broker.core.jetstream.consumer.delivery_state import DeliveryState
from headrace.broker.core.jetstream.consumer.pinning import Handover

SECOND = 1_000_000_000
WAIT = 10 * SECOND


def delivered(count: int, **settings: Any) -> DeliveryState:
    """``count`` messages delivered at 0, with a deadline at 10 s."""
    state = DeliveryState(start_seq=1, tracks=True, ack_wait_ns=WAIT, **settings)
    batch = state.begin_batch(0)
    for sequence in range(1, count + 1):
        state.deliver_new(batch, sequence)
    return state


def test_nothing_in_hand_is_over_at_once() -> None:
    state = delivered(0)
    assert Handover(state, 0).is_over(state, 0)


def test_it_is_over_when_every_message_is_acknowledged() -> None:
    state = delivered(3)
    handover = Handover(state, 0)
    for sequence in (3, 1, 2):
        assert not handover.is_over(state, SECOND)
        state.acknowledge(sequence)
    assert handover.is_over(state, SECOND)


def test_a_refused_message_is_not_in_hand_any_more_with_a_delay_or_without() -> None:
    state = delivered(2)
    handover = Handover(state, 0)
    state.refuse(1, 1, SECOND)
    assert not handover.is_over(state, SECOND)
    state.refuse(2, 2, SECOND, delay_ns=60 * SECOND)
    assert handover.is_over(state, SECOND)


def test_messages_refused_before_the_pin_was_lost_are_not_waited_for() -> None:
    state = delivered(1)
    state.refuse(1, 1, SECOND, delay_ns=60 * SECOND)
    assert Handover(state, SECOND).is_over(state, SECOND)


def test_progress_of_a_refused_message_does_not_put_it_in_hand_again() -> None:
    state = delivered(1)
    state.refuse(1, 1, SECOND, delay_ns=60 * SECOND)
    state.in_progress(1, SECOND)
    assert Handover(state, SECOND).is_over(state, SECOND)


def test_a_message_out_of_its_time_is_not_in_hand_any_more() -> None:
    state = delivered(1)
    handover = Handover(state, 4 * SECOND)
    assert not handover.is_over(state, 9 * SECOND)
    state.expire(10 * SECOND)
    assert handover.is_over(state, 10 * SECOND)


def test_progress_does_not_prolong_it_beyond_the_ack_wait() -> None:
    state = delivered(1)
    handover = Handover(state, 4 * SECOND)
    state.in_progress(1, 9 * SECOND)
    state.expire(13 * SECOND)
    assert not handover.is_over(state, 13 * SECOND)
    assert handover.is_over(state, 14 * SECOND)


def test_the_longest_backoff_bounds_it() -> None:
    state = delivered(1, backoff_ns=(SECOND, 30 * SECOND))
    assert Handover(state, 0).until_ns == 30 * SECOND


def test_a_reset_ends_it() -> None:
    state = delivered(3)
    handover = Handover(state, 0)
    state.reset(2)
    assert handover.is_over(state, 0)
