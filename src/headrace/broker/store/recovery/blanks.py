"""Stretches of a file that hold no record when a stream is opened: given back, or damaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..index.index import Segment
from ..io.findings import Quarantine


class Blank:
    """A stretch that may have been given back, and which messages are missing there."""

    def __init__(self, segment: Segment, offset: int, content: bytes, first: int) -> None:
        self.segment = segment
        self.offset = offset
        self.size = len(content)
        self.content = content.strip(b"\0") and content
        self.first = first
        self.last = first - 1


class Blanks:
    """Those of one stream, in the order they were found."""

    def __init__(self) -> None:
        self._found: list[Blank] = []
        self._open: list[Blank] = []

    def note(self, segment: Segment, offset: int, content: bytes, first: int) -> None:
        """No record lies here, where a message ``first`` or a later one is to be expected."""
        self._open.append(Blank(segment, offset, content, first))

    def close(self, sequence: int) -> bool:
        """The next message has this sequence; whether there were blanks before it."""
        for blank in self._open:
            blank.last = sequence - 1
        return self.end()

    def end(self) -> bool:
        """The file is at its end; whether there were blanks before that."""
        found, self._open = self._open, []
        self._found += found
        return bool(found)

    def damaged(
        self, removals: Sequence[tuple[int, int]], quarantine: Quarantine, root: str
    ) -> Iterator[Blank]:
        """Those that are no holes, as something there was not removed; what they hold is kept."""
        for blank in self._found:
            if not _covered(blank.first, blank.last, removals):
                if blank.content:
                    quarantine.keep(blank.segment.path, root, blank.offset, blank.content)
                yield blank


def _covered(first: int, last: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(low <= first <= last <= high for low, high in ranges)
