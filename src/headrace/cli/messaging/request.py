"""``headrace request`` and ``reply``."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys

import click

from ...client import Message
from ...errors import NoRespondersError
from ..shared.errors import Failure
from ..shared.messages import HEADER, document, fill_in, headers_of, payload_of, text
from ..shared.verbs import Session, online
from .subscribe import Show

_NO_RESPONDERS = 503
_SILENCE_S = 0.3
"""So long after an answer nobody else is expected to give one."""


@online(
    click.argument("subject"),
    click.argument("body", required=False),
    HEADER,
    click.option("--count", type=click.IntRange(1), default=1, help="how many requests to send"),
    click.option(
        "--replies",
        type=click.IntRange(0),
        default=1,
        help="how many answers to wait for (1); 0: all that come within --timeout",
    ),
    click.option("-r", "--raw", is_flag=True, help="payloads alone"),
)
async def request(
    session: Session,
    subject: str,
    body: str | None,
    header: tuple[str, ...],
    count: int,
    replies: int,
    raw: bool,
) -> None:
    """Send BODY, or what standard input has, to SUBJECT, and show what is answered.

    \b
    headrace request time.now ''
    headrace request 'help.{{Count}}' 'question {{Count}}' --count 3
    """
    payload = payload_of(body)
    for number in range(1, count + 1):
        data = fill_in(payload.decode(), number).encode() if body not in (None, "-") else payload
        loop = asyncio.get_running_loop()
        sent = loop.time()
        answers = await _answers(session, fill_in(subject, number), data, header, replies)
        took_ms = (loop.time() - sent) * 1000
        for answer in answers:
            _show(session, answer, took_ms, raw)


async def _answers(
    session: Session,
    subject: str,
    data: bytes,
    header: tuple[str, ...],
    replies: int,
) -> list[Message]:
    connection, headers = session.connection, headers_of(header)
    try:
        if replies == 1:
            return [await connection.request(subject, data, headers=headers)]
        inbox = connection.new_inbox()
        subscription = await connection.subscribe(inbox)
        await connection.publish(subject, data, headers=headers, reply=inbox)
        found: list[Message] = []
        wait = session.where.timeout
        while replies == 0 or len(found) < replies:
            try:
                answer = await subscription.next(wait)
            except TimeoutError:
                break
            if answer.headers.status == _NO_RESPONDERS:
                raise NoRespondersError(subject)
            found.append(answer)
            wait = _SILENCE_S if replies == 0 else wait
        await subscription.unsubscribe()
    except NoRespondersError:
        raise Failure(
            f"nobody answers on {subject!r}", f"headrace reply {subject} 'an answer'    would"
        ) from None
    if not found:
        raise Failure(f"no answer on {subject!r} within {session.where.timeout:g} s")
    return found


def _show(session: Session, answer: Message, took_ms: float, raw: bool) -> None:
    if not session.output.is_text:
        found = document(answer.subject, answer.payload, answer.headers, took_ms=round(took_ms, 3))
        session.output.line(found, "")
    elif raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(answer.payload + b"\n")
    else:
        print(text(f"Received after {took_ms:.2f} ms", answer.payload, answer.headers))
    sys.stdout.flush()


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
