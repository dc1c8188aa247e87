"""Times of day in five fields, as cron has them, in UTC. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

_FIELDS: Final = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
)
_NAMED: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}
_PART: Final = re.compile(r"(\*|\d+)(?:-(\d+))?(?:/(\d+))?")
_SEARCH_DAYS: Final = 4 * 366 + 1  # 29 February comes within that


@dataclass(frozen=True)
class Cron:
    """``minute hour day month weekday``. If both days are given, either will do, as in cron."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Read five fields of numbers, lists, ranges and steps. Raises ValueError."""
        fields = _NAMED.get(text.lower(), text).split()
        if len(fields) != len(_FIELDS):
            raise ValueError(
                f"schedule {text!r} has {len(fields)} fields; accepted: 'minute hour day month weekday', "
                f"{', '.join(_NAMED)} or 'every 15m'"
            )
        sets = [_values(*each) for each in zip(fields, *zip(*_FIELDS, strict=True), strict=True)]
        weekdays = frozenset(day % 7 for day in sets[4])
        cron = cls(text, sets[0], sets[1], sets[2], sets[3], weekdays)
        cron.next_after(0.0)  # the 31st of a February never comes
        return cron

    def next_after(self, now: float) -> float:
        """The first time after ``now``; both in seconds since the epoch."""
        time = datetime.fromtimestamp(now, UTC).replace(second=0, microsecond=0)
        time += timedelta(minutes=1)
        last = time + timedelta(days=_SEARCH_DAYS)
        while time < last:
            if time.month not in self.months or not self._is_day(time):
                time = (time + timedelta(days=1)).replace(hour=0, minute=0)
            elif time.hour not in self.hours:
                time = (time + timedelta(hours=1)).replace(minute=0)
            elif time.minute not in self.minutes:
                time += timedelta(minutes=1)
            else:
                return time.timestamp()
        raise ValueError(f"schedule {self.text!r} has no time that ever comes")

    def _is_day(self, time: datetime) -> bool:
        by_date = time.day in self.days
        by_week = (time.weekday() + 1) % 7 in self.weekdays
        if len(self.days) == 31 or len(set(self.weekdays)) == 7:
            return by_date and by_week
        return by_date or by_week


def _values(field: str, name: str, low: int, high: int) -> frozenset[int]:
    values: set[int] = set()
    for part in field.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise ValueError(
                f"{part!r} is no {name}; accepted: {low} to {high}, *, 1-5, 1,2 and */15"
            )
        begin = low if found[1] == "*" else int(found[1])
        single = found[1] != "*" and not found[3]
        end = int(found[2]) if found[2] else begin if single else high
        step = int(found[3] or 1)
        if not low <= begin <= end <= high or step < 1:
            raise ValueError(f"{part!r} is no {name}; accepted: {low} to {high}")
        values.update(range(begin, end + 1, step))
    return frozenset(values)
