"""A configuration in the editor of whoever types."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from typing import Final

import click

from ...api.base import D, DocumentError, from_wire, read_json, to_wire
from .errors import Failure
from .verbs import Declare

INTERACTIVE: Final[Declare] = click.option(
    "-i", "--interactive", is_flag=True, help="change it as JSON, in $VISUAL or $EDITOR"
)


async def edited(config: D, kind: type[D]) -> D:
    """The configuration as it is saved in an editor; as it was if nothing is saved.

    What is saved and cannot be read is kept in a file, which ``--config`` takes. Raises Failure.
    """
    text = json.dumps(to_wire(config), indent=2, ensure_ascii=False) + "\n"
    # Ctrl-C is for the editor. A handler, unlike an ignored signal, is not what the editor begins with.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        # In a thread, as the connection has to answer its server while somebody thinks.
        saved = await asyncio.to_thread(click.edit, text, extension=".json")
    finally:
        signal.signal(signal.SIGINT, before)
    if saved is None:
        return config
    try:
        document = read_json(saved.encode())
        if not isinstance(document, dict):
            raise DocumentError("it is not a JSON object")
        return from_wire(document, kind, strict=True)
    except DocumentError as error:
        path = _kept(saved)
        raise Failure(
            f"what was saved cannot be read: {error}",
            f"--config {path}    takes it, when it is mended",
        ) from None


def _kept(text: str) -> str:
    descriptor, path = tempfile.mkstemp(prefix="headrace-", suffix=".json")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return path
