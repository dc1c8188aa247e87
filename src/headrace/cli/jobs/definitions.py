"""``headrace jobs``: filters, feeds, schedules and API keys; channels, producers and consumers that end."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any, Final

import click

from ...jobs.client import JobsClient, JobsError
from ...quantities import counted
from ..shared.asking import may_go_on
from ..shared.errors import Failure
from ..shared.output import Table
from ..shared.units import DURATION
from ..shared.verbs import Declare
from .commands import Args, Call


def _filter(client: JobsClient, args: Args) -> Any:
    given = bool(args.subject or args.header or args.payload)
    if args.everything and given:
        raise Failure("--everything goes without --subject, --header and --payload")
    if given or args.everything:
        wanted = {
            "subjects": args.subject,
            "headers": patterns_of(
                args.header, "--header is", "NAME=PATTERN, such as X-Kind=paid*"
            ),
            "payload": paths_of(args.payload),
        }
        answer = client.patch_consumer(args.channel, args.consumer, settings={"filter": wanted})
    else:
        answer = client.consumer(args.channel, args.consumer)
    found = answer["settings"]["filter"]
    return found if args.json else _filter_text(f"{args.channel}/{args.consumer}", found)


def patterns_of(given: tuple[str, ...], what: str, accepted: str) -> dict[str, list[str]]:
    """The patterns of each name; Failure for a text without both."""
    found: dict[str, list[str]] = {}
    for text in given:
        name, is_there, pattern = text.partition("=")
        if not is_there or not name:
            raise Failure(f"{what} {text!r}; accepted is {accepted}")
        found.setdefault(name, []).append(pattern)
    return found


def paths_of(given: tuple[str, ...]) -> dict[str, list[str]]:
    """The patterns of each path into a payload."""
    return patterns_of(given, "--payload is", "PATH=PATTERN, such as '$.order.id=7'")


def _filter_text(name: str, found: dict[str, Any]) -> str:
    lines = [f"subject: {' or '.join(found['subjects'])}"] if found["subjects"] else []
    lines += [f"{header}: {' or '.join(each)}" for header, each in found["headers"].items()]
    lines += [f"{path}: {' or '.join(each)}" for path, each in found["payload"].items()]
    if not lines:
        return f"{name} gets every message of its channel"
    return "\n".join([f"{name} gets messages with", *(f"  {line}" for line in lines)])


_FILTER_OPTIONS: Final[tuple[Declare, ...]] = (
    click.argument("channel"),
    click.argument("consumer"),
    click.option(
        "--subject",
        multiple=True,
        metavar="PATTERN",
        help="of this subject, such as 'orders.eu.>'; repeatable: one has to fit",
    ),
    click.option(
        "--header",
        multiple=True,
        metavar="NAME=PATTERN",
        help="with this header, such as X-Kind=paid*; repeatable: each name has to fit",
    ),
    click.option(
        "--payload",
        multiple=True,
        metavar="PATH=PATTERN",
        help="with this value in its JSON, such as '$.order.country=D*'; repeatable: each path has to fit",
    ),
    click.option("--everything", is_flag=True, help="every message, from now on"),
)


def _feed(client: JobsClient, args: Args) -> Any:
    goes_back = args.again_from is not None or args.again_since is not None
    if args.again_from is not None and args.again_since is not None:
        raise Failure("--again-from and --again-since exclude each other")
    if goes_back and args.channel is None:
        raise Failure("--again-from and --again-since need the name of a CHANNEL")
    found = client.feeds(args.channel)
    if args.feed is not None:
        found = [each for each in found if each["feed"] == args.feed]
        if not found:
            raise Failure(f"{args.channel} has no feed {args.feed}")
    if goes_back:
        if len(found) != 1:
            names = ", ".join(each["feed"] for each in found) or "none"
            raise Failure(f"name the FEED that is to go back; {args.channel} has: {names}")
        (one,) = found
        found = [
            client.feed_again(
                args.channel, one["feed"], sequence=args.again_from, since=args.again_since
            )
        ]
    return found if args.json else _feeds_table(found)


def _feeds_table(found: list[dict[str, Any]]) -> Table:
    numbers = ("MADE UP TO", "LAG", "UNFINISHED")
    table = Table(
        ("FEED", "STREAM", *numbers, "STATE"),
        right=frozenset(numbers),
        empty="no feeds; `[[feeds]]` of the service's configuration names them",
    )
    for one in found:
        values = (one["sequence"], one["lag"], one["unfinished"])
        table.add(
            f"{one['channel']}/{one['feed']}",
            one["stream"],
            *("-" if each is None else str(each) for each in values),
            _feed_state(one),
        )
    return table


def _feed_state(one: dict[str, Any]) -> str:
    said: str = one["state"]
    if said == "backlog":
        said = f"backlog: {one['unfinished']} unfinished, of at most {one['unfinished_max']}"
    elif one["problem"] is not None:
        said = f"{said}: {one['problem']}"
    if one["again_sequence"] is not None:
        said += f"; goes back to sequence {one['again_sequence']}"
    elif one["again_since"] is not None:
        said += f"; goes back to {one['again_since']}"
    elif one["again_until"] is not None:
        said += f"; makes jobs again up to sequence {one['again_until']}"
    return said


_FEED_OPTIONS: Final[tuple[Declare, ...]] = (
    click.argument("channel", required=False),
    click.argument("feed", required=False),
    click.option(
        "--again-from", type=int, metavar="SEQUENCE", help="make jobs again from this sequence on"
    ),
    click.option(
        "--again-since",
        metavar="TIME",
        help="make jobs again of what the stream got since then (RFC 3339)",
    ),
)


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
_SCHEDULE_OPTIONS: Final[tuple[Declare, ...]] = (
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


_SCOPES: Final = ("publish", "consume", "operate", "admin")


def _key(client: JobsClient, args: Args) -> Any:
    made = client.create_key(
        args.name, args.scope, channels=args.channel or ("*",), expires_in_s=args.expires
    )
    if args.json:
        return made
    until = f", until {made['expires_at']}" if made["expires_at"] else ""
    args.output.note(
        f"{made['id']} ({made['name']}): {', '.join(made['scopes'])} in "
        f"{', '.join(made['channels'])}{until}; the key is shown this once"
    )
    return str(made["key"])


def _keys(client: JobsClient, args: Args) -> Any:
    found = list(client.api_keys())
    if args.json:
        return found
    table = Table(
        ("KEY", "NAME", "SCOPES", "CHANNELS", "LAST USED", "ENDS"),
        empty="no keys; `headrace jobs key NAME --scope publish` makes one",
    )
    for one in found:
        ends = f"revoked {one['revoked_at']}" if one["revoked_at"] else one["expires_at"] or ""
        table.add(
            one["id"],
            one["name"],
            " ".join(one["scopes"]),
            " ".join(one["channels"]),
            one["last_used_at"] or "never",
            ends,
        )
    return table


def _revoke(client: JobsClient, args: Args) -> Any:
    args.output.dry_run, args.output.force = args.dry_run, args.force
    if not may_go_on(args.output, f"revoke the key {args.key}"):
        return None
    client.revoke_key(args.key)
    return {"revoked": True} if args.json else f"{args.key} is revoked"


def _audit(client: JobsClient, args: Args) -> Any:
    entries = client.audit(key=args.key, channel=args.channel)
    found = list(itertools.islice(entries, args.limit))
    if args.json:
        return found
    table = Table(
        ("TIME", "WHO", "FROM", "WHAT", "OBJECT", "RESULT", "DETAIL"), empty="nothing was changed"
    )
    for one in found:
        what = one["action"].partition(" ")[0] if "/" in one["action"] else one["action"]
        table.add(
            one["at"],
            one["who"],
            one["address"],
            what,
            one["object"],
            one["result"],
            one["detail"] or "",
        )
    return table


_KEY: Final[tuple[Declare, ...]] = (
    click.argument("name"),
    click.option(
        "--scope",
        multiple=True,
        required=True,
        type=click.Choice(_SCOPES),
        help="what it may: publish, take jobs, operate (look, pause, cancel, replay), all; repeatable",
    ),
    click.option(
        "--channel",
        multiple=True,
        metavar="NAME",
        help="for this channel, or 'orders.*' and the like; repeatable; every one, if not given",
    ),
    click.option("--expires", type=DURATION, metavar="TIME", help="valid so long, such as 90d"),
)


_LOOK_S: Final = 0.5
_ENDS_BY_ITSELF: Final = {
    "moving": "The service moves them in slices, while it runs",
    "running": "Each ends when it is answered, or when its lease or its time limit is over",
}


def _unfinished(detail: dict[str, Any]) -> str:
    jobs = detail["jobs"]
    text = f"{jobs['QUEUED']} waiting, {jobs['INFLIGHT']} running and {jobs['DEAD']} dead jobs"
    scheduled = detail.get("scheduled")
    return f"{text}, {scheduled} scheduled messages" if scheduled else text


def drain(client: JobsClient, args: Args) -> Any:
    """Take no more messages; with ``--wait`` until nothing is left to do."""
    detail = client.drain_channel(args.channel, draining=not args.undo)
    while args.wait and not args.undo and _is_busy(detail):
        time.sleep(_LOOK_S)
        detail = client.channel(args.channel)
    if args.json:
        return detail
    state = "takes messages again" if args.undo else "takes no more messages"
    return f"{args.channel} {state}: {_unfinished(detail)}"


def _is_busy(detail: dict[str, Any]) -> bool:
    jobs = detail["jobs"]
    return bool(jobs["QUEUED"] + jobs["INFLIGHT"] + detail["scheduled"])


def delete_channel(client: JobsClient, args: Args) -> Any:
    """Ask with what hangs on it, then delete it."""
    detail = client.channel(args.channel)
    what = (
        f"delete the channel {args.channel} with {counted(detail['consumers'], 'consumer')} and "
        f"{counted(detail['messages'], 'message')}: {_unfinished(detail)}"
    )
    if may_go_on(_asked(args), what, {"channel": detail}):
        client.delete_channel(args.channel, discard=True)
        return _done(args, f"{args.channel}: deleted")
    return None


def delete_producer(client: JobsClient, args: Args) -> Any:
    """Ask, then delete it."""
    if may_go_on(_asked(args), f"delete the producer {args.producer}; what it published stays"):
        client.delete_producer(args.producer)
        return _done(args, f"{args.producer}: deleted")
    return None


def delete_consumer(client: JobsClient, args: Args) -> Any:
    """Ask with the number of its jobs, then delete it, or move them."""
    name = f"{args.channel}/{args.consumer}"
    detail = client.consumer(args.channel, args.consumer)
    what = f"delete the consumer {name}: {_unfinished(detail)}"
    if args.move_to is not None:
        if detail["jobs"]["INFLIGHT"] and not detail["paused"]:
            raise Failure(
                f"{counted(detail['jobs']['INFLIGHT'], 'job')} of {name} under way; "
                f"`headrace jobs pause {args.channel} {args.consumer}`, and the same command again: "
                "it waits for them"
            )
        what += f"; waiting and dead ones go to {args.move_to}, unless that has the same message"
    if may_go_on(_asked(args), what, {"consumer": detail}):
        _delete_patiently(client, args, name)
        return _done(args, f"{name}: deleted")
    return None


def _delete_patiently(client: JobsClient, args: Args, name: str) -> None:
    """Where jobs run, or are on their way to it, wait until they are done, and say so."""
    told = ""

    def tell(error: JobsError) -> None:
        nonlocal told
        if error.message != told:
            told = error.message
            args.output.note(f"{name} waits: {told}")

    try:
        client.delete_consumer(
            args.channel,
            args.consumer,
            move_to=args.move_to,
            discard=args.move_to is None,
            wait_s=args.wait,
            on_wait=tell,
        )
    except JobsError as error:
        if error.code not in _ENDS_BY_ITSELF:
            raise
        raise Failure(
            f"{name} is as it was after {args.wait:g} s: {error.message}. {_ENDS_BY_ITSELF[error.code]}; "
            "the same command goes on from there, with a longer --wait if need be"
        ) from error


def _asked(args: Args) -> Any:
    args.output.dry_run, args.output.force = args.dry_run, args.force
    return args.output


def _done(args: Args, text: str) -> Any:
    return {"deleted": True} if args.json else text


DEFINING: Final[tuple[tuple[str, str, Call, tuple[Declare, ...]], ...]] = (
    (
        "filter",
        "which messages of its channel a consumer gets: shown, or set by options",
        _filter,
        _FILTER_OPTIONS,
    ),
    (
        "feed",
        "up to where feeds are in their streams; make jobs again from a sequence or a time",
        _feed,
        _FEED_OPTIONS,
    ),
    ("schedule", "publish a message again and again, by cron", _schedule, _SCHEDULE_OPTIONS),
    ("schedules", "what a channel publishes again and again", _schedules, (_CHANNEL,)),
    ("unschedule", "delete a schedule", _unschedule, (_CHANNEL, _NAME)),
    ("key", "make an API key with scopes, for channels; it is shown once", _key, _KEY),
    ("keys", "the API keys, with their last use", _keys, ()),
    (
        "audit",
        "who changed what, from where, with which result; newest first",
        _audit,
        (
            click.option("--key", metavar="ID", help="what this API key did"),
            click.option("--channel", help="what was done in this channel"),
            click.option(
                "--limit", type=click.IntRange(1), default=100, show_default=True, help="so many"
            ),
        ),
    ),
    (
        "drain",
        "let a channel take no more messages; what it has is delivered",
        drain,
        (
            _CHANNEL,
            click.option("--undo", is_flag=True, help="take messages again"),
            click.option("--wait", is_flag=True, help="until no job waits or runs"),
        ),
    ),
)
DESTROYING: Final[tuple[tuple[str, str, Call, tuple[Declare, ...]], ...]] = (
    (
        "revoke",
        "revoke an API key",
        _revoke,
        (click.argument("key"),),
    ),
    (
        "delete-channel",
        "delete a channel with its consumers, jobs and messages",
        delete_channel,
        (_CHANNEL,),
    ),
    (
        "delete-producer",
        "delete a producer; what it has published stays",
        delete_producer,
        (click.argument("producer"),),
    ),
    (
        "delete-consumer",
        "delete a consumer with its jobs, or move them to another one",
        delete_consumer,
        (
            _CHANNEL,
            click.argument("consumer"),
            click.option(
                "--move-to", metavar="NAME", help="gets the waiting and the dead jobs of the other"
            ),
            click.option(
                "--wait",
                type=DURATION,
                default=60.0,
                help="wait so long for jobs that run, or are on their way to it (60s)",
            ),
        ),
    ),
)
