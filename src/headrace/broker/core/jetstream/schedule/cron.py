"""Cron patterns with seconds: ``second minute hour day-of-month month day-of-week``.

A field is a list of ``*``, ``?``, ``n``, ``n-m``, each with an optional ``/step``; months and days of the
week have English names of three letters, Sunday is 0. If both days are restricted, either may match.
Source: what the public server reads for message schedules.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from typing import Final, NamedTuple

__all__ = ["Cron", "parse_cron"]

_MONTHS: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_NUMBER: Final = re.compile(r"\+?\d{1,9}")
_YEARS_MAX: Final = 5  # a pattern without a time so far ahead has none
_STARS: Final = ("*", "?")


class _Bounds(NamedTuple):
    low: int
    high: int
    names: dict[str, int]


_BOUNDS: Final = (
    _Bounds(0, 59, {}),
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Bounds(0, 6, {name: number for number, name in enumerate(_DAYS)}),
)


class Cron(NamedTuple):
    """A pattern, parsed. ``either_day``: one matching day is enough, since both are restricted."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after ``moment``, on the same wall clock; None if there is none in years."""
        start = moment.replace(microsecond=0) + timedelta(seconds=1)
        day, first = start.date(), start.time()
        last = date(min(day.year + _YEARS_MAX, 9999), 12, 31)
        while day <= last:
            if self._matches(day):
                found = self._first_time(first)
                if found is not None:
                    return datetime.combine(day, found)
            if day == date.max:
                break
            day, first = day + timedelta(days=1), time.min
        return None

    def _matches(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day = day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        return by_day or by_weekday if self.either_day else by_day and by_weekday

    def _first_time(self, start: time) -> time | None:
        for hour in self.hours:
            if hour < start.hour:
                continue
            for minute in self.minutes:
                if hour == start.hour and minute < start.minute:
                    continue
                for second in self.seconds:
                    found = time(hour, minute, second)
                    if found >= start:
                        return found
        return None


def parse_cron(pattern: str) -> Cron | None:
    """The pattern, or None if it is none."""
    fields = pattern.split()
    if len(fields) != len(_BOUNDS):
        return None
    values: list[frozenset[int]] = []
    stars: list[bool] = []
    for field, bounds in zip(fields, _BOUNDS, strict=True):
        found: set[int] = set()
        star = False
        for part in filter(None, field.split(",")):
            read = _read_range(part, bounds)
            if read is None:
                return None
            found.update(read)
            star = star or _is_star(part)
        values.append(frozenset(found))
        stars.append(star)
    seconds, minutes, hours = (tuple(sorted(value)) for value in values[:3])
    either_day = not stars[3] and not stars[5]
    return Cron(seconds, minutes, hours, values[3], values[4], values[5], either_day)


def _is_star(part: str) -> bool:
    start, _, step = part.partition("/")
    return start.partition("-")[0] in _STARS and step in ("", "1")


def _read_range(part: str, bounds: _Bounds) -> range | None:
    span, *steps = part.split("/")
    ends = span.split("-")
    if len(steps) > 1:
        return None
    step = _number(steps[0], {}) if steps else 1
    low: int | None
    high: int | None
    if ends[0] in _STARS:
        low, high = bounds.low, bounds.high
    else:
        if len(ends) > 2:
            return None
        low, high = _number(ends[0], bounds.names), _number(ends[-1], bounds.names)
        if steps and len(ends) == 1:
            high = bounds.high
    if low is None or high is None or not step:
        return None
    if not bounds.low <= low <= high <= bounds.high:
        return None
    return range(low, high + 1, step)


def _number(text: str, names: dict[str, int]) -> int | None:
    named = names.get(text.lower())
    if named is not None:
        return named
    return int(text) if _NUMBER.fullmatch(text) else None
