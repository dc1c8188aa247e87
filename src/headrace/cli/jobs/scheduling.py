"""``headrace jobs schedule`` and its like: what is published again and again, by cron."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from ...jobs.client import JobsClient
from ..shared.output import Table
from ..shared.verbs import Declare
from .commands import Args, Call


def _schedule(client: JobsClient, args: Args) -> Any:
    payload = sys.stdin.buffer.read() if args.payload == "-" else args.payload.encode()
    answer = client.put_schedule(
        args.channel,
        args.name,
        args.cron,
        payload,
        time_zone=args.time_zone,
        missed=args.missed,
        paused=args.paused,
        content_type=args.content_type,
        subject=args.subject,
        ordering_key=args.ordering_key,
        priority=args.priority,
    )
    if args.json:
        return answer
    if args.paused:
        return f"{args.channel}/{args.name} is paused"
    return "\n".join([f"{args.channel}/{args.name} comes at", *answer["upcoming"]])


def _schedules(client: JobsClient, args: Args) -> Any:
    found = client.schedules(args.channel)
    if args.json:
        return found
    table = Table(
        ("SCHEDULE", "CRON", "TIME ZONE", "MISSED", "NEXT", "LAST"),
        empty="no schedules; `headrace jobs schedule CHANNEL NAME CRON PAYLOAD` makes one",
    )
    for one in found:
        comes = "paused" if one["paused"] else one["next_at"] or "never"
        table.add(
            one["id"], one["cron"], one["time_zone"], one["missed"], comes, one["last_at"] or ""
        )
    return table


def _unschedule(client: JobsClient, args: Args) -> Any:
    client.delete_schedule(args.channel, args.name)
    return f"{args.channel}/{args.name} is deleted; what it has published stays"


_CHANNEL: Final = click.argument("channel")
_NAME: Final = click.argument("name")
_DECLARE: Final[tuple[Declare, ...]] = (
    _CHANNEL,
    _NAME,
    click.argument("cron"),
    click.argument("payload"),
    click.option("--time-zone", default="UTC", show_default=True, help="such as Europe/Berlin"),
    click.option(
        "--missed",
        type=click.Choice(["once", "all", "skip"]),
        default="once",
        show_default=True,
        help="times at which no service ran: one message for all of them, each, none",
    ),
    click.option("--paused", is_flag=True, help="publish nothing until it is typed without"),
    click.option("--content-type", default="application/octet-stream"),
    click.option("--subject", help="of its messages, such as reports.daily"),
    click.option("--ordering-key", help="jobs of one key are handed out one at a time, in order"),
    click.option("--priority", type=int, default=0),
)

SCHEDULING: Final[tuple[tuple[str, str, Call, tuple[Declare, ...]], ...]] = (
    ("schedule", "publish a message again and again, by cron", _schedule, _DECLARE),
    ("schedules", "what a channel publishes again and again", _schedules, (_CHANNEL,)),
    ("unschedule", "delete a schedule", _unschedule, (_CHANNEL, _NAME)),
)
