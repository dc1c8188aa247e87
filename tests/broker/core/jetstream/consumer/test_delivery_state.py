from __future__ import annotations

from typing import Any

from headrace.broker.core.jetstream.consumer.delivery_state import DeliveryState

SECOND = 1_000_000_000


def state(**settings: Any) -> DeliveryState:
    options: dict[str, Any] = {"start_seq": 1, "tracks": True, "ack_wait_ns": SECOND}
    return DeliveryState(**{**options, **settings})


def deliver(subject: DeliveryState, *sequences: int, now_ns: int = 0) -> None:
    batch = subject.begin_batch(now_ns)
    for sequence in sequences:
        subject.deliver_new(batch, sequence)


def floor(subject: DeliveryState) -> tuple[int, int]:
    return subject.floor_consumer, subject.floor_stream


def test_the_floor_stays_until_the_oldest_pending_message_is_done() -> None:
    subject = state()
    deliver(subject, 1, 2, 3)
    subject.acknowledge(2)
    assert floor(subject) == (0, 0)
    subject.acknowledge(1)
    assert floor(subject) == (2, 2)


def test_the_floor_stands_right_before_the_next_pending_message_of_a_filtered_consumer() -> None:
    subject = state()
    deliver(subject, 5, 9)
    assert floor(subject) == (0, 0)
    subject.acknowledge(5)
    assert floor(subject) == (1, 8)


def test_nothing_pending_means_the_floor_is_where_delivery_is() -> None:
    subject = state()
    deliver(subject, 1, 4)
    subject.acknowledge(4)
    subject.acknowledge(1)
    assert floor(subject) == (2, 4)


def test_an_ack_twice_is_no_ack() -> None:
    subject = state()
    deliver(subject, 1)
    assert subject.acknowledge(1)
    assert not subject.acknowledge(1)


def test_a_late_message_is_delivered_again_with_a_new_consumer_sequence() -> None:
    subject = state()
    deliver(subject, 1, 2)
    assert not subject.expire(SECOND - 1)
    assert subject.expire(SECOND)
    assert subject.peek_redelivery() == 1
    assert subject.deliver_again(1, SECOND) == (3, 2)
    assert subject.peek_redelivery() == 2
    assert subject.pending[1] == (1, 2 * SECOND), "the first consumer sequence is kept"


def test_messages_late_together_come_in_the_order_of_the_stream() -> None:
    subject = state()
    deliver(subject, 1, 2, 3)
    subject.refuse(3, 3, 0, delay_ns=1)
    subject.refuse(1, 1, 0, delay_ns=2)
    subject.expire(SECOND)
    assert list(subject.redeliver) == [1, 2, 3]


def test_refused_messages_come_in_the_order_of_their_refusal() -> None:
    subject = state()
    deliver(subject, 1, 2, 3)
    assert subject.refuse(3, 3, 0)
    assert subject.refuse(1, 1, 0)
    assert list(subject.redeliver) == [3, 1]


def test_a_refusal_with_a_delay_waits_for_it() -> None:
    subject = state()
    deliver(subject, 1)
    subject.refuse(1, 1, 0, delay_ns=5 * SECOND)
    assert not subject.expire(4 * SECOND)
    assert subject.expire(5 * SECOND)


