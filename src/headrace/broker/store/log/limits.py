"""Keeping the newest few messages of each subject."""

from __future__ import annotations

from collections.abc import Iterable

from ....errors import StoreReadError
from ..index.index import Segment
from .bulk import Thinning
from .edits import EditableLog

__all__ = ["LimitedLog"]


class LimitedLog(EditableLog):
    """The half of a stream store that thins; see ``StreamStore`` in ``core/ports.py``."""

    def thin(self, subjects: Iterable[bytes], keep: int) -> list[int]:
        """Remove all but the newest ``keep``, at least 1, of each of these; returns the sequences.

        A StoreReadError ends it where it is, and tells what was removed before.
        """
        self._check_writable()
        before, sparser = len(self._removed), dict[Segment, None]()
        try:
            for sid in map(self._table.ids.get, subjects):
                if sid is not None and not self._is_covered(sid):
                    self._enforce_one(sid, keep, sparser)
        except StoreReadError as error:
            error.removed = self._finish_enforcing(before, sparser)
            raise
        return self._finish_enforcing(before, sparser)

    def thinning(self, keep: int) -> Thinning:
        """As ``thin`` for every subject, some at a time; until it is done, ``thin`` leaves it its own."""
        self._pass = Thinning(self, keep)
        return self._pass

    def _is_covered(self, sid: int) -> bool:
        thinning = self._pass
        return thinning is not None and thinning.covers(self._table.names[sid])

    def thin_superseded(self) -> list[int]:
        """Remove what is in ``superseded``, so that each subject has one again; returns the sequences.

        A StoreReadError ends it, as ``thin``; what is left stays in ``superseded``.
        """
        self._check_writable()
        noted = self.superseded
        if not noted:
            return []
        self.superseded = []
        counts, removed, locate = self._table.counts, self._removed, self._locate
        before, sparser = len(removed), dict[Segment, None]()
        at = 0
        try:
            for at, (sid, sequence) in enumerate(noted):  # noqa: B007 - it tells how far that went
                segment, position = locate(sequence)
                if position >= 0 and segment.sids[position] == sid and counts[sid] > 1:
                    segment.mark_dead(position)
                    self._drop(segment, position)
                    removed.append(sequence)
                    if segment.sealed:
                        sparser[segment] = None
                elif not self._is_covered(sid):  # it was removed otherwise, or is the newest again
                    self._enforce_one(sid, 1, sparser)
        except StoreReadError as error:
            self.superseded = noted[at:]
            error.removed = self._finish_enforcing(before, sparser)
            raise
        return self._finish_enforcing(before, sparser)

    def _enforce_one(self, sid: int, keep: int, sparser: dict[Segment, None]) -> None:
        table = self._table
        for _ in range(table.counts[sid] - keep):
            sequence = table.firsts[sid]
            segment, position = self._locate(sequence)
            if position < 0 or segment.sids[position] != sid:
                sequence = self.search.first_of(sid)
                segment, position = self._locate(sequence)
            segment.mark_dead(position)
            self._drop(segment, position)
            self._removed.append(sequence)
            if segment.sealed:
                sparser[segment] = None

    def _finish_enforcing(self, before: int, sparser: dict[Segment, None]) -> list[int]:
        removed = self._removed[before:]
        if removed:
            for segment in sparser:
                self._note_if_sparse(segment)
            self.after_removal()
        return removed
