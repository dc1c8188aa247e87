"""What a client may answer because it was asked: how often, and for how long."""

from __future__ import annotations

import pytest

from headrace.broker.core.auth import permissions
from headrace.broker.core.auth.permissions import ExpectedAnswers, ResponsePermission
from headrace.clock import ManualClock

SECOND_NS = 1_000_000_000


def test_a_request_may_be_answered_as_often_as_granted() -> None:
    expected = ExpectedAnswers(ResponsePermission(2, SECOND_NS), ManualClock())
    assert not expected.use(b"r")
    expected.expect(b"r")
    assert [expected.use(b"r") for _ in range(3)] == [True, True, False]
    expected.expect(b"r")
    assert expected.use(b"r")


def test_an_answer_may_come_too_late() -> None:
    clock = ManualClock()
    expected = ExpectedAnswers(ResponsePermission(1, SECOND_NS), clock)
    expected.expect(b"r")
    clock.advance(1.0)
    assert not expected.use(b"r")


def test_what_is_expired_or_one_too_many_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "EXPECTED_MAX", 2)
    clock = ManualClock()
    expected = ExpectedAnswers(ResponsePermission(1, SECOND_NS), clock)
    for reply in (b"1", b"2", b"3"):
        expected.expect(reply)
    assert [expected.use(reply) for reply in (b"1", b"2", b"3")] == [False, True, True]
    expected.expect(b"4")
    clock.advance(2.0)
    expected.expect(b"5")
    assert list(expected._replies) == [b"5"]


def test_a_request_asked_again_counts_from_then_on() -> None:
    clock = ManualClock()
    expected = ExpectedAnswers(ResponsePermission(1, SECOND_NS), clock)
    expected.expect(b"a")
    expected.expect(b"b")
    clock.advance(0.9)
    expected.expect(b"a")
    clock.advance(0.9)
    assert expected.use(b"a")
    assert not expected.use(b"b")
