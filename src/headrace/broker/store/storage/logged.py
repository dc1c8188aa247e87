"""A store's commit log: what one life has left of it, and that of the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..commit.commit_log import LOG_SHAPE, CommitLog, LogShape
from ..commit.writer import Writer
from ..format.record import OVERHEAD
from ..format.version import FIRST_FORMAT
from ..io.files import FileSystem, is_full
from ..io.findings import Finding, Quarantine
from ..meta.journal_writer import JournalWriter
from ..recovery.replay import Replayed, replay
from .layout import Layout

MISSING_MAX: Final = 2 * LOG_SHAPE.file_bytes // OVERHEAD
"""How many messages of a stream the files of a log hold at most."""


def replay_log(
    fs: FileSystem,
    layout: Layout,
    quarantine: Quarantine,
    report: Callable[[Finding], None],
    *,
    at_once: bool,
    anchor: int,
) -> Replayed:
    """Write what a log holds to its places, before anything else is read.

    Raises StoreFormatError, OSError.
    """
    found = layout.format

    def settled() -> None:
        if found.number == FIRST_FORMAT and not layout.is_format_damaged:
            return
        try:
            layout.say_log(found.log, False)
        except OSError as error:
            if not is_full(error) or found.number:
                raise  # a log that is said to be there would be missed

    return replay(
        fs, layout.root, quarantine, report, found, settled, at_once=at_once, anchor=anchor
    )


def new_commit_log(
    shape: LogShape,
    layout: Layout,
    writer: Writer,
    journal: JournalWriter,
    new_salt: Callable[[], int],
    *,
    replayed: Replayed,
) -> CommitLog:
    """The log of a store that was opened; ``replayed``: what the life before has left of its own."""
    return CommitLog(
        writer.fs,
        layout.root,
        shape,
        writer.syncing,
        new_salt,
        say=layout.say_log,
        sync_journal=journal.sync,
        put_mark=writer.put_mark,
        was_in_use=replayed.was_in_use,
        is_said=replayed.is_short,
    )
