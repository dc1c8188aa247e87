"""`make test` tries some of the places where something can go wrong, `make test-all` all of them."""

from __future__ import annotations

import pytest

from portions import EVERY, beginning_with, one_way, portion, some


def test_some_are_tried_and_those_that_begin_elsewhere_try_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(EVERY, raising=False)
    assert some(range(10), 3) == [0, 3, 6, 9]
    ways = [some(range(10), 3, beginning) for beginning in (0, 1, 2)]
    assert sorted(place for way in ways for place in way) == list(range(10))
    assert some(range(10), 3, 4) == ways[1]
    assert portion(100, 40) == 40


def test_tests_are_played_in_one_way_each_and_together_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(EVERY, raising=False)
    ways = [one_way("ab", f"test_{number}") for number in range(100)]
    assert {len(way) for way in ways} == {1}
    assert 30 < sum(list(way) == ["a"] for way in ways) < 70
    assert ways[7] == one_way("ab", "test_7")


def test_the_seed_that_showed_it_last_is_played_first_and_once() -> None:
    assert list(beginning_with(2, range(4))) == [2, 0, 1, 3]
    assert list(beginning_with(9, range(2))) == [9, 0, 1]


def test_all_are_tried_where_the_slow_tests_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EVERY, "1")
    assert some(range(10), 3, 1) == list(range(10))
    assert portion(100, 40) == 100
    assert one_way("ab", "test_7") == "ab"
