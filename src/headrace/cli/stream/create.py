"""``headrace stream create STREAM``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...api.base import to_wire
from ...api.streams import StreamConfig
from ..shared.configuration import config_file, replaced
from ..shared.errors import Failure
from ..shared.verbs import Session, online
from .info import stream_sheet
from .settings import SETTINGS, changes_of


@online(
    click.argument("stream", required=False),
    *SETTINGS,
    click.option("--validate", is_flag=True, help="show the configuration, and create nothing"),
)
async def create(
    session: Session, stream: str | None, file: Path | None, validate: bool, **given: Any
) -> None:
    """Create a stream that stores what is published to its subjects.

    \b
    headrace stream create ORDERS --subjects 'orders.>'
    headrace stream create WORK --subjects 'work.*' --retention work --max-age 7d --max-bytes 10GB
    headrace stream create --config stream.json

    Without --subjects a stream stores the subject of its own name. Creating it again with the same settings
    changes nothing.
    """
    config = config_file(file, StreamConfig) if file else StreamConfig(allow_direct=True)
    changes = changes_of(given)
    if stream:
        changes["name"] = stream
    config = replaced(config, changes)
    if not config.name:
        raise Failure("give the stream a name: headrace stream create NAME --subjects 'name.>'")
    if validate:
        session.output.show(to_wire(config), "the configuration can be read")
        return
    made = await session.js.create_stream(config)
    found = made.cached_info
    assert found is not None
    session.output.show(to_wire(found), stream_sheet(found))
