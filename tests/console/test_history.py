"""Numbers over time: fixed memory, whatever the age."""

from __future__ import annotations

from headrace.console.look import History, rate


def test_points_come_back_as_columns() -> None:
    history = History()
    history.add("s", 1.0, {"a": 1})
    history.add("s", 2.0, {"a": 2, "b": 5})
    assert history.columns("s") == {"time": [1.0, 2.0], "a": [1, 2], "b": [None, 5]}


def test_a_series_nobody_added_to_is_empty() -> None:
    assert History().columns("x") == {"time": []}


def test_old_points_and_series_looked_at_longest_ago_go_first() -> None:
    history = History(points_max=2, series_max=2)
    for at in range(3):
        history.add("old", at, {"a": at})
    history.add("new", 3, {"a": 3})
    history.add("old", 4, {"a": 4})
    history.add("third", 5, {"a": 5})
    assert history.columns("old")["time"] == [2, 4]
    assert history.columns("new") == {"time": []}
    assert history.columns("third")["a"] == [5]


def test_what_is_gone_is_forgotten() -> None:
    history = History()
    history.add_all(1, {"stream/a": {"x": 1}, "stream/b": {"x": 2}})
    history.add_all(2, {"stream/b": {"x": 3}})
    assert history.columns("stream/a") == {"time": []}
    assert history.columns("stream/b") == {"time": [1, 2], "x": [2, 3]}


def test_of_too_many_series_the_last_ones_keep_their_past() -> None:
    history = History(series_max=3)
    points = {f"stream/{number}": {"x": float(number)} for number in range(5)}
    for at in range(4):
        history.add_all(at, {**points, "overview": {"x": 9.0}})
    assert history.columns("overview")["time"] == [0, 1, 2, 3]
    assert history.columns("stream/4")["time"] == [0, 1, 2, 3]
    assert history.columns("stream/0") == {"time": []}


def test_a_rate_is_what_a_counter_grew_by() -> None:
    assert rate(10, 30, 2.0) == 10.0
    assert rate(30, 10, 2.0) == 0.0  # the counter began anew
    assert rate(10, 30, 0.0) == 0.0
