"""Files that nobody but their owner can read: keys, tokens, passwords."""

from __future__ import annotations

from pathlib import Path

from ...files import write_whole
from .errors import Failure


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else can read, in one step. Raises Failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, text)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
