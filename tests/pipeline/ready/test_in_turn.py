from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline.ready.in_turn import WAITS_S, in_turn

pytest.importorskip("fcntl")


class Clock:
    """One that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def steady(self) -> float:
        return self.now


def test_one_at_a_time_and_who_waits_too_long_goes_on(tmp_path: Path) -> None:
    clock = Clock()
    with in_turn(lambda: False, clock.sleep, clock.steady, tmp_path) as first:
        assert first
        with in_turn(lambda: False, clock.sleep, clock.steady, tmp_path) as second:
            assert not second
            assert clock.now >= WAITS_S
    with in_turn(lambda: False, clock.sleep, clock.steady, tmp_path) as third:
        assert third


def test_who_is_to_end_does_not_wait(tmp_path: Path) -> None:
    clock = Clock()
    with (
        in_turn(lambda: False, clock.sleep, clock.steady, tmp_path),
        in_turn(lambda: clock.now > 1, clock.sleep, clock.steady, tmp_path) as second,
    ):
        assert not second
        assert clock.now < 2


def test_a_folder_that_cannot_be_written_keeps_nobody(tmp_path: Path) -> None:
    clock = Clock()
    with in_turn(lambda: False, clock.sleep, clock.steady, tmp_path / "missing") as turn:
        assert not turn
