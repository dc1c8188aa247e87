"""``headrace consumer next STREAM CONSUMER``."""

from __future__ import annotations

import click

from ...client.jetstream.pull import PriorityOptions
from ..messaging.subscribe import Show
from ..shared.errors import Failure
from ..shared.names import CONSUMER, STREAM
from ..shared.units import DURATION
from ..shared.verbs import Session, online

_PULL_MAX = 1000


@online(
    STREAM,
    CONSUMER,
    click.option("--count", type=click.IntRange(1), default=1, help="how many to take (1)"),
    click.option("--wait", type=DURATION, default=None, help="wait so long for them (--timeout)"),
    click.option("--ack/--no-ack", default=True, help="acknowledge what was shown (yes)"),
    click.option("--nak", is_flag=True, help="have them delivered again"),
    click.option("--term", is_flag=True, help="have them never delivered again"),
    click.option("--group", metavar="NAME", default="", help="as a client of this priority group"),
    click.option("-r", "--raw", is_flag=True, help="payloads alone"),
    name="next",
)
async def take(
    session: Session,
    stream: str,
    consumer: str,
    count: int,
    wait: float | None,
    ack: bool,
    nak: bool,
    term: bool,
    group: str,
    raw: bool,
) -> int:
    """Take messages of a pull consumer, show them, and acknowledge them.

    \b
    headrace consumer next ORDERS billing --count 10
    headrace consumer next ORDERS billing --no-ack     they come again when the ack wait is over

    The status is 1 if no message came.
    """
    if nak and term:
        raise Failure("give one of --nak and --term")
    found = await session.js.consumer(stream, consumer)
    if found.cached_info is not None and found.cached_info.config.deliver_subject:
        subject = found.cached_info.config.deliver_subject
        raise Failure(
            f"consumer {consumer} pushes to {subject}; there is nothing to pull",
            f"headrace sub {subject}    shows what it pushes",
        )
    show = Show(session, raw=raw)
    shown = 0
    priority: PriorityOptions = {"group": group} if group else {}
    seconds = session.where.timeout if wait is None else wait
    while shown < count:
        batch = await found.fetch(
            min(count - shown, _PULL_MAX), max_wait=seconds, eager=True, **priority
        )
        if not batch:
            break
        for message in batch:
            show.stored(message)
            shown += 1
            if nak:
                message.nak()
            elif term:
                message.term()
            elif ack:
                message.ack()
    await session.connection.flush()
    if shown < count:
        session.output.note(f"{shown or 'no'} message{'s' * (shown > 1)} within {seconds:g} s")
    return 0 if shown else 1
