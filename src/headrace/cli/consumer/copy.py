"""``headrace consumer copy STREAM CONSUMER NEW``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...api.base import to_wire
from ...api.consumers import ConsumerConfig
from ..shared.configuration import config_file, replaced
from ..shared.errors import Failure
from ..shared.names import CONSUMER, STREAM
from ..shared.verbs import Session, online
from .info import consumer_sheet
from .settings import SETTINGS, changes_of


@online(STREAM, CONSUMER, click.argument("new"), *SETTINGS)
async def copy(
    session: Session, stream: str, consumer: str, new: str, file: Path | None, **given: Any
) -> None:
    """Create a consumer with the settings of another; it begins where those say, not where that one is.

    \b
    headrace consumer copy ORDERS billing audit --deliver new
    """
    if new == consumer:
        raise Failure("a consumer cannot be copied to itself; give the copy another name", status=2)
    origin = await (await session.js.consumer(stream, consumer)).info()
    config = config_file(file, ConsumerConfig) if file else origin.config
    durable = new if origin.config.durable_name else ""
    changes = {"name": new, "durable_name": durable, **changes_of(given)}
    made = await session.js.create_consumer(stream, replaced(config, changes))
    found = made.cached_info
    assert found is not None
    session.output.show(to_wire(found), consumer_sheet(found))
