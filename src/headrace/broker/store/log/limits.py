"""Keeping the newest few messages of each subject."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ....errors import StoreReadError
from ..index.index import Segment
from .bulk import LimitPass

if TYPE_CHECKING:
    from .log import StreamLog


class SubjectLimits:
    """Enforces a limit of messages per subject on one log."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._pass: LimitPass | None = None  # the one that was begun last

    def forget(self) -> None:
        """Messages are back: what a pass has met may be there again; who wants one begins anew."""
        self._pass = None
        if self._log.superseded:
            self._log.superseded = []

    def renumber(self, places: Sequence[int]) -> None:
        if self._log.superseded:
            noted = self._log.superseded
            self._log.superseded = [(places[sid], sequence) for sid, sequence in noted]

    def enforce(self, subjects: Iterable[bytes], keep: int) -> list[int]:
        """Remove all but the newest ``keep``, at least 1, of each of these; returns the sequences.

        A StoreReadError ends it where it is, and tells what was removed before.
        """
        self._log.check_writable()
        before, sparser = len(self._log.removals.removed), dict[Segment, None]()
        try:
            for sid in map(self._log.table.ids.get, subjects):
                if sid is not None and not self._is_covered(sid):
                    self._enforce_one(sid, keep, sparser)
        except StoreReadError as error:
            error.removed = self._finish_enforcing(before, sparser)
            raise
        return self._finish_enforcing(before, sparser)

    def enforcing(self, keep: int) -> LimitPass:
        """As ``enforce`` for every subject, some at a time; until that is done, ``enforce`` leaves
        its subjects alone.
        """
        self._pass = LimitPass(self._log, keep)
        return self._pass

    def _is_covered(self, sid: int) -> bool:
        running = self._pass
        return running is not None and running.covers(self._log.table.names[sid])

    def enforce_on_superseded(self) -> list[int]:
        """Remove what is in ``superseded``, so that each subject has one again; returns the sequences.

        A StoreReadError ends it, as ``enforce``; what is left stays in ``superseded``.
        """
        self._log.check_writable()
        noted = self._log.superseded
        if not noted:
            return []
        self._log.superseded = []
        counts, removed, locate = (
            self._log.table.counts,
            self._log.removals.removed,
            self._log.locate,
        )
        before, sparser = len(removed), dict[Segment, None]()
        at = 0
        try:
            for at, (sid, sequence) in enumerate(noted):  # noqa: B007 - it tells how far that went
                segment, position = locate(sequence)
                if position >= 0 and segment.sids[position] == sid and counts[sid] > 1:
                    segment.mark_dead(position)
                    self._log.removals.drop(segment, position)
                    removed.append(sequence)
                    if segment.sealed:
                        sparser[segment] = None
                elif not self._is_covered(sid):  # it was removed otherwise, or is the newest again
                    self._enforce_one(sid, 1, sparser)
        except StoreReadError as error:
            self._log.superseded = noted[at:]
            error.removed = self._finish_enforcing(before, sparser)
            raise
        return self._finish_enforcing(before, sparser)

    def _enforce_one(self, sid: int, keep: int, sparser: dict[Segment, None]) -> None:
        table = self._log.table
        for _ in range(table.counts[sid] - keep):
            sequence = table.firsts[sid]
            segment, position = self._log.locate(sequence)
            if position < 0 or segment.sids[position] != sid:
                sequence = self._log.search.first_of(sid)
                segment, position = self._log.locate(sequence)
            segment.mark_dead(position)
            self._log.removals.drop(segment, position)
            self._log.removals.removed.append(sequence)
            if segment.sealed:
                sparser[segment] = None

    def _finish_enforcing(self, before: int, sparser: dict[Segment, None]) -> list[int]:
        removed = self._log.removals.removed[before:]
        if removed:
            for segment in sparser:
                self._log.note_sparse(segment)
            self._log.removals.after_removal()
        return removed
