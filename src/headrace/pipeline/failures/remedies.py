"""What helps against a failure beside its own sentence: the command to type, the disk that is full."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..model import Declared, Sink
from ..options import place_of_results
from .causes import Cause

FULL_BYTES: Final = 16 * 1024 * 1024
"""A disk with less than that free counts as full."""


def remedy(
    declared: Declared, sink: Sink, cause: Cause, free: Callable[[Path], int] | None = None
) -> str:
    """A clause to put behind the cause; "" where there is nothing to add.

    Args:
        free: the bytes that are free on the disk of a directory; default: asks the system.
    """
    if "onStreamReset=continue" in cause.text:
        return f'in {declared.file}, among the options of its source: onStreamReset = "continue"'
    if "new checkpoint" in cause.text or "headrace pipeline reset" in cause.text:
        return f"the command: {declared.command('reset', '--query', sink.name, '--to', 'earliest')}"
    if cause.text == "no space is left on the disk":
        full = [str(each) for each in _places(declared, sink) if (free or _free)(each) < FULL_BYTES]
        return f"full are: {', '.join(full)}" if full else ""
    return ""


def _places(declared: Declared, sink: Sink) -> list[Path]:
    """The directories that a query writes to: its checkpoint, its results, and Spark's own."""
    found = [declared.checkpoint_path] if declared.is_local_checkpoint else []
    results = place_of_results(declared, sink, "")
    if results and "://" not in results:
        found.append(Path(results))
    found.append(Path(declared.conf.get("spark.local.dir", "/tmp")))  # noqa: S108
    return found


def _free(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free
