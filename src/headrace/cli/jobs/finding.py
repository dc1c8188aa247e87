"""``headrace jobs find`` and its like: jobs looked for, cancelled, handed out again, and dead ones."""

from __future__ import annotations

import itertools
from typing import Any, Final

import click

from ...jobs.client import JobsClient
from ..shared.asking import ask
from ..shared.output import Table
from ..shared.units import DURATION
from ..shared.verbs import Declare
from .commands import CHANNEL, CHANNEL_TOKEN, ONE, STATES, TOKEN, Args, Call
from .definitions import paths_of

__all__ = ["FINDING"]


def _dead(client: JobsClient, args: Args) -> Any:
    found = list(client.dead_jobs(args.channel, args.consumer))
    if args.json:
        return found
    table = Table(("JOB", "SINCE", "LAST ERROR"), right=frozenset(("JOB",)), empty="no dead jobs")
    for job in found:
        number = job["JobRequeueURL"].split("/")[-2]
        table.add(number, job["StatusChangedAt"], job["LastError"])
    return table


def _requeue(client: JobsClient, args: Args) -> Any:
    client.requeue_dead(args.channel, args.consumer, consumer_token=args.token or "")
    return "requeued"


def _purge(client: JobsClient, args: Args) -> Any:
    what = f"delete all dead jobs of {args.channel}/{args.consumer}"
    if args.dry_run:
        return {"dry_run": True, "would": what} if args.json else f"would {what}"
    if not args.force:
        ask(f"Really {what}?")
    count = client.purge_dead(
        args.channel,
        args.consumer,
        channel_token=args.channel_token or "",
        consumer_token=args.token or "",
    )
    return f"{count} deleted"


def _wanted(args: Args) -> dict[str, Any]:
    return {
        "consumer": args.consumer,
        "message": args.message,
        "states": args.state,
        "older_than_s": args.older_than or 0.0,
        "payload": paths_of(args.payload),
    }


def _find(client: JobsClient, args: Args) -> Any:
    found = list(itertools.islice(client.find_jobs(args.channel, **_wanted(args)), args.limit))
    if args.json:
        return found
    table = Table(
        ("JOB", "CONSUMER", "MESSAGE", "STATE", "SINCE", "CLAIMS", "LAST ERROR"),
        right=frozenset(("JOB", "CLAIMS")),
        empty="no such jobs",
    )
    for job in found:
        waits = job["waits_for"]
        state = job["state"] if waits in (None, "READY") else f"{job['state']} ({waits.lower()})"
        if blocker := job["blocked_by"]:
            why = f": {blocker['last_error']}" if blocker["last_error"] else ""
            state = f"QUEUED (blocked by {blocker['id']}{why})"
        if told := job["progress"]:
            share = "" if told["done"] is None else f"{told['done']:.0%}"
            state += f" ({': '.join(filter(None, (share, told['note'])))})"
        if job["cancelled_at"] and job["state"] == "INFLIGHT":
            state += " (to be cancelled)"
        table.add(
            job["id"], job["consumer"], job["message"], state, job["changed_at"], job["claims"],
            job["last_error"] or "",
        )  # fmt: skip
    return table


def _calls(client: JobsClient, args: Args) -> Any:
    found = client.endpoint_calls(args.channel, args.consumer, last_s=args.last)
    if args.json:
        return found
    table = Table(
        ("SINCE", "CALLS", "FAILED", "HALF WITHIN", "95% WITHIN"),
        right=frozenset(("CALLS", "FAILED", "HALF WITHIN", "95% WITHIN")),
        empty="no calls; only push consumers have any",
    )
    for slot in found:
        failed = f"{slot['failed']} ({slot['failed'] / slot['calls']:.0%})"
        spans = (f"{slot[name] * 1000:.0f} ms" for name in ("p50_seconds", "p95_seconds"))
        table.add(slot["at"], slot["calls"], failed, *spans)
    return table


