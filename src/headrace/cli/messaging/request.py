"""``headrace request SUBJECT [BODY]``."""

from __future__ import annotations

import asyncio
import sys

import click

from ...client import Message
from ...errors import NoRespondersError
from ..shared.errors import Failure
from ..shared.messages import HEADER, document, fill_in, headers_of, payload_of, text
from ..shared.units import DURATION
from ..shared.verbs import Session, online

_NO_RESPONDERS = 503


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
    click.option(
        "--reply-timeout", type=DURATION, default=0.3, help="after an answer, wait so long (300ms)"
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
    reply_timeout: float,
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
        answers = await _answers(
            session, fill_in(subject, number), data, header, replies, reply_timeout
        )
        took_ms = (loop.time() - sent) * 1000
        for answer in answers:
            _show(session, answer, took_ms, raw)


async def _answers(
    session: Session,
    subject: str,
    data: bytes,
    header: tuple[str, ...],
    replies: int,
    reply_timeout: float,
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
            wait = reply_timeout if replies == 0 else wait
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
