"""``headrace stream edit STREAM``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...api.base import to_wire
from ...api.streams import StreamConfig
from ..shared.asking import may_go_on
from ..shared.configuration import config_file, differences, replaced
from ..shared.errors import Failure
from ..shared.names import STREAM
from ..shared.verbs import Session, online
from .info import stream_sheet
from .settings import SETTINGS, changes_of


@online(STREAM, *SETTINGS, destroys=True)
async def edit(
    session: Session, stream: str, file: Path | None, force: bool, dry_run: bool, **given: Any
) -> None:
    """Change settings of a stream; what is not named stays.

    \b
    headrace stream edit ORDERS --max-age 30d --dry-run
    headrace stream edit ORDERS --subjects 'orders.>,returns.>' --force

    Lower limits remove messages at once.
    """
    found = await session.js.stream(stream)
    before = (await found.info()).config
    config = config_file(file, StreamConfig) if file else before
    after = replaced(config, {**changes_of(given), "name": stream})
    changed = differences(before, after)
    if not changed.rows:
        raise Failure("nothing to change; give settings such as --max-age 7d, or --config FILE")
    if session.output.is_text:
        session.output.show(None, changed)
    if may_go_on(session.output, f"change stream {stream} so", force=force, dry_run=dry_run):
        info = await found.update(after)
        session.output.show(to_wire(info), stream_sheet(info))
