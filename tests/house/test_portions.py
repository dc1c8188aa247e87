"""`make test` tries some of the places where something can go wrong, `make test-all` all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from portions import EVERY, beginning_with, one_way, play_one_way, portion, some


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


class Metafunc:
    """What pytest asks of a test, as far as it is looked at."""

    def __init__(self, *said: str | tuple[str, ...]) -> None:
        self.fixturenames = ["server"]
        self.function = test_a_test_that_says_in_which_ways_it_is_played_is_left_alone
        marks = [pytest.mark.parametrize(each, []).mark for each in said]
        self.definition = SimpleNamespace(iter_markers=lambda name: marks)
        self.played: list[tuple[str, object]] = []

    def parametrize(self, name: str, ways: object, **_: object) -> None:
        self.played.append((name, ways))


@pytest.mark.parametrize("said", ["server", "a, server", ("server", "a")])
def test_a_test_that_says_in_which_ways_it_is_played_is_left_alone(
    said: str | tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EVERY, "1")
    for others, played in (((said,), []), (("a",), [("server", "xy")]), ((), [("server", "xy")])):
        metafunc: Any = Metafunc(*others)
        play_one_way(metafunc, "server", "xy")
        assert metafunc.played == played
    metafunc = Metafunc()
    play_one_way(metafunc, "elsewhere", "xy")
    assert metafunc.played == []


def test_the_seed_that_showed_it_last_is_played_first_and_once() -> None:
    assert list(beginning_with(2, range(4))) == [2, 0, 1, 3]
    assert list(beginning_with(9, range(2))) == [9, 0, 1]


def test_all_are_tried_where_the_slow_tests_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EVERY, "1")
    assert some(range(10), 3, 1) == list(range(10))
    assert portion(100, 40) == 100
    assert one_way("ab", "test_7") == "ab"
