"""What ``headrace demo`` does and finds: the picture of the landing page, from the figures of a whole run."""

from __future__ import annotations

from typing import Final, NamedTuple

from .canvas import AMBER, BLUE, GREEN, QUIET, RED, Canvas

__all__ = ["CHAINED", "FLIGHTS", "HOURS", "Hour", "demo"]


class Hour(NamedTuple):
    """Legs of one local hour of departure: how many, and their mean delay in minutes, from where."""

    hour: int
    legs: int
    carried: float
    added: float


FLIGHTS: Final = 336_776
CHAINED: Final = 73_399
"""Legs that follow another one of the same aircraft within ten hours."""

HOURS: Final = (
    Hour(7, 642, 2.32, 4.22),
    Hour(8, 936, 2.02, 8.33),
    Hour(9, 595, 3.96, 11.63),
    Hour(10, 1285, 2.82, 11.29),
    Hour(11, 2277, 3.46, 10.66),
    Hour(12, 4481, 4.19, 8.94),
    Hour(13, 7229, 3.80, 9.76),
    Hour(14, 8165, 4.33, 12.54),
    Hour(15, 7956, 4.84, 15.21),
    Hour(16, 7588, 5.27, 16.02),
    Hour(17, 7087, 6.29, 18.84),
    Hour(18, 5871, 7.28, 17.49),
    Hour(19, 6919, 8.90, 19.10),
    Hour(20, 5163, 10.94, 17.02),
    Hour(21, 5181, 12.62, 13.36),
    Hour(22, 1618, 12.00, 8.10),
    Hour(23, 406, 13.75, 6.92),
)
"""``headrace.demo.plot.by_hour`` of all flights; a test compares them with the data."""

_LEFT, _GROUND, _STEP, _WIDE = 66, 440, 49, 38
_MINUTE: Final = 7.6  # pixels


def demo() -> Canvas:
    """The way of the flights above, what is found below."""
    sheet = Canvas(
        920, 500,
        "headrace demo publishes a year of flights to a stream; Spark reads them as a member of a group and "
        "follows each aircraft from leg to leg. In the morning a fifth of a late departure came with the "
        "aircraft, late in the evening two thirds.",
    )  # fmt: skip
    steps = [
        ("A year of flights", f"{FLIGHTS:,}, from New York", QUIET),
        ("Stream FLIGHTS", "on disk, in order", BLUE),
        ("Spark, in a group", "each aircraft in order", GREEN),
        ("Stream LEGS, Parquet", "each leg exactly once", AMBER),
    ]
    for number, (name, what, colour) in enumerate(steps):
        left = 24 + number * 224
        sheet.box(left, 24, 188, 60, name, what, colour=colour)
        if number:
            sheet.arrow(left - 33, 54, left - 5, 54)
    sheet.text(24, 122, "How much of a late departure the aircraft brought along", is_bold=True,
               size=16)  # fmt: skip
    sheet.text(24, 142, f"mean minutes, by hour of departure; {CHAINED:,} legs that follow another one",
               size=12, colour=QUIET)  # fmt: skip
    sheet.bar(24, 158, 12, 12, RED)
    sheet.text(42, 168, "came with the aircraft, and its share", size=12)
    sheet.bar(302, 158, 12, 12, BLUE, is_pale=True)
    sheet.text(320, 168, "added on the ground", size=12)
    _chart(sheet)
    return sheet


def _chart(sheet: Canvas) -> None:
    for minutes in (0, 10, 20):
        y = round(_GROUND - minutes * _MINUTE)
        sheet.line(_LEFT - 8, y, 900, y)
        sheet.text(_LEFT - 16, y + 4, str(minutes), anchor="end", size=11, colour=QUIET)
    for number, each in enumerate(HOURS):
        left = _LEFT + number * _STEP
        carried, whole = (
            round(part * _MINUTE) for part in (each.carried, each.carried + each.added)
        )
        sheet.bar(left, _GROUND - whole, _WIDE, whole - carried, BLUE, is_pale=True)
        sheet.bar(left, _GROUND - carried, _WIDE, carried, RED)
        middle = left + _WIDE // 2
        share = each.carried / (each.carried + each.added)
        sheet.text(middle, _GROUND - whole - 6, f"{share:.0%}", anchor="middle", size=12, colour=RED,
                   is_bold=True)  # fmt: skip
        sheet.text(middle, _GROUND + 18, f"{each.hour}:00", anchor="middle", size=11, colour=QUIET)
    sheet.text(_LEFT, _GROUND + 44, "pip install “headrace[demo]”, then headrace demo: a minute on two cores",
               size=12, colour=QUIET)  # fmt: skip
