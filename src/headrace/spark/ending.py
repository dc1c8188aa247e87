"""A pipeline that is to end between two batches: its sources offer nothing more.

Spark begins the next batch as soon as one is done, if a source has something. The runner, which stops the
query then, would cut that one off: its tasks write on, and whoever goes on repeats it. So it says first that
it ends, in a file beside the query's checkpoint, by the number of this run: what another run has left there
means nothing.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Final

from .options.source import Use

_LOG: Final = logging.getLogger("headrace.spark")
_LOSSES: Final = ".losses.jsonl"


def announce(losses: str, run: str) -> bool:
    """Let the sources of this run offer nothing more; whether they will see it."""
    file = _file_beside(losses)
    written = file.with_name(f"{file.name}-{run}")
    try:
        written.write_text(run, encoding="ascii")
        written.replace(file)
        return True
    except OSError as error:
        _LOG.warning("the end is not noted in %s: %s", file, error.strerror or error)
        return False


def forget(losses: str) -> None:
    """The run has ended."""
    with contextlib.suppress(OSError):  # it means nothing to the next one
        _file_beside(losses).unlink()


def is_announced(use: Use) -> bool:
    """Whether the run that a source is a part of ends."""
    if not use.losses:
        return False
    try:
        return _file_beside(use.losses).read_text(encoding="ascii", errors="replace") == use.run
    except OSError:
        return False


def _file_beside(losses: str) -> Path:
    return Path(losses.removesuffix(_LOSSES) + ".ending")
