"""``headrace consumer create`` and ``headrace consumer edit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...api.base import to_wire
from ...api.consumers import ConsumerConfig
from ..shared.asking import may_go_on
from ..shared.configuration import config_file, differences, replaced
from ..shared.editor import INTERACTIVE, edited
from ..shared.errors import Failure
from ..shared.names import CONSUMER, STREAM
from ..shared.verbs import Session, online
from .info import consumer_sheet
from .settings import SETTINGS, changes_of


@online(
    STREAM,
    click.argument("consumer", required=False),
    click.option("--ephemeral", is_flag=True, help="removed when nobody uses it"),
    click.option("--pull", is_flag=True, hidden=True),  # of the nats tool, where it is a choice
    click.option("--defaults", is_flag=True, hidden=True, expose_value=False),  # it never asks here
    *SETTINGS,
)
async def create(
    session: Session,
    stream: str,
    consumer: str | None,
    ephemeral: bool,
    pull: bool,
    file: Path | None,
    **given: Any,
) -> None:
    """Create a consumer of a stream.

    \b
    headrace consumer create ORDERS billing
    headrace consumer create ORDERS returns --filter 'orders.returned' --wait 2m --max-deliver 5
    headrace consumer create ORDERS worker --pinned-groups main

    It is pulled from, unless --target says where to push. With --ephemeral it needs no name.
    """
    config = config_file(file, ConsumerConfig) if file else ConsumerConfig()
    changes = changes_of(given)
    if consumer:
        changes |= {"name": consumer, "durable_name": "" if ephemeral else consumer}
    elif not ephemeral and not config.name and not config.durable_name:
        raise Failure("give the consumer a name, or --ephemeral")
    made = await session.js.create_consumer(stream, replaced(config, changes))
    found = made.cached_info
    assert found is not None
    session.output.show(to_wire(found), consumer_sheet(found))


@online(STREAM, CONSUMER, INTERACTIVE, *SETTINGS, destroys=True)
async def edit(
    session: Session,
    stream: str,
    consumer: str,
    interactive: bool,
    file: Path | None,
    **given: Any,
) -> None:
    """Change settings of a consumer; what is not named stays."""
    found = await session.js.consumer(stream, consumer)
    before = (await found.info()).config
    config = config_file(file, ConsumerConfig) if file else before
    names = {"name": before.name, "durable_name": before.durable_name}
    after = replaced(config, changes_of(given))
    if interactive:
        after = await edited(after, ConsumerConfig)
    after = replaced(after, names)
    changed = differences(before, after)
    if not changed.rows:
        raise Failure(
            "nothing to change; give settings such as --max-pending 500, -i or --config FILE"
        )
    if session.output.is_text:
        session.output.show(None, changed)
    what = f"change consumer {consumer} of stream {stream} so"
    if may_go_on(session.output, what):
        info = await found.update(after)
        session.output.show(to_wire(info), consumer_sheet(info))
