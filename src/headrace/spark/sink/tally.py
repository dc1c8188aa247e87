"""The rows of one task on their way to the stream, and their hash. Pure."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from .markers import Marker, PlanChangedError
from .rows import Rows

_DIGEST_BYTES: Final = 16


class Chunk(NamedTuple):
    """Rows to be stored together; with them the partition has ``total`` rows and this hash."""

    rows: Rows
    total: int
    digest: str
    chain: hashlib.blake2b


class Tally:
    """Rows that are not known to be stored, after ``stored`` ones that are.

    What the stream has of this batch already is compared, row by row in the hash, and passed over.

    Args:
        what: the partition and batch, for errors.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._rows = Rows([], [], [])
        self._chain = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._ahead: Marker | None = None
        self._all = 0  # how many rows there were when the batch ran before, once that is known
        self.stored = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def digest(self) -> str:
        """The hash of the stored rows."""
        return self._chain.hexdigest()

    def add(self, rows: Rows) -> None:
        """Take in the next rows of the partition. Raises PlanChangedError if there must be none."""
        if self._all and len(rows):
            raise self._changed(f"it had {self._all} rows, and now has more")
        for mine, new in zip(self._rows, rows, strict=True):
            mine.extend(new)
        self.bytes += sum(map(len, rows.payloads))

    def expect(self, marker: Marker) -> None:
        """The stream has so many rows of this partition, those stored so far among them."""
        self._ahead = marker

    def compare(self) -> Marker | None:
        """Pass over rows that the stream has. Returns its marker once they all have come and are equal.

        Raises:
            PlanChangedError: they are not.
        """
        ahead = self._ahead
        if ahead is None:
            return None
        passed = min(ahead.rows - self.stored, len(self))
        self._drop(passed, self.chunk(passed))
        if self.stored < ahead.rows:
            return None
        if self.digest != ahead.digest:
            raise self._changed(f"its first {ahead.rows} rows are not those that were stored")
        self._ahead = None
        if ahead.is_last:
            self._all = ahead.rows
            if len(self):
                raise self._changed(f"it had {ahead.rows} rows, and now has more")
        return ahead

    def end(self) -> None:
        """There are no more rows. Raises PlanChangedError if the stream has more of them."""
        if self._ahead is not None:
            raise self._changed(
                f"the stream has {self._ahead.rows} rows of it, and now it has {self.stored}"
            )

    def chunk(self, count: int) -> Chunk:
        """The next rows."""
        rows = Rows(*(column[:count] for column in self._rows))
        chain = self._chain.copy()
        chain.update(
            b"".join(
                [
                    b"%b %d %d\n%b%b" % (subject, len(lines), len(payload), lines, payload)
                    for subject, lines, payload in zip(*rows, strict=True)
                ]
            )
        )
        return Chunk(rows, self.stored + count, chain.hexdigest(), chain)

    def is_stored(self, chunk: Chunk) -> None:
        """The stream has confirmed the next rows."""
        self._drop(len(chunk.rows), chunk)

    def _drop(self, count: int, chunk: Chunk) -> None:
        self._chain = chunk.chain
        self.stored = chunk.total
        self.bytes -= sum(map(len, chunk.rows.payloads))
        for column in self._rows:
            del column[:count]

    def _changed(self, how: str) -> PlanChangedError:
        return PlanChangedError(
            f"jetstream sink: {self._what} runs again with other rows: {how}. Nothing more is written. A "
            "batch must have the same rows in the same partitions and order when it runs again: go back to "
            "the former options, code and data until it is through, or begin with a new checkpoint and a "
            "new sinkId"
        )
