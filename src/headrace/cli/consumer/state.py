"""``headrace consumer rm``, ``pause``, ``resume``, ``unpin`` and ``reset``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from ...api.base import to_wire
from ...quantities import counted
from ..shared.asking import may_go_on
from ..shared.errors import Failure
from ..shared.names import CONSUMER, STREAM
from ..shared.units import parse_duration, parse_moment
from ..shared.verbs import Session, online


@online(STREAM, CONSUMER, click.argument("until"))
async def pause(session: Session, stream: str, consumer: str, until: str) -> None:
    """Deliver nothing UNTIL a time, or for a duration.

    \b
    headrace consumer pause ORDERS billing 30m
    headrace consumer pause ORDERS billing 2027-01-01T00:00:00Z
    """
    found = await session.js.consumer(stream, consumer)
    moment = _later(until)
    answer = await found.pause(moment)
    when = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    session.output.show(
        to_wire(answer), f"consumer {consumer} of stream {stream} pauses until {when}"
    )


def _later(text: str) -> datetime:
    """A time to come. Raises Failure."""
    now = datetime.now(UTC)
    try:
        return now + timedelta(seconds=parse_duration(text))
    except ValueError:
        pass  # it is a date, then
    try:
        moment = parse_moment(text, now)
    except ValueError:
        raise Failure(
            f"{text!r} is not a time to come; accepted: 30m, 2h, 2027-01-01T00:00:00Z"
        ) from None
    if moment <= now:
        raise Failure(f"{text} is over already")
    return moment.astimezone(UTC)


@online(STREAM, CONSUMER)
async def resume(session: Session, stream: str, consumer: str) -> None:
    """Deliver again."""
    answer = await (await session.js.consumer(stream, consumer)).resume()
    session.output.show(to_wire(answer), f"consumer {consumer} of stream {stream} delivers again")


@online(STREAM, CONSUMER, click.argument("group"), destroys=True)
async def unpin(session: Session, stream: str, consumer: str, group: str) -> None:
    """Let go of the pinned client of GROUP; the next to pull is pinned instead."""
    found = await session.js.consumer(stream, consumer)
    info = await found.info()
    groups = {each.group: each.pinned_client_id for each in info.priority_groups}
    if group not in groups and group not in info.config.priority_groups:
        there = ", ".join(info.config.priority_groups) or "none"
        raise Failure(f"consumer {consumer} has no priority group {group!r}; there are: {there}")
    who = groups.get(group) or "nobody so far"
    what = f"unpin {who} of group {group} of consumer {consumer}"
    if may_go_on(session.output, what):
        await found.unpin(group)
        document = {"group": group, "unpinned": groups.get(group, "")}
        session.output.show(
            document, f"unpinned {who}; the next client of {group} to pull is pinned"
        )


@online(
    STREAM,
    CONSUMER,
    click.argument("sequence", type=click.IntRange(0), default=0),
    click.option("--sequence", "option", type=click.IntRange(0), default=0, hidden=True),
    destroys=True,
)
async def reset(session: Session, stream: str, consumer: str, sequence: int, option: int) -> None:
    """Deliver from SEQUENCE on again; without it, from the first message that is not acknowledged."""
    sequence = sequence or option  # the nats tool takes it so
    found = await session.js.consumer(stream, consumer)
    origin = f"sequence {sequence:,}" if sequence else "the first message not acknowledged"
    what = f"reset consumer {consumer} of stream {stream} to {origin}"
    if may_go_on(session.output, what):
        info = await found.reset(sequence)
        text = f"consumer {consumer} delivers from {origin} on; {counted(info.num_pending, 'message')} left"
        session.output.show(to_wire(info), text)


@online(STREAM, CONSUMER, destroys=True)
async def rm(session: Session, stream: str, consumer: str) -> None:
    """Delete a consumer; the messages stay in the stream."""
    info = await (await session.js.consumer(stream, consumer)).info()
    what = (
        f"delete consumer {consumer} of stream {stream} with "
        f"{counted(info.num_ack_pending, 'message')} without an answer and {info.num_pending:,} left"
    )
    if may_go_on(session.output, what):
        await session.js.delete_consumer(stream, consumer)
        document = {"stream": stream, "deleted": consumer}
        session.output.show(document, f"deleted consumer {consumer} of stream {stream}")