def _cancel(client: JobsClient, args: Args) -> Any:
    wanted = {**_wanted(args), "job": args.job}
    would = client.cancel_jobs(args.channel, **wanted, dry_run=True)
    what = (
        f"cancel {would['waiting']} waiting and {would['running']} running jobs of {args.channel}"
    )
    if args.dry_run:
        return would if args.json else f"would {what}"
    if not args.force and would["waiting"] + would["running"]:
        ask(f"Really {what}?")
    done = client.cancel_jobs(args.channel, **wanted)
    if args.json:
        return done
    return (
        f"{done['waiting']} cancelled; {done['running']} that run are told at their next heartbeat"
    )


def _replay(client: JobsClient, args: Args) -> Any:
    wanted = {
        "consumer": args.consumer,
        "messages": args.message,
        "states": args.state,
        "since": args.since,
        "until": args.until,
        "payload": paths_of(args.payload),
        "rate_per_s": args.rate,
    }
    would = client.replay_jobs(args.channel, **wanted, dry_run=True)
    what = (
        f"hand out {would['delivered']} delivered and {would['dead']} dead jobs of "
        f"{args.channel} again"
    )
    if args.dry_run:
        return would if args.json else f"would {what}"
    if not args.force and would["delivered"] + would["dead"]:
        ask(f"Really {what}?")
    done = client.replay_jobs(args.channel, **wanted)
    if args.json:
        return done
    until = f", the last is due at {done['last_due_at']}" if args.rate else ""
    return f"{done['delivered'] + done['dead']} are handed out again{until}"


_PAYLOAD: Final = click.option(
    "--payload",
    multiple=True,
    metavar="PATH=PATTERN",
    help="whose message has this value in its JSON, such as '$.order.id=7'; repeatable",
)
_FILTERS: Final[tuple[Declare, ...]] = (
    click.option("--consumer", help="jobs of this consumer"),
    click.option("--message", metavar="ID", help="jobs of this message"),
    click.option("--older-than", type=DURATION, help="made at least so long ago, such as 90m"),
    _PAYLOAD,
)
_IN_STATE: Final = click.option(
    "--state",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="in this state; repeatable",
)
_UNFINISHED: Final = click.option(
    "--state",
    multiple=True,
    type=click.Choice(STATES[:2], case_sensitive=False),
    help="waiting or running ones only; both together are all jobs of the channel",
)
_LIMIT: Final = click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="the newest so many"
)

# fmt: off
FINDING: Final[tuple[tuple[str, str, Call, tuple[Declare, ...]], ...]] = (
    ("job", "a job with its attempts",
        lambda c, a: c.job(a.channel, a.consumer, a.job), (*ONE, click.argument("job"))),
    ("calls", "how a push consumer's endpoint answers: calls, failures, times", _calls, (*ONE,
        click.option("--last", type=DURATION, default="24h", show_default=True,
                     help="of the last so long, such as 90m"))),
    ("find", "jobs of a message, a consumer, in a state, of an age, newest first", _find,
        (CHANNEL, *_FILTERS, _IN_STATE, _LIMIT)),
    ("cancel", "cancel a job, or all that wait or run and match", _cancel,
        (CHANNEL, *_FILTERS, _UNFINISHED, click.option("--job", metavar="ID", help="this one"))),
    ("replay", "hand out delivered and dead jobs again, by message or by time", _replay,
        (CHANNEL, click.option("--consumer", help="jobs of this consumer; of each, if not given"),
         click.option("--message", multiple=True, metavar="ID", help="of this message; repeatable"),
         click.option("--since", metavar="TIME", help="made since then, RFC 3339"),
         click.option("--until", metavar="TIME", help="made until then, RFC 3339"),
         _PAYLOAD,
         click.option("--state", multiple=True, help="in this state only; repeatable",
                      type=click.Choice(STATES[2:], case_sensitive=False)),
         click.option("--rate", type=click.FloatRange(0), default=0.0, metavar="N",
                      help="so many in a second; all at once, if not given"))),
    ("dead", "dead jobs with their last error", _dead, ONE),
    ("requeue", "requeue all dead jobs", _requeue, (*ONE, TOKEN)),
    ("purge", "delete all dead jobs", _purge, (*ONE, TOKEN, CHANNEL_TOKEN)),
)
# fmt: on
