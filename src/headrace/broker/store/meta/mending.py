"""Giving the metadata journal back what it lost and the streams' directories still tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..io.findings import Finding
from ..storage.layout import Directories
from .journal_file import Journal
from .spare import merge

__all__ = ["mend"]

_KEYS_SHOWN: Final = 5


def mend(journal: Journal, found: Directories, report: Callable[[Finding], None]) -> None:
    """Complete a journal that was just read, and say what was taken from where."""
    journal.damaged |= journal.missing and bool(found.streams or found.nameless or found.barred)
    if journal.missing and journal.damaged:
        what = "there was no readable metadata journal in a store that is not new; one was made"
        report(Finding(journal.path, 0, what))
    for name, spare in found.spares.items():
        if spare.fault:
            what = f"the copy of metadata {spare.fault}; it is made anew"
            report(Finding(spare.path, 0, what, name))
    for spare, keys in merge(journal, found.spares):
        journal.damaged = True  # it is to be written anew, with these
        what = f"the journal does not have {_listed(keys)}; taken from the copy beside the stream"
        report(Finding(spare.path, 0, what, spare.name))


def _listed(keys: list[str]) -> str:
    """The first few of these keys, in words."""
    shown = ", ".join(map(repr, keys[:_KEYS_SHOWN]))
    return shown if len(keys) <= _KEYS_SHOWN else f"{shown} and {len(keys) - _KEYS_SHOWN} more"
