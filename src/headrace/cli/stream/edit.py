"""``headrace stream create`` and ``headrace stream edit``."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

import click

from ...api.base import to_wire
from ...api.streams import StreamConfig
from ...client.jetstream.streams import loss_of
from ...errors import StreamExistsError
from ..shared.asking import may_go_on
from ..shared.configuration import config_file, differences, replaced, shown
from ..shared.editor import INTERACTIVE, edited
from ..shared.errors import Failure
from ..shared.names import STREAM
from ..shared.verbs import Session, online
from .info import stream_sheet
from .settings import SETTINGS, changes_of


@online(
    click.argument("stream", required=False),
    *SETTINGS,
    click.option("--validate", is_flag=True, help="show the configuration, and create nothing"),
    click.option("--defaults", is_flag=True, hidden=True, expose_value=False),  # it never asks here
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
    config = config_file(file, StreamConfig) if file else StreamConfig()
    changes = changes_of(given)
    if stream:
        changes["name"] = stream
    config = replaced(config, changes)
    if not config.name:
        raise Failure("give the stream a name: headrace stream create NAME --subjects 'name.>'")
    if validate:
        session.output.show(to_wire(config), "the configuration can be read")
        return
    try:
        found = (await session.js.create_stream(config)).cached_info
    except StreamExistsError as error:
        if not error.differences or (file is None and changes.keys() & error.differences.keys()):
            raise _other_settings(error, config.name, changes) from error
        if file is not None:
            raise _other_settings(error, config.name, error.differences) from error
        found = await (await session.js.stream(config.name)).info()
        session.output.note(f"stream {config.name} is there already, with these settings")
    assert found is not None
    session.output.show(to_wire(found), stream_sheet(found))


def _other_settings(error: StreamExistsError, name: str, asked: Container[str]) -> Failure:
    """What to say of a stream that is not as it is to be."""
    told = [
        f"{setting} is {shown(there)}, not {shown(wanted)}"
        for setting, (there, wanted) in error.differences.items()
        if setting in asked
    ]
    return Failure(
        f"stream {name} is there, with other settings: {'; '.join(told) or 'it did not say which'}",
        f"headrace stream edit {name}    changes it; what is not named stays",
        f"headrace stream info {name}    shows it",
    )


@online(STREAM, INTERACTIVE, *SETTINGS, destroys=True)
async def edit(
    session: Session, stream: str, interactive: bool, file: Path | None, **given: Any
) -> None:
    """Change settings of a stream; what is not named stays.

    \b
    headrace stream edit ORDERS --max-age 30d --dry-run
    headrace stream edit ORDERS --subjects 'orders.>,returns.>' --force
    headrace stream edit ORDERS -i

    Lower limits remove messages at once, if the stream discards old ones: it says how many, and asks.
    """
    found = await session.js.stream(stream)
    present = await found.info()
    before = present.config
    config = config_file(file, StreamConfig) if file else before
    after = replaced(config, changes_of(given))
    if interactive:
        after = await edited(after, StreamConfig)
    after = replaced(after, {"name": stream})
    changed = differences(before, after)
    if not changed.rows:
        raise Failure("nothing to change; give settings such as --max-age 7d, -i or --config FILE")
    if session.output.is_text:
        session.output.show(None, changed)
    loss = await loss_of(found, present, after)
    if may_go_on(session.output, f"change stream {stream} so{loss.text}", loss.document):
        info = await found.update(after)
        session.output.show(to_wire(info), stream_sheet(info))
