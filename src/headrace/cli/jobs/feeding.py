"""``headrace jobs feed``: up to where feeds are in their streams, and making jobs again from there."""

from __future__ import annotations

from typing import Any, Final

import click

from ...jobs.client import JobsClient
from ..shared.errors import Failure
from ..shared.output import Table
from ..shared.verbs import Declare
from .commands import Args, Call


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
    return found if args.json else _table(found)


def _table(found: list[dict[str, Any]]) -> Table:
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
            _state(one),
        )
    return table


def _state(one: dict[str, Any]) -> str:
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


_DECLARE: Final[tuple[Declare, ...]] = (
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

FEED: Final[tuple[str, str, Call, tuple[Declare, ...]]] = (
    "feed",
    "up to where feeds are in their streams; make jobs again from a sequence or a time",
    _feed,
    _DECLARE,
)
