"""``headrace reply SUBJECT [BODY]``."""

from __future__ import annotations

import asyncio
import os
import shlex

import click

from ...client import Message
from ..shared.errors import Failure
from ..shared.messages import HEADER, fill_in, headers_of
from ..shared.units import DURATION
from ..shared.verbs import Session, online
from .subscribe import Show


@online(
    click.argument("subject"),
    click.argument("body", required=False),
    click.option("--echo", is_flag=True, help="answer with the request"),
    click.option(
        "--command", metavar="COMMAND", default="", help="answer with what a command prints"
    ),
    HEADER,
    click.option(
        "-q", "--queue", metavar="NAME", default="NATS-RPLY-22", help="take turns with others"
    ),
    click.option("--sleep", type=DURATION, default=0.0, help="wait before each answer"),
    click.option(
        "--count", type=click.IntRange(1), default=None, help="end after this many requests"
    ),
)
async def reply(
    session: Session,
    subject: str,
    body: str | None,
    echo: bool,
    command: str,
    header: tuple[str, ...],
    queue: str,
    sleep: float,
    count: int | None,
) -> None:
    """Answer requests on SUBJECT with BODY, until Ctrl-C.

    \b
    headrace reply time.now '{{TimeStamp}}'
    headrace reply service.echo --echo
    headrace reply weather.city --command 'cat weather.txt'

    BODY may contain {{Request}}, {{Count}} and what pub fills in. A command gets the request on standard
    input, and its subject and body in NATS_REQUEST_SUBJECT and NATS_REQUEST_BODY. No shell runs it.
    """
    if sum((body is not None, echo, bool(command))) != 1:
        raise Failure("give one kind of answer: BODY, --echo or --command")
    show = Show(session, raw=False)
    headers = headers_of(header)
    subscription = await session.connection.subscribe(subject, queue=queue)
    await session.connection.flush()
    session.output.note(f"answering on {subject} in queue {queue}; Ctrl-C ends it")
    number = 0
    async for message in subscription:
        number += 1
        show.message(message)
        if sleep:
            await asyncio.sleep(sleep)
        if command:
            answer = await _printed_by(command, message)
        elif body is not None:
            request = message.payload.decode(errors="replace")
            answer = fill_in(body, number, request).encode()
        else:
            answer = message.payload
        if message.reply:
            await message.respond(answer, headers=headers or (message.headers if echo else None))
        if count is not None and number >= count:
            break
    await session.connection.flush()


async def _printed_by(command: str, message: Message) -> bytes:
    """What the command prints, given a request. Raises Failure if it cannot be run."""
    environ = {
        **os.environ,
        "NATS_REQUEST_SUBJECT": message.subject,
        "NATS_REQUEST_BODY": message.payload.decode(errors="replace").replace("\0", ""),
    }
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(fill_in(command)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environ,
        )
    except (OSError, ValueError) as error:
        raise Failure(f"cannot run {command!r}: {error}") from None
    printed, _ = await process.communicate(message.payload)
    return printed
