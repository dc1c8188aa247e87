"""What the verbs of ``headrace jobs`` take, and what they do."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import click

from ...jobs.client import JobsClient, JobsError
from ...jobs.config import Config, load_config
from .. import loop_factory
from ..shared.asking import ask
from ..shared.errors import Failure
from ..shared.notify import tell_manager
from ..shared.output import Output, Table
from ..shared.units import DURATION
from ..shared.verbs import Declare

Args = SimpleNamespace
"""What was typed: ``url``, ``output``, ``json`` (whether a program reads it), and what the verb takes."""

Call = Callable[[JobsClient, Args], Any]

_MISSING: Final = 404
URL: Final = "http://127.0.0.1:8080"
_SERVE_FLAGS: Final[tuple[tuple[str, type, str], ...]] = (
    ("host", str, "address to listen on (default 127.0.0.1)"),
    ("port", int, "port to listen on, 0 for any (default 8080)"),
    ("database", str, "sqlite:///path.db or postgresql://… (default sqlite:///headrace-jobs.db)"),
    ("database_threads", int, "connections to PostgreSQL (default 8)"),
    (
        "max_retries",
        int,
        "retries of new consumers (default 17: with their delays, more than a day)",
    ),
    ("rational_delay_seconds", float, "added to the time limit of a pull job (default 2)"),
    ("connection_timeout_seconds", float, "time limit of a push call or a pull job (default 30)"),
    ("schedule_min_delay_seconds", float, "minimum delay of scheduled messages (default 120)"),
    ("payload_bytes_max", int, "largest payload (default 1048576)"),
    ("drain_seconds", float, "time to finish work in progress when stopped (default 15)"),
    ("keep_messages_days", float, "age at which finished messages are removed (default: never)"),
    ("keep_dead_days", float, "age at which dead letters are removed with them (default: never)"),
    ("archive_directory", str, "where removed messages are kept as JSON lines (default: nowhere)"),
)


CONFIG_OPTIONS: Final[tuple[Declare, ...]] = (
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        default=None,
        metavar="FILE",
        help="TOML file; flags override it",
    ),
    *(
        click.option(
            f"--{name.replace('_', '-')}", type=kind, default=None, help=text, metavar="VALUE"
        )
        for name, kind, text in _SERVE_FLAGS
    ),
)

ARCHIVE_OPTIONS: Final[tuple[Declare, ...]] = (
    click.argument("directory", type=click.Path(path_type=Path)),
    click.option("--message", metavar="ID", help="the message of this id"),
    click.option("--job", metavar="ID", help="the message of this job"),
    click.option("--channel", help="of this channel only"),
)

SERVE_OPTIONS: Final[tuple[Declare, ...]] = (
    click.option(
        "--allow-network",
        "allow_networks",
        multiple=True,
        metavar="NETWORK",
        help="a non-public network that push may call, such as 127.0.0.0/8; repeatable",
    ),
    click.option(
        "--allow-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="a name under which clients reach the service, beside this machine's own; repeatable",
    ),
    click.option("--https-only", flag_value=True, default=None, help="push to https URLs only"),
    click.option("--no-push", "push", flag_value=False, default=None, help="never push"),
    click.option(
        "--insecure",
        flag_value=True,
        default=None,
        help="allow other machines to connect without an admin token",
    ),
)


def configuration(args: Args) -> Config:
    """The settings of the file and the flags, checked."""
    names = [name for name, _, _ in _SERVE_FLAGS]
    names += ["allow_networks", "allowed_hosts", "https_only", "push", "insecure"]
    given = {name: getattr(args, name, None) for name in names}
    for name in ("allow_networks", "allowed_hosts"):
        given[name] = list(given[name] or ()) or None
    given["admin_token"] = os.environ.get("HEADRACE_JOBS_ADMIN_TOKEN") or None
    return load_config(
        args.config, {name: value for name, value in given.items() if value is not None}
    )


def serve_command(args: Args) -> int:
    from ...jobs.server import serve

    config = configuration(args)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )

    def ready(url: str) -> None:
        print(f"headrace jobs: listening on {url}", flush=True)
        tell_manager("READY=1", f"STATUS=listening on {url}")

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        read_again = None if args.config is None else partial(configuration, args)
        runner.run(serve(config, ready, read_again, partial(tell_manager, "STOPPING=1")))
    return 0


def prune_command(args: Args) -> int:
    from ...jobs.server import make_maintenance, make_runtime

    config = configuration(args)

    async def prune() -> dict[str, int]:
        runtime = make_runtime(config)
        await runtime.start()
        try:
            return (await make_maintenance(runtime, config).retain()).rows
        finally:
            await runtime.close()

    rows = asyncio.run(prune())
    print("removed " + ", ".join(f"{count} {table}" for table, count in sorted(rows.items())))
    return 0


def archive_read_command(args: Args) -> int:
    """Show archived messages, as they were written."""
    from ...jobs.archive import read_archive

    if args.job is None and args.message is None:
        raise Failure("say what to look for: --message ID or --job ID")
    found = list(
        read_archive(args.directory, channel=args.channel, message=args.message, job=args.job)
    )
    form = args.output.form
    Output("json" if form == "text" else form).show(found)
    if not found:
        raise Failure("the archive has no such message or job")
    return 0


def speak(carry_out: Call, args: Args) -> int:
    """Ask the service, and show the answer."""
    admin_token = os.environ.get("HEADRACE_JOBS_ADMIN_TOKEN")
    with JobsClient(args.url, admin_token=admin_token) as client:
        answer = carry_out(client, args)
    if answer is None:
        return 0  # it was a dry run, and said what it would do
    if isinstance(answer, str | Table):
        args.output.show(answer, answer)
    elif isinstance(answer, list):
        args.output.show(answer, *map(str, answer))
    else:
        form = args.output.form
        Output("json" if form == "text" else form).show(answer)
    return 0


def _status(client: JobsClient, args: Args) -> Any:
    status = client.status()
    if args.json:
        return status
    numbers = ("QUEUED", "INFLIGHT", "DELIVERED", "DEAD")
    table = Table(
        ("CONSUMER", "TYPE", *numbers, "STATE"),
        right=frozenset(numbers),
        empty="no consumers; `headrace jobs consumer CHANNEL NAME` creates one",
    )
    for one in status["consumers"]:
        disabled = f"disabled: {one['disabled_reason']}" if one["disabled_reason"] else ""
        left = "not in the configuration any more" if one["left_configuration"] else ""
        state = " ".join(filter(None, ("paused" if one["paused"] else "", disabled, left)))
        counts = (one["jobs"][each] for each in numbers)
        table.add(f"{one['channel']}/{one['consumer']}", one["type"], *counts, state)
    return table


def _put_channel(client: JobsClient, args: Args) -> Any:
    if args.events_to:
        client.channel(args.events_to)  # before anything is made
    answer = client.put_channel(args.channel, token=args.token, name=args.name)
    if args.events_to is not None:
        client.set_events_channel(args.channel, args.events_to or None)
    return answer


def _put_consumer(client: JobsClient, args: Args) -> Any:
    if args.max_retries is not None and not args.force:
        _ask_about_dying(client, args)
    return client.put_consumer(
        args.channel,
        args.consumer,
        token=args.token,
        name=args.name,
        kind=args.type,
        callback_url=args.callback_url,
        max_retries=args.max_retries,
    )


def _ask_about_dying(client: JobsClient, args: Args) -> None:
    try:
        would = client.patch_consumer(
            args.channel, args.consumer, max_retries=args.max_retries, dry_run=True
        )
    except JobsError as error:
        if error.status == _MISSING:
            return
        raise
    if would["dying"]:
        ask(
            f"With {args.max_retries} instead of {would['max_retries']} retries, the next failure of "
            f"{would['dying']} unfinished jobs of {args.channel}/{args.consumer} is their last. Change it?"
        )


def _token(client: JobsClient, args: Args) -> Any:
    if args.only and args.token is None:
        raise Failure("--only needs --token: without it nobody would know the only token")
    token = client.rotate_token(
        args.channel, args.consumer, token=args.token, keep_previous=not args.only
    )
    kept = "no other is accepted" if args.only else "the one before is accepted, too"
    return {"token": token} if args.json else f"{token}\n{kept}"


def _publish(client: JobsClient, args: Args) -> Any:
    payload = sys.stdin.buffer.read() if args.payload == "-" else args.payload.encode()
    return client.publish(
        args.channel,
        payload,
        channel_token=args.channel_token,
        producer=args.producer,
        producer_token=args.producer_token,
        content_type=args.content_type,
        message_id=args.id,
        priority=args.priority,
        subject=args.subject,
        scheduled_for=args.at,
    )


def _change(client: JobsClient, args: Args, **change: Any) -> Any:
    answer = client.patch_consumer(args.channel, args.consumer, **change)
    return answer if args.json else f"{args.channel}/{args.consumer}: changed"


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
    client.requeue_dead(args.channel, args.consumer, consumer_token=args.token)
    return "requeued"


def _purge(client: JobsClient, args: Args) -> Any:
    what = f"delete all dead jobs of {args.channel}/{args.consumer}"
    if args.dry_run:
        return {"dry_run": True, "would": what} if args.json else f"would {what}"
    if not args.force:
        ask(f"Really {what}?")
    count = client.purge_dead(
        args.channel, args.consumer, channel_token=args.channel_token, consumer_token=args.token
    )
    return f"{count} deleted"


def _wanted(args: Args) -> dict[str, Any]:
    return {
        "consumer": args.consumer,
        "message": args.message,
        "states": args.state,
        "older_than_s": args.older_than or 0.0,
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
        if job["cancelled_at"] and job["state"] == "INFLIGHT":
            state += " (to be cancelled)"
        table.add(
            job["id"], job["consumer"], job["message"], state, job["changed_at"], job["claims"],
            job["last_error"] or "",
        )  # fmt: skip
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


def _events(client: JobsClient, args: Args) -> Any:
    found = client.events()
    if args.json:
        return found
    return [
        f"{one['at']} {one['kind']} {one['channel']}/{one['consumer']}: {one['detail']}"
        for one in found
    ]


_CHANNEL: Final = click.argument("channel")
_CONSUMER: Final = click.argument("consumer")
_NAMED: Final[tuple[Declare, ...]] = (
    click.option("--token", help="kept, or made for a new one, when not given"),
    click.option("--name"),
)

_ONE: Final = (_CHANNEL, _CONSUMER)
_KEPT: Final[tuple[Declare, ...]] = (
    click.option("--type", type=click.Choice(["push", "pull"])),
    click.option("--callback-url"),
    click.option("--max-retries", type=int),
    click.option("-f", "--force", is_flag=True, help="do not ask what dies of fewer retries"),
)
_MESSAGE: Final[tuple[Declare, ...]] = (
    click.argument("payload"),
    click.option("--channel-token", required=True),
    click.option("--producer", required=True),
    click.option("--producer-token", required=True),
    click.option("--content-type", default="application/octet-stream"),
    click.option("--id", help="a message id, unique in the channel"),
    click.option("--priority", type=int, default=0),
    click.option("--subject", help="what it is about, such as orders.eu.paid; filters go by it"),
    click.option("--at", help="when to dispatch, RFC 3339"),
)
_STATES: Final = ("QUEUED", "INFLIGHT", "DELIVERED", "DEAD")
_FILTERS: Final[tuple[Declare, ...]] = (
    click.option("--consumer", help="jobs of this consumer"),
    click.option("--message", metavar="ID", help="jobs of this message"),
    click.option("--older-than", type=DURATION, help="made at least so long ago, such as 90m"),
)
_IN_STATE: Final = click.option(
    "--state",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="in this state; repeatable",
)
_UNFINISHED: Final = click.option(
    "--state",
    multiple=True,
    type=click.Choice(_STATES[:2], case_sensitive=False),
    help="waiting or running ones only; both together are all jobs of the channel",
)
_LIMIT: Final = click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="the newest so many"
)
_TOKEN: Final = click.option("--token", required=True)
_CHANNEL_TOKEN: Final = click.option("--channel-token", required=True)

# fmt: off
REMOTE: Final[tuple[tuple[str, str, Call, tuple[Declare, ...]], ...]] = (
    ("status", "counts of every consumer", _status, ()),
    ("events", "the newest events of the service", _events, ()),
    ("channel", "create or change a channel", _put_channel, (_CHANNEL, *_NAMED,
        click.option("--events-to", metavar="CHANNEL", help="tell this channel of jobs that fail, "
                     "recover or die, and of consumers that are disabled; '' ends that"))),
    ("producer", "create or change a producer",
        lambda c, a: c.put_producer(a.producer, token=a.token, name=a.name),
        (click.argument("producer"), *_NAMED)),
    ("consumer", "create or change a consumer", _put_consumer, (*_ONE, *_NAMED, *_KEPT)),
    ("token", "give a consumer another token; the one before is accepted, too", _token,
        (*_ONE, click.option("--token", help="this one; a new one is made and shown when not given"),
         click.option("--only", is_flag=True, help="accept no other from now on"))),
    ("publish", "broadcast a message", _publish, (_CHANNEL, *_MESSAGE)),
    ("pause", "stop handing out jobs", lambda c, a: _change(c, a, paused=True), _ONE),
    ("resume", "hand out jobs again", lambda c, a: _change(c, a, paused=False), _ONE),
    ("enable", "call a disabled endpoint again", lambda c, a: _change(c, a, enable=True), _ONE),
    ("job", "a job with its attempts",
        lambda c, a: c.job(a.channel, a.consumer, a.job), (*_ONE, click.argument("job"))),
    ("find", "jobs of a message, a consumer, in a state, of an age, newest first", _find,
        (_CHANNEL, *_FILTERS, _IN_STATE, _LIMIT)),
    ("cancel", "cancel a job, or all that wait or run and match", _cancel,
        (_CHANNEL, *_FILTERS, _UNFINISHED, click.option("--job", metavar="ID", help="this one"))),
    ("replay", "hand out delivered and dead jobs again, by message or by time", _replay,
        (_CHANNEL, click.option("--consumer", help="jobs of this consumer; of each, if not given"),
         click.option("--message", multiple=True, metavar="ID", help="of this message; repeatable"),
         click.option("--since", metavar="TIME", help="made since then, RFC 3339"),
         click.option("--until", metavar="TIME", help="made until then, RFC 3339"),
         click.option("--state", multiple=True, help="in this state only; repeatable",
                      type=click.Choice(_STATES[2:], case_sensitive=False)),
         click.option("--rate", type=click.FloatRange(0), default=0.0, metavar="N",
                      help="so many in a second; all at once, if not given"))),
    ("dead", "dead jobs with their last error", _dead, _ONE),
    ("requeue", "requeue all dead jobs", _requeue, (*_ONE, _TOKEN)),
    ("purge", "delete all dead jobs", _purge, (*_ONE, _TOKEN, _CHANNEL_TOKEN)),
)
# fmt: on
