"""``headrace service serve NAME [BODY]``."""

from __future__ import annotations

import asyncio

import click

from ...client import Message
from ...errors import ConfigurationError, InvalidSubjectError, ServiceError
from ..messaging.reply import printed_by
from ..shared.errors import Failure
from ..shared.messages import fill_in
from ..shared.units import DURATION
from ..shared.verbs import Session, online


@online(
    click.argument("name"),
    click.argument("body", required=False),
    click.option("--endpoint", metavar="NAME", default="echo", help="of the one endpoint (echo)"),
    click.option("--subject", default="", help="where it listens (NAME.ENDPOINT)"),
    click.option("--command", metavar="COMMAND", default="", help="answer with what it prints"),
    click.option("--description", metavar="TEXT", default="", help="what services say of it"),
    click.option("--version", default="1.0.0", help="a semantic version (1.0.0)"),
    click.option("--sleep", type=DURATION, default=0.0, help="wait before each answer"),
    click.option("--fail", metavar="TEXT", default="", help="answer each request with this error"),
)
async def serve(
    session: Session,
    name: str,
    body: str | None,
    endpoint: str,
    subject: str,
    command: str,
    description: str,
    version: str,
    sleep: float,
    fail: str,
) -> None:
    """Be an instance of service NAME until Ctrl-C: answer with BODY, or else with the request.

    \b
    headrace service serve weather --endpoint city --command 'cat weather.txt'
    headrace request weather.city Bern
    headrace service stats weather

    BODY may contain {{Request}}, {{Count}} and what pub fills in. Start it again for another instance: they
    take turns. --fail makes errors, to see how callers take them.
    """
    if sum((body is not None, bool(command), bool(fail))) > 1:
        raise Failure("give one kind of answer: BODY, --command or --fail")
    listens = subject or f"{name}.{endpoint}"
    number = 0

    async def answer(message: Message) -> bytes:
        nonlocal number
        number += 1
        if sleep:
            await asyncio.sleep(sleep)
        if fail:
            raise ServiceError(500, fail)
        if command:
            try:
                return await printed_by(command, message)
            except Failure as error:
                session.output.note(f"headrace: {error.message}")
                raise ServiceError(500, error.message) from None
        if body is None:
            return bytes(message.payload)
        return fill_in(body, number, message.payload.decode(errors="replace")).encode()

    try:
        service = await session.connection.add_service(
            name, version=version, description=description
        )
        async with service:
            await service.add_endpoint(endpoint, answer, subject=listens)
            await session.connection.flush()
            session.output.note(
                f"instance {service.id} of service {name} answers on {listens}; Ctrl-C ends it"
            )
            await service.stopped()
    except (ConfigurationError, InvalidSubjectError) as error:
        raise Failure(str(error)) from None
