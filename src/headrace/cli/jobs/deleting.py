"""Channels, producers and consumers end: drained, deleted, their jobs moved."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import click

from ...jobs.client import JobsClient, JobsError
from ...quantities import counted
from ..shared.asking import may_go_on
from ..shared.errors import Failure
from ..shared.units import DURATION
from ..shared.verbs import Declare

__all__ = ["DESTROYING", "DRAIN"]

Args = SimpleNamespace
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


_CHANNEL: Final = click.argument("channel")
Verb = tuple[str, str, Callable[[JobsClient, Args], Any], tuple[Declare, ...]]

DRAIN: Final[Verb] = (
    "drain",
    "let a channel take no more messages; what it has is delivered",
    drain,
    (
        _CHANNEL,
        click.option("--undo", is_flag=True, help="take messages again"),
        click.option("--wait", is_flag=True, help="until no job waits or runs"),
    ),
)
DESTROYING: Final[tuple[Verb, ...]] = (
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