def test_with_backoff_a_refusal_waits_as_long_as_its_place_in_the_backoff_adds() -> None:
    subject = state(backoff_ns=(SECOND, 3 * SECOND))
    deliver(subject, 1)
    subject.refuse(1, 1, 0, delay_ns=SECOND // 2)
    assert subject.expire(SECOND // 2)
    subject.deliver_again(1, SECOND)
    subject.refuse(1, 2, SECOND, delay_ns=SECOND // 2)
    assert not subject.expire(3 * SECOND)
    assert subject.expire(SECOND + 5 * SECOND // 2)


def test_backoff_sets_each_wait_and_its_last_one_repeats() -> None:
    subject = state(backoff_ns=(SECOND, 3 * SECOND))
    deliver(subject, 1)
    assert subject.expire(SECOND)
    subject.deliver_again(1, 0)
    assert not subject.expire(3 * SECOND - 1)
    assert subject.expire(3 * SECOND)
    subject.deliver_again(1, 0)
    assert not subject.expire(3 * SECOND - 1)


def test_a_refusal_by_a_consumer_sequence_at_or_below_the_floor_is_not_honoured() -> None:
    subject = state()
    deliver(subject, 1, 2)
    subject.acknowledge(1)
    assert not subject.refuse(2, 1, 0)
    assert subject.refuse(2, 2, 0)


def test_progress_starts_the_time_anew() -> None:
    subject = state()
    deliver(subject, 1)
    assert subject.in_progress(1, SECOND // 2)
    assert not subject.expire(SECOND)
    assert subject.expire(SECOND + SECOND // 2)


def test_a_message_is_given_up_after_the_last_delivery_allowed() -> None:
    subject = state(max_deliver=2)
    deliver(subject, 1, 2)
    subject.acknowledge(2)
    subject.expire(SECOND)
    subject.deliver_again(1, SECOND)
    assert not subject.expire(2 * SECOND)
    assert subject.exhausted == [(1, 2)]
    assert not subject.pending
    assert floor(subject) == (3, 2)


def test_fewer_deliveries_hold_for_what_waits_to_be_delivered_again() -> None:
    subject = state()
    deliver(subject, 1, 2, 3)
    subject.acknowledge(2)
    assert subject.expire(SECOND)
    subject.deliver_again(1, SECOND)
    subject.refuse(1, 1, SECOND)
    subject.set_max_deliver(2)
    assert subject.exhausted == [(1, 2)]
    assert subject.peek_redelivery() == 3


def test_ack_all_finishes_everything_up_to_a_message() -> None:
    subject = state()
    deliver(subject, 1, 2, 3)
    subject.refuse(1, 1, 0)
    assert subject.acknowledge_all(2, 2) == [1, 2]
    assert subject.peek_redelivery() == 0
    assert floor(subject) == (2, 2)
    assert subject.acknowledge_all(1, 1) == []


def test_without_tracking_a_delivery_is_its_own_ack() -> None:
    subject = state(tracks=False)
    deliver(subject, 3, 7)
    assert floor(subject) == (2, 7)
    assert not subject.pending
    assert subject.next_deadline_ns() is None


def test_messages_that_left_the_stream_are_not_pending_any_more() -> None:
    subject = state()
    deliver(subject, 1, 2, 3)
    subject.refuse(2, 2, 0)
    assert subject.pending_below(3) == [1, 2]
    assert subject.forget([1, 2]) == [1, 2]
    assert list(subject.pending) == [3]
    assert subject.peek_redelivery() == 0


def test_a_reset_forgets_everything_and_counts_anew() -> None:
    subject = state()
    deliver(subject, 1, 2)
    subject.reset(5)
    assert (subject.delivered_consumer, subject.delivered_stream, *floor(subject)) == (0, 4, 0, 4)
    assert not subject.pending
    assert not subject.expire(10 * SECOND)


def test_stale_deadlines_and_places_do_not_pile_up() -> None:
    subject = state()
    for sequence in range(1, 20_001):
        deliver(subject, sequence, now_ns=sequence)
        if sequence > 1:
            subject.acknowledge(sequence)
    assert list(subject.pending) == [1]
    assert len(subject._deadlines) < 3_000
    assert len(subject._order) < 3_000
    assert subject.expire(2 * SECOND)
    assert subject.peek_redelivery() == 1


def test_a_message_refused_with_a_delay_while_it_waits_to_come_again_gives_up_its_place() -> None:
    subject = state(ack_wait_ns=10 * SECOND)
    deliver(subject, 1, 2, 3)
    subject.expire(10 * SECOND)
    subject.refuse(1, 1, 10 * SECOND, delay_ns=5 * SECOND)
    subject.expire(15 * SECOND)
    order = []
    while sequence := subject.peek_redelivery():
        order.append(sequence)
        subject.deliver_again(sequence, 15 * SECOND)
    assert order == [2, 3, 1]


def test_the_floor_stays_below_what_is_pending_although_a_redelivery_is_acknowledged() -> None:
    state = DeliveryState(start_seq=1, tracks=True, ack_wait_ns=10)
    batch = state.begin_batch(0)
    for sequence in (1, 2, 3):
        state.deliver_new(batch, sequence)
    assert state.refuse(1, 1, 0)
    assert state.deliver_again(state.peek_redelivery(), 0) == (4, 2)
    state.forget([1])
    assert state.acknowledge_all(2, 4) == [2]
    assert (state.floor_consumer, state.floor_stream) == (2, 2)
    assert state.refuse(3, 3, 0)


def test_ack_all_ends_what_is_pending_whatever_number_a_former_life_gave_it() -> None:
    """A crash made the first delivery of 31 forgotten, which was number 1: that is another one now."""
    subject = state()
    deliver(subject, 26, 31, 37)
    subject.forget([26])
    assert floor(subject)[0] == 1
    assert subject.acknowledge_all(31, 1) == [31]
    assert 31 not in subject.pending
