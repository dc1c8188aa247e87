"""What a pipeline's sources set aside: values that did not fit, messages skipped or made dead letters.

Each task of a source that set something aside adds a line to a file beside the query's checkpoint, so that
the status of the pipeline can tell. A batch that runs again adds the same lines again; they are counted once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ..documents import read_json

_LOG: Final = logging.getLogger("headrace.spark")
BYTES_MAX: Final = 1024 * 1024
"""Nothing is added to a file of this size; what is counted then is the least that there was."""

_LOSSES: Final = ".losses.jsonl"

Kind = Literal["malformed", "skipped", "dead_letters"]


class Aside(NamedTuple):
    """What one task has set aside of its part of a batch."""

    kind: Kind
    stream: str
    part: str
    messages: int


def file_beside(losses: str) -> str:
    """The file of a query, beside the one in which its losses are noted; "" if it has none."""
    return losses.removesuffix(_LOSSES) + ".aside.jsonl" if losses else ""


def tell(all_: Iterable[Aside], file: str) -> None:
    """Add what there is to a file, if there is one."""
    lines = [json.dumps(each._asdict()) + "\n" for each in all_ if each.messages]
    if not lines or not file:
        return
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if os.fstat(descriptor).st_size < BYTES_MAX:
                os.write(
                    descriptor, "".join(lines).encode()
                )  # at once: tasks do not cut each other's lines
        finally:
            os.close(descriptor)
    except OSError as error:
        _LOG.warning("what was set aside is not noted in %s: %s", file, error.strerror or error)


def read_aside(file: Path) -> tuple[dict[str, int], bool]:
    """How many messages by kind, and whether there may be more, as the file is full."""
    if not file.is_file():
        return {}, False
    seen: dict[tuple[str, str, str], int] = {}
    text = file.read_bytes()
    for line in text.splitlines():
        with contextlib.suppress(ValueError, TypeError):  # a line that a full disk cut
            each = Aside(**read_json(line))
            key = (each.kind, each.stream, each.part)
            seen[key] = max(each.messages, seen.get(key, 0))
    sums: dict[str, int] = {}
    for (kind, _, _), messages in seen.items():
        sums[kind] = sums.get(kind, 0) + messages
    return sums, len(text) >= BYTES_MAX
