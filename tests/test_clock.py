from __future__ import annotations

from typing import Final

import pytest

from headrace.clock import Jump, ManualClock, SteadyClock

SECOND: Final = 1_000_000_000

Watched = tuple[ManualClock, SteadyClock, list[Jump]]


@pytest.fixture
def watched() -> Watched:
    told: list[Jump] = []
    wall = ManualClock()
    clock = SteadyClock(wall)
    clock.on_jump = told.append
    return wall, clock, told


def test_jumps_are_told_of_and_counted(
    watched: Watched,
) -> None:
    wall, clock, told = watched
    begin_ns = clock.now_ns()
    wall.jump(0.5)
    assert clock.now_ns() == begin_ns + SECOND // 2
    wall.jump(-0.5)
    clock.now_ns()
    wall.jump(3600)
    assert (clock.now_ns(), clock.held_ns) == (begin_ns, 3600 * SECOND)
    wall.advance(30)
    wall.jump(-3600)
    assert (clock.now_ns(), clock.held_ns, clock.jumps) == (wall.now_ns(), 0, 0)
    wall.jump(-7200)
    clock.now_ns()
    wall.advance(59)
    assert clock.now_ns() == wall.now_ns() + 7200 * SECOND
    wall.advance(1)
    assert (clock.now_ns(), clock.jumps, clock.held_ns) == (wall.now_ns(), 1, 0)
    hour = 3600 * SECOND
    assert told == [
        Jump(hour, "seen"),
        Jump(hour, "over"),
        Jump(-2 * hour, "seen"),
        Jump(-2 * hour, "followed"),
    ]


def test_a_clock_that_jumps_again_and_again_is_waited_for(
    watched: Watched,
) -> None:
    wall, clock, told = watched
    begin_ns = clock.now_ns()
    for number in range(100):
        wall.jump(3600 if number % 2 else -1000)
        wall.advance(30)
        assert clock.now_ns() == begin_ns + wall.monotonic_ns()
    assert {each.what for each in told} == {"seen"}
