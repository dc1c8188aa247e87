"""``headrace consumer ls STREAM`` and ``headrace consumer report STREAM``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from ...api.base import to_wire
from ..shared.names import STREAM
from ..shared.output import Table
from ..shared.units import ago
from ..shared.verbs import Session, online


@online(STREAM, click.option("-n", "--names", is_flag=True, help="names alone, one a line"))
async def ls(session: Session, stream: str, names: bool) -> None:
    """List the consumers of a stream."""
    if names:
        listed = sorted([name async for name in session.js.consumer_names(stream)])
        session.output.show(listed, *listed)
        return
    now = datetime.now(UTC)
    found = sorted(
        [each async for each in session.js.consumers(stream)], key=lambda each: each.name
    )
    table = Table(
        ("NAME", "DESCRIPTION", "CREATED", "WAITING", "UNACKED", "LAST DELIVERY"),
        right=frozenset(("WAITING", "UNACKED")),
        empty=f"no consumers; `headrace consumer create {stream} NAME` creates one",
    )
    for each in found:
        table.add(
            each.name,
            each.config.description,
            each.created[:19].replace("T", " "),
            f"{each.num_pending:,}",
            f"{each.num_ack_pending:,}",
            ago(each.delivered.last_active, now),
        )
    session.output.show([to_wire(each) for each in found], table)


@online(STREAM)
async def report(session: Session, stream: str) -> None:
    """Say what each consumer has left to do, and how it does.

    \b
    ACK WAIT  how long an acknowledgement may take     WAITING  messages it has not delivered yet
    UNACKED   delivered and not yet acknowledged       SHARE    those that wait, of all of the stream
    AGAIN     messages delivered more than once        PULLS    pull requests that wait
    FLOOR     everything up to this sequence is acknowledged
    """
    state = (await (await session.js.stream(stream)).info()).state
    found = sorted(
        [each async for each in session.js.consumers(stream)], key=lambda each: -each.num_pending
    )
    numbers = ("ACK WAIT", "WAITING", "SHARE", "UNACKED", "AGAIN", "PULLS", "FLOOR")
    table = Table(
        ("CONSUMER", "KIND", "ACK", *numbers, "STATE"),
        right=frozenset(numbers),
        empty=f"no consumers; `headrace consumer create {stream} NAME` creates one",
    )
    rows = []
    for each in found:
        config = each.config
        share = each.num_pending / state.messages if state.messages else 0.0
        pinned = [
            group.pinned_client_id for group in each.priority_groups if group.pinned_client_id
        ]
        condition = "paused" if each.paused else f"pinned {', '.join(pinned)}" if pinned else ""
        table.add(
            each.name,
            "push" if config.deliver_subject else "pull",
            config.ack_policy,
            f"{config.ack_wait:g}s",
            f"{each.num_pending:,}",
            f"{share:.0%}",
            f"{each.num_ack_pending:,}",
            f"{each.num_redelivered:,}",
            f"{each.num_waiting:,}",
            f"{each.ack_floor.stream_seq:,}",
            condition,
        )
        rows.append(
            {
                "consumer": each.name,
                "num_ack_pending": each.num_ack_pending,
                "num_redelivered": each.num_redelivered,
                "num_pending": each.num_pending,
                "num_waiting": each.num_waiting,
                "ack_floor": each.ack_floor.stream_seq,
                "paused": each.paused,
                "pinned": pinned,
            }
        )
    session.output.show(rows, table)
