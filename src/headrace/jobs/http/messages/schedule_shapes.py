"""The bodies of requests about schedules, and of their answers."""

from __future__ import annotations

import msgspec

from ..shapes import BatchMessage

__all__ = ["ScheduleBody", "ScheduleDetail", "ScheduleShape", "Schedules"]


class ScheduleBody(msgspec.Struct, forbid_unknown_fields=True):
    cron: str
    message: BatchMessage
    time_zone: str = "UTC"
    missed: str = "once"
    paused: bool = False


class ScheduleShape(msgspec.Struct):
    id: str
    cron: str
    time_zone: str
    missed: str
    paused: bool
    next_at: str | None
    last_at: str | None


class Schedules(msgspec.Struct):
    schedules: list[ScheduleShape]


class ScheduleDetail(ScheduleShape):
    message: BatchMessage
    upcoming: list[str]
