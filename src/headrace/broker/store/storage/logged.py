"""A store's commit log: what one life has left of it, and that of the next."""

from __future__ import annotations

from collections.abc import Callable

from ..commit.commit_log import CommitLog, LogShape
from ..commit.writer import Writer
from ..format.version import FIRST_FORMAT
from ..io.files import FileSystem
from ..io.findings import Finding, Quarantine
from ..meta.journal_writer import JournalWriter
from ..recovery.replay import replay
from .layout import Layout


def replay_log(
    fs: FileSystem,
    layout: Layout,
    quarantine: Quarantine,
    report: Callable[[Finding], None],
    *,
    at_once: bool,
    anchor: int,
) -> bool:
    """Write what a log holds to its places, before anything else is read; whether there was one.

    Raises StoreFormatError, OSError.
    """
    found = replay(fs, layout.root, quarantine, report, at_once=at_once, anchor=anchor)
    if layout.number > FIRST_FORMAT:
        layout.say_format(has_log=False)
    return found


def new_commit_log(
    shape: LogShape,
    layout: Layout,
    writer: Writer,
    journal: JournalWriter,
    new_salt: Callable[[], int],
    *,
    had_log: bool,
) -> CommitLog:
    """The log of a store that was opened; ``had_log``: the life before had one."""
    return CommitLog(
        writer.fs,
        layout.root,
        shape,
        writer.syncing,
        new_salt,
        say=layout.say_format,
        sync_journal=journal.sync,
        put_mark=writer.put_mark,
        was_in_use=had_log,
    )
