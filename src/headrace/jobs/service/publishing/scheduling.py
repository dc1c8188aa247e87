"""Schedules: a message that is published to its channel again and again, by cron.

A time is carried out by the transaction that moves the schedule on to its next one, so it is carried out
once, by whichever process. The id of its message is made of the schedule and the time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from ... import ids, limits
from ...errors import JobsError, not_found
from ...models import NewMessage, Options, Published, rfc3339
from ...schedules import Missed, check_missed, parse_times
from ...store import Row, Tx
from ..auditing import note_event
from ..definitions.channels import find_channel
from ..storing import Fresh, store_messages
from .accepting import check_message

__all__ = [
    "Fired",
    "NewSchedule",
    "check_of",
    "delete_schedule",
    "find_schedule",
    "fire_due",
    "list_schedules",
    "put_schedule",
]

_OF: Final = "X-Headrace-Schedule"
_AT: Final = "X-Headrace-Scheduled-At"
_ROWS: Final = 50  # of one transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """Definition of a schedule: what it publishes, and when."""

    cron: str
    time_zone: str
    missed: str
    paused: bool
    message: NewMessage


@dataclass(frozen=True, slots=True)
class Fired:
    """Count of schedules that were due, and of each channel the messages and jobs that were made."""

    due: int
    messages: Mapping[str, int]
    jobs: Mapping[str, int]


def check_of(message: NewMessage, options: Options, now: int) -> None:
    """400, 413 for a message that a schedule cannot publish, with the headers that each time has."""
    each = {**message.headers, _OF: "x" * limits.SCHEDULE_ID_CHARS_MAX, _AT: rfc3339(now)}
    check_message(replace(message, headers=each), options, now)


def put_schedule(
    tx: Tx, channel_id: str, schedule_id: str, given: NewSchedule, now: int
) -> tuple[Row, bool]:
    """Create a schedule, or replace the one of this id. Returns it, and whether it is new.

    Its next time is the first after ``now``. 400 for what cannot be, 404, 409 where a channel has too many.
    """
    ids.check_id(schedule_id, "scheduleId")
    if len(schedule_id) > limits.SCHEDULE_ID_CHARS_MAX:
        raise JobsError(
            400,
            "invalid_id",
            f"at most {limits.SCHEDULE_ID_CHARS_MAX} characters are accepted",
            "scheduleId",
        )
    check_missed(given.missed)
    next_us = parse_times(given.cron, given.time_zone).after(now)
    if next_us is None:
        raise JobsError(400, "invalid_cron", "this never comes", "cron")
    channel = find_channel(tx, channel_id)
    tx.run("hold_channel", seq=channel.seq)  # so that none are too many
    known = tx.one("get_schedule", channel_seq=channel.seq, schedule_id=schedule_id)
    if known is None and len(list_schedules(tx, channel.seq)) >= limits.SCHEDULES_MAX:
        raise JobsError(
            409,
            "too_many_schedules",
            f"a channel has at most {limits.SCHEDULES_MAX} schedules",
            "scheduleId",
        )
    message = given.message
    tx.run(
        "put_schedule",
        channel_seq=channel.seq,
        schedule_id=schedule_id,
        cron=given.cron,
        time_zone=given.time_zone,
        missed=given.missed,
        paused=int(given.paused),
        payload=message.payload,
        content_type=message.content_type,
        priority=message.priority,
        ordering_key=message.ordering_key,
        headers=json.dumps(message.headers),
        next_us=next_us,
        now=now,
    )
    return find_schedule(tx, channel.seq, schedule_id), known is None


def find_schedule(tx: Tx, channel_seq: int, schedule_id: str) -> Row:
    """A schedule; 404 if the channel has none of this id."""
    row = tx.one("get_schedule", channel_seq=channel_seq, schedule_id=schedule_id)
    if row is None:
        raise not_found("schedule", "scheduleId")
    return row


def list_schedules(tx: Tx, channel_seq: int) -> Sequence[Row]:
    """The schedules of a channel, by id."""
    return tx.all("list_schedules", channel_seq=channel_seq, n=limits.SCHEDULES_MAX)


def delete_schedule(tx: Tx, channel_seq: int, schedule_id: str) -> None:
    """Delete a schedule; what it has published stays. 404 if there is none."""
    if not tx.run("delete_schedule", channel_seq=channel_seq, schedule_id=schedule_id):
        raise not_found("schedule", "scheduleId")


def fire_due(tx: Tx, now: int) -> Fired:
    """Publish what a limited number of schedules that are due publish, and move each to its next time."""
    rows = tx.all("due_schedules", now=now, n=_ROWS)
    messages, jobs = Counter[str](), Counter[str]()
    left = limits.SCHEDULE_RUNS_MAX
    for row in rows:
        if left <= 0:
            break  # others write, too: the rest is due in the next transaction
        try:
            times = parse_times(row["cron"], row["time_zone"])
        except JobsError as error:  # this machine does not know the zone
            _stop(tx, row, str(error), now)
            continue
        due = times.due(row["next_us"], now, cast(Missed, row["missed"]))
        left -= len(due)
        for at in due:
            published = _publish(tx, row, at, now)
            messages[row["channel_id"]] += published is not None
            jobs[row["channel_id"]] += 0 if published is None else published.jobs
        tx.run(
            "move_schedule",
            seq=row["seq"],
            last_us=due[-1] if due else row["last_us"],
            next_us=times.after(due[-1] if row["missed"] == "all" else now),
        )
    return Fired(len(rows), messages, jobs)


def _publish(tx: Tx, row: Row, at: int, now: int) -> Published | None:
    """Publish what is published at this time; None: that was done before the clock was set back."""
    fresh = Fresh(row["channel_seq"], None, _message(row, at), bool(row["filtered"]))
    (published,) = store_messages(tx, [fresh], now)
    return published if isinstance(published, Published) else None


def _stop(tx: Tx, row: Row, why: str, now: int) -> None:
    """Give up one that cannot be carried out: the others can, and an event says so."""
    tx.run("stop_schedule", seq=row["seq"])
    detail = f"the schedule {row['schedule_id']} is paused: {why}"
    note_event(tx, "schedule_stopped", now, detail, row["channel_id"])


def _message(row: Row, at: int) -> NewMessage:
    return NewMessage(
        payload=row["payload"],
        content_type=row["content_type"],
        message_id=f"{row['schedule_id']}.{row['seq']}.{at // 1_000_000}",
        priority=row["priority"],
        ordering_key=row["ordering_key"],
        headers={
            **json.loads(row["headers"]),
            _OF: row["schedule_id"],
            _AT: rfc3339(at),
        },
    )
