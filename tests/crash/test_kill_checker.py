"""The checker finds what it is there to find."""

from __future__ import annotations

from crash.kill_checker import History, check


def history() -> History:
    return History({1: 3, 2: 2}, {(1, 0): 1, (2, 0): 2, (1, 1): 3})


GOOD = [(1, (1, 0)), (2, (2, 0)), (3, (1, 1))]


def test_everything_acknowledged_and_in_order_is_fine() -> None:
    assert not check(history(), GOOD).faults


def test_unacknowledged_messages_may_be_there() -> None:
    assert not check(history(), [*GOOD, (4, (1, 2)), (5, (2, 1))]).faults


def test_an_acknowledged_message_that_is_gone_is_lost() -> None:
    assert check(history(), GOOD[:2]).lost == [(1, 1)]


def test_a_message_stored_twice_is_found() -> None:
    assert check(history(), [*GOOD, (4, (1, 1))]).duplicated == [(1, 1)]


def test_a_publishers_messages_out_of_order_are_found() -> None:
    verdict = check(history(), [(1, (1, 1)), (2, (2, 0)), (3, (1, 0))])
    assert verdict.reordered == [(1, 0)]
    assert verdict.moved == [(1, 0), (1, 1)]


def test_a_message_nobody_sent_is_unexpected() -> None:
    assert check(history(), [*GOOD, (4, (3, 0)), (5, (1, 3))]).unexpected == [(3, 0), (1, 3)]


def test_a_hole_in_the_sequences_is_found() -> None:
    assert check(history(), [(1, (1, 0)), (4, (2, 0)), (5, (1, 1))]).gaps == [2, 3]


def test_a_sequence_given_twice_is_found() -> None:
    twice = History({1: 3}, {(1, 0): 1, (1, 1): 1})
    assert check(twice, [(1, (1, 1))]).reused == [1]
