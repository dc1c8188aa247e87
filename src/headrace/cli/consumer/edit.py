"""``headrace consumer edit STREAM CONSUMER``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...api.base import to_wire
from ...api.consumers import ConsumerConfig
from ..shared.asking import may_go_on
from ..shared.configuration import config_file, differences, replaced
from ..shared.errors import Failure
from ..shared.names import CONSUMER, STREAM
from ..shared.verbs import Session, online
from .info import consumer_sheet
from .settings import SETTINGS, changes_of


@online(STREAM, CONSUMER, *SETTINGS, destroys=True)
async def edit(
    session: Session,
    stream: str,
    consumer: str,
    file: Path | None,
    force: bool,
    dry_run: bool,
    **given: Any,
) -> None:
    """Change settings of a consumer; what is not named stays."""
    found = await session.js.consumer(stream, consumer)
    before = (await found.info()).config
    config = config_file(file, ConsumerConfig) if file else before
    names = {"name": before.name, "durable_name": before.durable_name}
    after = replaced(config, {**changes_of(given), **names})
    changed = differences(before, after)
    if not changed.rows:
        raise Failure(
            "nothing to change; give settings such as --max-pending 500, or --config FILE"
        )
    if session.output.is_text:
        session.output.show(None, changed)
    what = f"change consumer {consumer} of stream {stream} so"
    if may_go_on(session.output, what, force=force, dry_run=dry_run):
        info = await found.update(after)
        session.output.show(to_wire(info), consumer_sheet(info))
