"""Times at which a schedule fires: cron in a time zone, and what becomes of those that were missed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..cron import PRESETS, Cron, next_time_ns, parse_cron, with_seconds
from . import limits
from .errors import bad_request

__all__ = ["Missed", "Times", "check_missed", "parse_times"]

Missed = Literal["once", "all", "skip"]

_SECOND_US: Final = 1_000_000


class Times:
    """The times of a pattern, in microseconds since 1970."""

    def __init__(self, cron: Cron, zone: ZoneInfo) -> None:
        self._cron = cron
        self._zone = zone

    def after(self, us: int) -> int | None:
        """The first time after ``us``; None: there is none."""
        found = next_time_ns(self._cron, self._zone, us * 1000)
        return None if found is None else found // 1000

    def upcoming(self, us: int, n: int) -> Iterator[int]:
        """The next ``n`` times after ``us``."""
        for _ in range(n):
            found = self.after(us)
            if found is None:
                return
            yield found
            us = found

    def due(self, first_us: int, now_us: int, missed: Missed) -> list[int]:
        """Choose the times to be carried out from ``first_us``, which is one, until ``now_us``.

        ``all``: each, the oldest few first. ``once``: the newest, for all of them. ``skip``: the newest, if
        it is not late.
        """
        if missed == "all":
            later = self.upcoming(first_us, limits.SCHEDULE_RUNS_MAX - 1)
            return [first_us, *(us for us in later if us <= now_us)]
        newest = self._newest(first_us, now_us)
        is_late = now_us - newest > limits.SCHEDULE_LATE_S * _SECOND_US
        return [] if missed == "skip" and is_late else [newest]

    def _newest(self, first_us: int, now_us: int) -> int:
        """The last time until ``now_us``: halved, because a pattern may have a time in each second."""
        low, high, newest = first_us // _SECOND_US, now_us // _SECOND_US, first_us
        while low < high:
            middle = (low + high) // 2
            found = self.after(middle * _SECOND_US)
            if found is not None and found <= now_us:
                newest, low = found, found // _SECOND_US
            else:
                high = middle
        return newest


def parse_times(cron: str, time_zone: str) -> Times:
    """Read a pattern of five or six fields, or such as ``@daily``; 400 if it is none, or never comes."""
    try:
        if len(cron) > limits.CRON_CHARS_MAX:
            raise ValueError(f"it has {len(cron)} characters")
        read = parse_cron(with_seconds(cron))
    except ValueError as error:
        raise bad_request(
            "invalid_cron",
            f"{error}; five fields are accepted (minute hour day month weekday, such as 0 6 * * mon-fri), "
            f"six (seconds first), or one of {', '.join(PRESETS)}",
            "cron",
        ) from None
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise bad_request(
            "unknown_time_zone", "a name such as UTC or Europe/Berlin is accepted", "time_zone"
        ) from None
    return Times(read, zone)


def check_missed(missed: str) -> None:
    """Refuse any other word (400)."""
    if missed not in get_args(Missed):
        raise bad_request("invalid_missed", f"accepted are {', '.join(get_args(Missed))}", "missed")
