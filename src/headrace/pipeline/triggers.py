"""When a query runs: always, once, every so often, at set times, or when enough waits for it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final, Literal

from ..cron import PRESETS, Cron, next_time_ns, parse_cron, with_seconds
from ..quantities import parse_duration

_NS: Final = 1_000_000_000


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
            found = next_time_ns(self.cron, UTC, int(now * _NS))
            return math.inf if found is None else found / _NS
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
    try:
        cron = parse_cron(with_seconds(text.lower()))
    except ValueError as error:
        raise ValueError(
            f"schedule {text!r}: {error}; accepted: 'minute hour day month weekday', such as "
            f"'0 6 * * mon-fri', {', '.join(PRESETS)} or 'every 15m'"
        ) from None
    if next_time_ns(cron, UTC, 0) is None:  # the 31st of a February
        raise ValueError(f"schedule {text!r} has no time that ever comes")
    return Trigger("schedule", cron=cron)


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
