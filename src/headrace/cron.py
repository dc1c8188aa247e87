"""Cron: patterns of six fields (seconds first), read, and the times at which they fire in a time zone.

Where clocks go forward, the times left out do not happen; where they go back, an hour happens twice.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, NamedTuple

__all__ = ["PRESETS", "Cron", "next_time_ns", "parse_cron", "with_seconds"]

_NS: Final = 1_000_000_000
_CHANGES_MAX: Final = 32  # of clocks before a pattern's next time: a leap day's is far ahead
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
PRESETS: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}


_MONTHS: Final = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
]  # fmt: skip
_DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_NUMBER: Final = re.compile(r"\+?\d{1,9}")
_YEARS_MAX: Final = 5  # a pattern without a time so far ahead has none
_STARS: Final = ("*", "?")


class _Bounds(NamedTuple):
    what: str
    low: int
    high: int
    names: dict[str, int]


_BOUNDS: Final = (
    _Bounds("second", 0, 59, {}),
    _Bounds("minute", 0, 59, {}),
    _Bounds("hour", 0, 23, {}),
    _Bounds("day of the month", 1, 31, {}),
    _Bounds("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Bounds("day of the week", 0, 6, {name: number for number, name in enumerate(_DAYS)}),
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


def with_seconds(pattern: str) -> str:
    """The six fields of a pattern that has five (minute first), six, or is one of ``PRESETS``."""
    named = PRESETS.get(pattern, pattern)
    return f"0 {named}" if len(named.split()) == len(_BOUNDS) - 1 else named


def parse_cron(pattern: str) -> Cron:
    """Read six fields. Raises ValueError: which is wrong, and what is accepted."""
    fields = pattern.split()
    if len(fields) != len(_BOUNDS):
        raise ValueError(f"{pattern!r} has {len(fields)} fields")
    values: list[frozenset[int]] = []
    stars: list[bool] = []
    for field, bounds in zip(fields, _BOUNDS, strict=True):
        found: set[int] = set()
        star = False
        for part in filter(None, field.split(",")):
            read = _read_range(part, bounds)
            if read is None:
                names = f", {', '.join(bounds.names)}" if bounds.names else ""
                raise ValueError(
                    f"{part!r} is no {bounds.what}; accepted: {bounds.low} to {bounds.high}{names}, *, 1-5, "
                    "1,2 and */15"
                )
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


def next_time_ns(cron: Cron, zone: tzinfo | None, after_ns: int) -> int | None:
    """The next time after ``after_ns`` on the wall clock of the zone, in nanoseconds; None: never."""
    wall = zone or UTC
    second = timedelta(seconds=1)
    try:
        start = _EPOCH + timedelta(seconds=after_ns // _NS) + second
        for _ in range(_CHANGES_MAX):
            offset = _offset(start, wall)
            found = cron.next_after((start + offset - second).replace(tzinfo=None))
            if found is None:
                return None
            candidate = found.replace(tzinfo=UTC) - offset
            if _offset(candidate, wall) == offset:
                return _seconds(candidate) * _NS
            # The clocks change before: look again from then on.
            start = _change(start, candidate, wall)
    except OverflowError:
        pass  # beyond the year 9999: never
    return None


def _offset(instant: datetime, wall: tzinfo) -> timedelta:
    return instant.astimezone(wall).utcoffset() or timedelta()


def _seconds(instant: datetime) -> int:
    passed = instant - _EPOCH
    return passed.days * 86_400 + passed.seconds


def _change(low: datetime, high: datetime, wall: tzinfo) -> datetime:
    """The first second, after ``low``, of another offset; ``high`` has one."""
    before = _offset(low, wall)
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        if _offset(middle, wall) == before:
            low = middle
        else:
            high = middle
    return high
