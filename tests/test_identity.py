"""One message of one stream, and whether a stream still has it (`headrace.identity`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.identity import Mark, MessageIdentity, Sameness, compare, with_mark

ORDERS = "ORDERS"


def message(sequence: int, timestamp_ns: int) -> MessageIdentity:
    return MessageIdentity(ORDERS, sequence, timestamp_ns)


def look(stored: dict[int, int], last_sequence: int, remembered: MessageIdentity) -> Sameness:
    """Compare with a stream that holds ``stored`` (sequence: timestamp)."""
    later = [sequence for sequence in stored if sequence >= remembered.sequence]
    found = message(min(later), stored[min(later)]) if later else None
    last = message(last_sequence, stored.get(last_sequence, 0))
    return compare(remembered, found, last)


def test_a_stream_is_the_same_where_the_message_has_its_time() -> None:
    assert look({4: 40, 5: 50}, 5, message(5, 50)) is Sameness.SAME


def test_a_sequence_that_was_given_again_is_another_message() -> None:
    assert look({4: 40, 5: 99}, 5, message(5, 50)) is Sameness.OTHER


def test_a_stream_that_ends_before_the_message_has_lost_it() -> None:
    assert look({4: 40}, 4, message(5, 50)) is Sameness.OTHER
    assert look({}, 0, message(5, 50)) is Sameness.OTHER


def test_a_removed_message_proves_nothing() -> None:
    assert look({6: 60}, 6, message(5, 50)) is Sameness.GONE
    assert look({}, 7, message(5, 50)) is Sameness.GONE


def test_a_later_message_that_is_older_shows_another_stream() -> None:
    assert look({6: 30}, 6, message(5, 50)) is Sameness.OTHER


def test_a_place_without_a_time_cannot_be_told_unless_the_stream_is_shorter() -> None:
    assert look({5: 50}, 5, message(5, 0)) is Sameness.GONE
    assert look({4: 40}, 4, message(5, 0)) is Sameness.OTHER


def test_the_place_before_the_first_message_is_in_any_stream() -> None:
    assert look({}, 0, message(0, 0)) is Sameness.SAME
    assert look({1: 10}, 1, message(0, 0)) is Sameness.SAME


@given(
    kept=st.dictionaries(st.integers(1, 20), st.integers(1, 3), max_size=20),
    sequence=st.integers(1, 20),
)
def test_the_stream_that_was_read_is_never_taken_for_another(
    kept: dict[int, int], sequence: int
) -> None:
    """Whatever was removed of it since, and however close the times are."""
    times = {number: 100 + number // 4 for number in range(1, 21)}
    stored = {number: times[number] for number in kept}
    assert look(stored, 20, message(sequence, times[sequence])) is not Sameness.OTHER


@given(sequence=st.integers(1, 20), cut=st.integers(0, 19), again=st.integers(0, 20))
def test_a_stream_that_lost_its_tail_is_never_taken_for_the_same(
    sequence: int, cut: int, again: int
) -> None:
    """What is stored after the loss is later than anything that was stored before it."""
    stored = {number: 100 + number for number in range(1, cut + 1)}
    stored |= {number: 1000 + number for number in range(cut + 1, cut + again + 1)}
    found = look(stored, cut + again, message(sequence, 100 + sequence))
    assert found is (Sameness.SAME if sequence <= cut else Sameness.OTHER)


STEPS = st.lists(st.integers(1, 500), min_size=1, max_size=400)


def marks_after(steps: list[int]) -> tuple[Mark, ...]:
    marks: tuple[Mark, ...] = ()
    sequence = 0
    for step in steps:
        sequence += step
        marks = with_mark(marks, (sequence, sequence * 1000))
    return marks


@given(STEPS)
def test_marks_are_few_and_in_order_and_the_newest_is_there(steps: list[int]) -> None:
    marks = marks_after(steps)
    assert marks == tuple(sorted(marks))
    assert marks[-1] == (sum(steps), sum(steps) * 1000)
    assert len(marks) <= 2 * sum(steps).bit_length() + 2


@given(STEPS, st.data())
def test_a_lost_end_leaves_a_mark_that_is_not_much_further_back(
    steps: list[int], data: st.DataObject
) -> None:
    end = sum(steps)
    lost = data.draw(st.integers(1, end))
    kept = [sequence for sequence, _ in marks_after(steps) if sequence <= end - lost]
    known = max(kept, default=0)
    assert end - known <= 8 * lost + 8 * max(steps)
