"""``headrace pub SUBJECT [BODY]``."""

from __future__ import annotations

import asyncio

import click

from ..shared.messages import HEADER, fill_in, headers_of, payload_of
from ..shared.progress import progress
from ..shared.units import DURATION
from ..shared.verbs import Session, online


@online(
    click.argument("subject"),
    click.argument("body", required=False),
    HEADER,
    click.option("--reply", metavar="SUBJECT", default="", help="where answers are to go"),
    click.option("--count", type=click.IntRange(1), default=1, help="publish so many"),
    click.option("--sleep", type=DURATION, default=0.0, help="wait between them"),
    click.option("-J", "--jetstream", is_flag=True, help="wait until a stream has each"),
    click.option("--msg-id", metavar="ID", default="", help="stored once (with --jetstream)"),
    click.option(
        "--templates/--no-templates", default=True, help="fill in {{Count}} and the like (yes)"
    ),
    click.option("-q", "--quiet", is_flag=True, help="say nothing"),
)
async def pub(
    session: Session,
    subject: str,
    body: str | None,
    header: tuple[str, ...],
    reply: str,
    count: int,
    sleep: float,
    jetstream: bool,
    msg_id: str,
    templates: bool,
    quiet: bool,
) -> None:
    """Publish BODY, or what standard input has, to SUBJECT.

    \b
    headrace pub orders.new 'a first order'
    headrace pub orders.new 'order {{Count}} of {{TimeStamp}}' --count 10
    headrace pub orders.new -H Customer:ann --jetstream < order.json

    Body and headers may contain {{Count}}, {{Time}}, {{TimeStamp}}, {{Unix}}, {{UnixNano}}, {{ID}} and
    {{Random 10 20}} (so many letters). Without --jetstream nobody confirms that anybody received it.
    """
    payload = payload_of(body)
    stored = []
    with progress(session.output, "publishing", count, wanted=count > 1) as advance:
        for number in range(1, count + 1):
            data, headers = payload, headers_of(header)
            if templates and body not in (None, "-"):
                data = fill_in(payload.decode(), number).encode()
                headers = {k: [fill_in(v, number) for v in vs] for k, vs in headers.items()}
            if jetstream:
                ack = await session.js.publish(
                    subject, data, headers=headers, msg_id=fill_in(msg_id, number)
                )
                stored.append({"stream": ack.stream, "seq": ack.seq, "duplicate": ack.duplicate})
            else:
                await session.connection.publish(subject, data, headers=headers, reply=reply)
            advance(1)
            if sleep and number < count:
                await asyncio.sleep(sleep)
    await session.connection.flush()
    if quiet:
        return
    messages = "1 message" if count == 1 else f"{count:,} messages"
    if not jetstream:
        text = f"published {messages} to {subject}"
        session.output.show({"subject": subject, "published": count}, text)
        return
    last = stored[-1]
    again = sum(1 for each in stored if each["duplicate"])
    text = f"stored {messages} in stream {last['stream']}, sequence {last['seq']}"
    text += f", {again:,} of them there already" if again else ""
    session.output.show(stored, text)
