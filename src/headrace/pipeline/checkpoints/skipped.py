"""Messages that a query leaves out because its code fails on them: a file beside its checkpoint.

A line of it is written when the dead letter of the message is stored, and before the query begins again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from ...documents import read_json
from ...errors import ConfigurationError
from ...files import SHARED, write_whole
from .checkpoint import Generation


class Skipped(NamedTuple):
    """One message, by the source of the pipeline that reads it, and where its code failed."""

    source: str
    stream: str
    sequence: int
    subject: str
    view: str
    reason: str


def file_of(generation: Generation) -> Path | None:
    """Where they are kept; None below a URL, which is not written here."""
    return None if "://" in generation.path else Path(f"{generation.path}.skipped.jsonl")


def read_skipped(generation: Generation) -> list[Skipped]:
    """What a query leaves out. Raises ConfigurationError: the file is damaged."""
    file = file_of(generation)
    if file is None or not file.is_file():
        return []
    try:
        return [
            Skipped(**read_json(line)) for line in file.read_text(encoding="utf-8").splitlines()
        ]
    except (ValueError, TypeError):
        raise ConfigurationError(
            f"{file} is damaged: each line names a message that the query leaves out"
        ) from None


def skip(generation: Generation, found: Skipped) -> None:
    """Leave this message out from now on."""
    file = file_of(generation)
    assert file is not None
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = dict.fromkeys([*read_skipped(generation), found])
    write_whole(file, "".join(json.dumps(each._asdict()) + "\n" for each in lines), SHARED)
