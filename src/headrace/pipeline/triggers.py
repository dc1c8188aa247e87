"""When a query runs: always, once, every so often, at set times, or when enough waits for it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from ..quantities import parse_duration

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


# Not headrace.cron, which is nats-server's: there 1-31 restricts the days, 7 is no Sunday, names and
# empty parts are read, and what never comes is a pattern (the tests of both say so). A pipeline's file
# says which field is wrong.
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


Kind = Literal["continuous", "available now", "schedule", "lag"]

DAY_S: Final = 86_400.0
_LAG_KEYS: Final = ("lag", "after", "poll", "stream", "consumer", "group")


@dataclass(frozen=True)
class Trigger:
    """When a query runs.

    - ``continuous``: a micro-batch as soon as the one before is done, or every ``interval_s`` seconds.
    - ``available now``: everything that is there, then it is done.
    - ``schedule``: a run of that kind at the times of ``cron``, or every ``interval_s`` seconds.
    - ``lag``: such a run when ``mark`` messages wait, or the oldest of fewer has waited for ``after_s``.

    ``consumer`` or ``group`` of ``stream``: whose backlog is watched, instead of the query's own.
    """

    kind: Kind
    interval_s: float = 0.0
    cron: Cron | None = None
    mark: int = 0
    after_s: float = 0.0
    poll_s: float = 1.0
    stream: str = ""
    consumer: str = ""
    group: str = ""

    @property
    def is_bounded(self) -> bool:
        """Whether a run of the query has an end."""
        return self.kind != "continuous"

    def next_time(self, now: float) -> float:
        """When the next run of a schedule is due: seconds since the epoch, after ``now``."""
        if self.cron is not None:
            return self.cron.next_after(now)
        return (now // self.interval_s + 1) * self.interval_s


CONTINUOUS: Final = Trigger("continuous")
AVAILABLE_NOW: Final = Trigger("available now")

_ACCEPTED: Final = (
    "'continuous', 'every 10s', 'available now', { schedule = '*/15 * * * *' }, { schedule = 'every 1h' } or "
    "{ lag = 10000 }"
)


def parse_trigger(raw: Any) -> Trigger:
    """Read a trigger as it stands in the file. Raises ValueError that says what is accepted."""
    if isinstance(raw, str):
        return _from_text(raw.strip().lower())
    if isinstance(raw, dict) and "schedule" in raw:
        if set(raw) - {"schedule"}:
            raise ValueError(f"a schedule has no {', '.join(sorted(set(raw) - {'schedule'}))}")
        return _schedule(str(raw["schedule"]).strip())
    if isinstance(raw, dict) and "lag" in raw:
        return _lag(raw)
    raise ValueError(f"{raw!r} is not a trigger; accepted: {_ACCEPTED}")


def duration(text: str) -> float:
    """Seconds, more than 0. Raises ValueError."""
    seconds = parse_duration(text.strip())
    if not seconds:
        raise ValueError(
            f"{text!r} is not a duration here; accepted is more than 0, such as 250ms, 1h30m"
        )
    return seconds


def _from_text(text: str) -> Trigger:
    words = text.replace("_", " ").replace("-", " ")
    if words == "continuous":
        return CONTINUOUS
    if words in ("available now", "availablenow", "once"):
        return AVAILABLE_NOW
    if text.startswith("every "):
        return Trigger("continuous", duration(text.removeprefix("every ")))
    raise ValueError(f"{text!r} is not a trigger; accepted: {_ACCEPTED}")


def _schedule(text: str) -> Trigger:
    if text.lower().startswith("every "):
        seconds = duration(text[len("every ") :])
        if seconds > DAY_S:
            raise ValueError("'every' goes up to 1d; for more use five fields, such as '0 6 * * 1'")
        return Trigger("schedule", seconds)
    return Trigger("schedule", cron=Cron.parse(text))


def _lag(raw: dict[str, Any]) -> Trigger:
    unknown = sorted(set(raw) - set(_LAG_KEYS))
    if unknown:
        raise ValueError(
            f"a lag trigger has no {', '.join(unknown)}; accepted: {', '.join(_LAG_KEYS)}"
        )
    mark = raw["lag"]
    if not isinstance(mark, int) or isinstance(mark, bool) or mark < 1:
        raise ValueError(f"lag is {mark!r}; accepted: a number of messages, at least 1")
    whose = {key: str(raw.get(key, "")) for key in ("stream", "consumer", "group")}
    if whose["consumer"] and whose["group"]:
        raise ValueError("a lag trigger watches a consumer or a group, not both")
    if bool(whose["consumer"] or whose["group"]) != bool(whose["stream"]):
        raise ValueError("a lag trigger watches a consumer or a group of a stream: give both")
    return Trigger(
        "lag",
        mark=mark,
        after_s=duration(str(raw["after"])) if "after" in raw else 0.0,
        poll_s=duration(str(raw.get("poll", "1s"))),
        stream=whose["stream"],
        consumer=whose["consumer"],
        group=whose["group"],
    )
