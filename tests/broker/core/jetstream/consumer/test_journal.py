from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.consumer import journal
from headrace.broker.core.jetstream.consumer.delivery_state import DeliveryState
from headrace.errors import StoreFormatError

WAIT = 1_000


def fresh(tracks: bool = True) -> DeliveryState:
    return DeliveryState(start_seq=1, tracks=tracks, ack_wait_ns=WAIT, max_deliver=4)


def picture(state: DeliveryState) -> tuple[object, ...]:
    return (
        state.delivered_consumer,
        state.delivered_stream,
        state.floor_consumer,
        state.floor_stream,
        state.delivered_stamp_ns,
        state.pending,
        state.deliveries,
        state.dead,
    )


def live_a_little(state: DeliveryState, rng: random.Random, now_ns: int) -> None:
    """A random handful of deliveries and acks."""
    choice = rng.randrange(7)
    if choice == 5 and state.dead:
        state.forget([rng.choice(list(state.dead))])
    elif choice == 6:
        state.expire(now_ns + 10 * WAIT)
    elif choice == 0:
        batch = state.begin_batch(now_ns)
        for _ in range(rng.randrange(4)):
            state.deliver_new(batch, state.next_seq + rng.randrange(3))
            state.delivered_stamp_ns = rng.getrandbits(63)
    elif choice == 1 and state.pending:
        state.acknowledge(rng.choice(list(state.pending)))
    elif choice == 2 and state.pending:
        sequence = rng.choice(list(state.pending))
        state.acknowledge_all(sequence, state.pending[sequence][0])
    elif choice == 3 and state.pending:
        sequence = rng.choice(list(state.pending))
        state.refuse(sequence, state.delivered_consumer, now_ns)
    elif sequence := state.peek_redelivery():
        state.deliver_again(sequence, now_ns)


@given(seed=st.integers(0, 1 << 32), tracks=st.booleans())
def test_snapshot_and_deltas_bring_back_the_state(seed: int, tracks: bool) -> None:
    rng = random.Random(seed)
    state = fresh(tracks)
    snapshot, deltas = journal.encode_snapshot(state, 50, []), []
    for step in range(rng.randrange(60)):
        live_a_little(state, rng, step * 10)
        if rng.random() < 0.4:
            deltas.append(journal.encode_delta(state, 50))
            state.clear_log()
        if rng.random() < 0.1:
            snapshot, deltas = journal.encode_snapshot(state, 50, []), []
            state.clear_log()
    deltas.append(journal.encode_delta(state, 50))
    restored = fresh(tracks)
    journal.restore(restored, snapshot, deltas, 50)
    assert picture(restored) == picture(state)
    assert restored.next_seq == state.delivered_stream + 1


@pytest.mark.parametrize(
    "ended", [DeliveryState.acknowledge, lambda state, _: state.acknowledge_all(2, 2)]
)
def test_what_was_given_up_and_then_acknowledged_is_done_though_both_are_written_at_once(
    ended: Callable[[DeliveryState, int], object],
) -> None:
    state = fresh()
    snapshot = journal.encode_snapshot(state, 0, [])
    state.deliver_many(state.begin_batch(0), [1, 2])
    state.set_max_deliver(1)
    state.refuse(1, 1, 0)
    assert state.dead == {1: 1}
    ended(state, 1)
    restored = fresh()
    journal.restore(restored, snapshot, [journal.encode_delta(state, 0)], 0)
    assert not restored.dead
    assert picture(restored) == picture(state)


def test_deadlines_mean_the_same_wall_clock_time_after_a_restart() -> None:
    state = fresh()
    batch = state.begin_batch(now_ns=100)
    state.deliver_new(batch, 1)
    snapshot = journal.encode_snapshot(state, 1_000_000, [])
    restored = fresh()
    journal.restore(restored, snapshot, [], wall_offset_ns=1_000_000 + 600)
    assert restored.next_deadline_ns() == 100 + WAIT - 600


def test_what_was_chosen_and_not_delivered_is_kept() -> None:
    state = fresh()
    snapshot = journal.encode_snapshot(state, 0, [3, 8, 9])
    batch = state.begin_batch(0)
    state.deliver_new(batch, 3)
    assert journal.restore(fresh(), snapshot, [journal.encode_delta(state, 0)], 0) == [8, 9]


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(StoreFormatError, match="version"):
        journal.restore(fresh(), b"\x09" + bytes(64), [], 0)
