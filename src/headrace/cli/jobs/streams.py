"""``headrace jobs stream``: where consumers are in the stream in which their channel lives."""

from __future__ import annotations

from typing import Any, Final

import click

from ...jobs.client import JobsClient
from ..shared.errors import Failure
from ..shared.output import Table
from ..shared.verbs import Declare
from .commands import Args, Call


def _stream(client: JobsClient, args: Args) -> Any:
    if args.replay_from is not None and args.replay_since is not None:
        raise Failure("--replay-from and --replay-since exclude each other")
    if args.consumer is None:
        if args.replay_from is not None or args.replay_since is not None:
            raise Failure("--replay-from and --replay-since need the name of a CONSUMER")
        standing = client.channel_standing(args.channel)
        return standing if args.json else _table(standing)
    if args.replay_from is None and args.replay_since is None:
        found = client.stream_standing(args.channel, args.consumer)
    else:
        found = client.replay_stream(
            args.channel, args.consumer, sequence=args.replay_from, since=args.replay_since
        )
    return found if args.json else _sentences(found)


def _table(standing: dict[str, Any]) -> Any:
    channel = standing["channel"]
    if standing["stream"] is None:
        return f"{channel} lives in the database, and in no stream"
    table = Table(
        ("CONSUMER", "DONE UP TO", "UNDER WAY", "TO COME", "DEAD", "WAITS FOR"),
        right=frozenset(("DONE UP TO", "UNDER WAY", "TO COME", "DEAD")),
        empty=f"{channel} has no consumers",
    )
    for row in standing["consumers"]:
        numbers = (row["acknowledged"], row["under_way"], row["lag"], row["jobs"]["DEAD"])
        waits = ": ".join(filter(None, (row["waits_for"], row["problem"])))
        table.add(row["consumer"], *("-" if n is None else str(n) for n in numbers), waits)
    if standing["left_out"]:
        table.add(f"({standing['left_out']} more: give a name)", "", "", "", "", "")
    return table


def _sentences(found: dict[str, Any]) -> str:
    name = f"{found['channel']}/{found['consumer']}"
    lines = [f"{name} is in the stream {found['stream']} with the consumer {found['durable']}"]
    if found["replay_sequence"] is not None:
        lines.append(f"  it will deliver again from sequence {found['replay_sequence']} on")
    if found["replay_since"] is not None:
        lines.append(f"  it will deliver again what came since {found['replay_since']}")
    if found["acknowledged"] is not None:
        lines.append(f"  done with: all up to sequence {found['acknowledged']}")
    if found["lag"] is not None:
        lines.append(f"  under way: {found['under_way']}, to come: {found['lag']}")
    if "waits_for" in found:
        lines.append(f"  waits for: {found['waits_for']}")
    if found["last_sequence"] is not None:
        lines.append(
            f"  the stream has sequences {found['first_sequence']} to {found['last_sequence']}"
        )
    if found["problem"] is not None:
        lines.append(f"  problem: {found['problem']}")
    return "\n".join(lines)


_DECLARE: Final[tuple[Declare, ...]] = (
    click.argument("channel"),
    click.argument("consumer", required=False),
    click.option(
        "--replay-from", type=int, metavar="SEQUENCE", help="deliver again from this sequence on"
    ),
    click.option(
        "--replay-since",
        metavar="TIME",
        help="deliver again what the stream got since then (RFC 3339)",
    ),
)

STANDING: Final[tuple[str, str, Call, tuple[Declare, ...]]] = (
    "stream",
    "where consumers are in their channel's stream; deliver again from a sequence or a time",
    _stream,
    _DECLARE,
)
