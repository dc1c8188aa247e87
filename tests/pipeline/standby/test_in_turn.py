"""One runner of a machine starts at a time: several would take the processors from what runs there."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from headrace.pipeline.standby.readiness import LOOK_S, REST_MAX_S, WAITS_S, in_turn

pytest.importorskip("fcntl")


class Clock:
    """One that only sleeping moves; it calls what is to be called later."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, Callable[[], object]]] = []

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        due = [call for at, call in self.calls if at <= self.now]
        self.calls = [(at, call) for at, call in self.calls if at > self.now]
        for call in due:
            call()

    def steady(self) -> float:
        return self.now

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        self.calls.append((self.now + delay_s, call))

    def turn(self, folder: Path, until: float = math.inf) -> AbstractContextManager[bool]:
        return in_turn(lambda: self.now > until, self.go_on, self.steady, folder, self.later)


def test_one_at_a_time_and_who_waits_too_long_goes_on(tmp_path: Path) -> None:
    clock = Clock()
    with clock.turn(tmp_path) as first:
        assert first
        with clock.turn(tmp_path) as second:
            assert not second
            assert clock.now >= WAITS_S
    with clock.turn(tmp_path) as third:
        assert third


def test_between_two_there_is_a_rest(tmp_path: Path) -> None:
    clock = Clock()
    with clock.turn(tmp_path):
        clock.go_on(4)
    assert clock.now == 4  # who had the turn goes on at once
    with clock.turn(tmp_path) as second:
        assert second
        assert clock.now == pytest.approx(6, abs=LOOK_S)
        clock.go_on(60)
    with clock.turn(tmp_path):
        assert clock.now == pytest.approx(66 + REST_MAX_S, abs=LOOK_S)


def test_where_no_thread_can_be_begun_there_is_no_rest(tmp_path: Path) -> None:
    def later(delay_s: float, call: Callable[[], object]) -> None:
        raise RuntimeError("can't start new thread")

    clock = Clock()
    with in_turn(lambda: False, clock.go_on, clock.steady, tmp_path, later) as first:
        assert first
        clock.go_on(4)
    with clock.turn(tmp_path) as second:
        assert second
        assert clock.now == 4


def test_who_is_to_end_does_not_wait(tmp_path: Path) -> None:
    clock = Clock()
    with clock.turn(tmp_path), clock.turn(tmp_path, until=1) as second:
        assert not second
        assert clock.now < 2


def test_a_folder_that_cannot_be_written_keeps_nobody(tmp_path: Path) -> None:
    with Clock().turn(tmp_path / "missing") as turn:
        assert not turn


def test_a_rest_ends_by_itself(tmp_path: Path) -> None:
    waits = threading.Event().wait
    with in_turn(lambda: False, waits, time.monotonic, tmp_path):
        pass
    with in_turn(lambda: False, waits, time.monotonic, tmp_path) as second:
        assert second
