"""Files that nobody but their owner can read: keys, tokens, passwords."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import Failure


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else can read, in one step. Raises Failure."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
