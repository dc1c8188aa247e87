"""``headrace stream find``."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import click

from ...api.base import to_wire
from ...api.streams import StreamInfo
from ..shared.units import DURATION, moment_of
from ..shared.verbs import Session, online
from .ls import stream_table


@online(
    click.argument("pattern", required=False, metavar="[REGEX]"),
    click.option("--subject", metavar="PATTERN", default="", help="with this subject"),
    click.option("--empty", is_flag=True, help="without messages"),
    click.option("--idle", type=DURATION, default=None, help="without a new message for so long"),
    click.option("--created", type=DURATION, default=None, help="created within so long"),
    click.option(
        "--consumers", type=int, default=None, metavar="N", help="with at most N consumers"
    ),
    click.option("--replicas", type=int, default=None, metavar="N", help="with at most N copies"),
    click.option("--mirrored", is_flag=True, help="that are mirrors"),
    click.option("--sourced", is_flag=True, help="that have sources"),
    click.option("--leader", metavar="SERVER", default="", help="led by this server"),
    click.option("--invert", is_flag=True, help="all the others"),
    click.option("-n", "--names", is_flag=True, help="names alone, one a line"),
)
async def find(
    session: Session,
    pattern: str | None,
    subject: str,
    empty: bool,
    idle: float | None,
    created: float | None,
    consumers: int | None,
    replicas: int | None,
    mirrored: bool,
    sourced: bool,
    leader: str,
    invert: bool,
    names: bool,
) -> None:
    """List the streams that match all that is given.

    \b
    headrace stream find --empty --idle 7d
    headrace stream find '^ORDERS' --consumers 0
    """
    now = datetime.now(UTC)
    tests: list[Callable[[StreamInfo], bool]] = []
    if pattern is not None:
        expression = _expression(pattern)
        tests.append(lambda each: expression.search(each.config.name) is not None)
    if empty:
        tests.append(lambda each: each.state.messages == 0)
    if idle is not None:
        since = now - timedelta(seconds=idle)
        tests.append(lambda each: moment_of(each.state.last_ts) < since)
    if created is not None:
        after = now - timedelta(seconds=created)
        tests.append(lambda each: moment_of(each.created) >= after)
    if consumers is not None:
        tests.append(lambda each: each.state.consumer_count <= consumers)
    if replicas is not None:
        tests.append(lambda each: each.config.num_replicas <= replicas)
    if mirrored:
        tests.append(lambda each: each.config.mirror is not None)
    if sourced:
        tests.append(lambda each: bool(each.config.sources))
    if leader:
        tests.append(lambda each: each.cluster is not None and each.cluster.leader == leader)
    matching = (
        [name async for name in session.js.stream_names(subject=subject)] if subject else None
    )
    found = [
        each
        async for each in session.js.streams()
        if (
            (matching is None or each.config.name in matching) and all(test(each) for test in tests)
        )
        is not invert
    ]
    found.sort(key=lambda each: each.config.name)
    if names:
        listed = [each.config.name for each in found]
        session.output.show(listed, *listed)
    else:
        table = stream_table(found, now, "no stream matches")
        session.output.show([to_wire(each) for each in found], table)


def _expression(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is no regular expression: {error}") from None
