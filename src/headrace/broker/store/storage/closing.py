"""The end of a store's life: what makes the next start quick."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..commit.commit import Committer
from ..log.file_log import FileLog
from ..log.memory_log import MemoryLog

_SEAL_AT_CLOSE: Final = 4096  # a tail with fewer messages is read faster than its footer is written


def close_up(logs: Iterable[FileLog | MemoryLog], committer: Committer) -> None:
    """Write the footers of long tails; the commit thread has ended. What fails makes the store read-only."""
    for log in logs:
        chore = log.closing_chore(_SEAL_AT_CLOSE) if isinstance(log, FileLog) else None
        if chore is not None:
            committer.run_chore(chore)
