from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa

from headrace.demo.plot import Hour, by_hour, draw
from headrace.demo.screen import Screen, worst_aircraft


def table() -> pa.Table:
    return pa.table(
        {
            "sequence": [1, 2, 3, 4],
            "tailnum": ["A", "A", "B", "B"],
            "carrier": ["UA"] * 4,
            "hour": pa.array([6, 7, 7, 8], pa.int32()),
            "carried": pa.array([None, 10, 20, None], pa.int32()),
            "added": pa.array([None, 5, 15, None], pa.int32()),
        }
    )


def test_hours_are_the_means_of_the_legs_that_follow_another() -> None:
    assert by_hour(table()) == [Hour(7, 2, 15.0, 10.0)]


def test_the_picture_is_there_complete_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "delays.png"
    draw([Hour(7, 10, 3.0, 4.0), Hour(8, 10, 0.0, 0.0)], target, flights=20)
    assert target.read_bytes().startswith(b"\x89PNG")
    draw([], target, flights=0)
    assert [p.name for p in tmp_path.iterdir()] == ["delays.png"]


def test_the_worst_aircraft_come_first() -> None:
    rows = worst_aircraft(table(), 5)
    assert [(r["tailnum"], r["carried_sum"], r["late_sum"]) for r in rows] == [
        ("B", 20, 35),
        ("A", 10, 15),
    ]


def test_stages_show_their_rates_and_what_came_after_warming_up() -> None:
    screen = Screen()
    out = io.StringIO()
    screen._console.file = out
    with screen.stage("Read", 30, warms_up=True) as advance:
        advance(10)
        advance(20)
    with screen.stage("Start"):
        pass
    screen.show_stages()
    screen.show_aircraft(table())
    screen.close()
    text = out.getvalue()
    assert [stage.messages for stage in screen.stages] == [30, 20, 0]
    assert "after the first batch" in text
    assert "30" in text
