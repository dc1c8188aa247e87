"""The last row of each key among those of a task: what a sink with ``key`` stores. Arrow does the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .layout import Layout
from .rows import BadRow, RowEncoder

if TYPE_CHECKING:
    import pyarrow as pa

DELETED: Final = b"KV-Operation: DEL\r\n"
_ENTRY_BYTES: Final = 200  # about what an entry takes beside its value


class LastOfKey(msgspec.Struct, frozen=True, gc=False):
    """A message to be: the values of the columns that tell the order, and which row of the task it was.

    A task holds many, and nothing in them refers to one: the garbage collector need not look at them.
    """

    order: tuple[int, ...]
    row: int
    lines: bytes
    payload: bytes

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return len(self.lines) + len(self.payload) + _ENTRY_BYTES


class Latest:
    """Collects the last rows of a task.

    Args:
        encoder: makes messages of rows.
        on_bad: is told of rows that make no message. The value of a row that a later one of its key replaces
            is not looked at.

    Attributes:
        rows: how many rows there were, but for those that were found bad.
        bytes: about how much is held.
    """

    def __init__(
        self, encoder: RowEncoder, layout: Layout, on_bad: Callable[[Sequence[BadRow]], None]
    ) -> None:
        self._encoder = encoder
        self._layout = layout
        self._on_bad = on_bad
        self._held: dict[bytes, LastOfKey] = {}
        self._seen = 0
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next rows."""
        first, self._seen = self._seen, self._seen + batch.num_rows
        self.rows += batch.num_rows
        subjects = self._encoder.subjects_of(batch)
        order = [_numbers(batch.column(at)) for at in self._layout.order]
        places = self._in_order(order, subjects, first, batch.num_rows)
        last = dict(zip([subjects[at] for at in places], places, strict=True))
        # A list has good subjects only.
        doubtful = () if type(subjects) is list else last
        bad = {each for each in doubtful if self._encoder.complaint(each) is not None}
        lost = [at for at in places if subjects[at] in bad] if bad else []
        wanted = [at for subject, at in last.items() if subject not in bad] + lost
        while wanted:
            failed = self._encode(batch, wanted, first, order)
            # Where the last row of a key makes no message, the one before it is the last.
            wanted = [
                before
                for at in failed
                if subjects[at] not in bad and (before := _before(at, places, subjects)) >= 0
            ]

    def take(self) -> dict[bytes, LastOfKey]:
        """All that is held, by subject; nothing is, afterwards."""
        held, self._held, self.bytes = self._held, {}, 0
        return held

    def _in_order(
        self, order: list[pa.Array], subjects: Sequence[bytes | None], first: int, count: int
    ) -> Sequence[int]:
        """The rows of a batch, the later ones behind; without those that have no place in the order."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows: Sequence[int] = range(count)
        if any(column.null_count for column in order):
            left = [at for at in rows if all(column[at].is_valid for column in order)]
            lost = sorted(set(rows) - set(left))
            self.rows -= len(lost)
            self._on_bad(
                [
                    BadRow(
                        str(first + at),
                        subjects[at] or b"",
                        b"",
                        b"",
                        "a column of its order is null",
                    )
                    for at in lost
                ]
            )
            rows = left
        if not order or not rows or (len(order) == 1 and _ascends(order[0])):
            return rows
        names = [str(number) for number in range(len(order))]
        table = pa.table([*order, pa.array(range(count), pa.int64())], names=[*names, "row"])
        keys: list[tuple[str, str]] = [(name, "ascending") for name in (*names, "row")]
        places: list[int] = pc.sort_indices(table, sort_keys=keys).to_pylist()
        if len(rows) < count:
            kept = set(rows)
            return [at for at in places if at in kept]
        return places

    def _encode(
        self, batch: pa.RecordBatch, wanted: list[int], first: int, order: list[pa.Array]
    ) -> list[int]:
        """Make messages of these rows. Returns the rows that make none."""
        import pyarrow as pa

        at = pa.array(wanted, pa.int64())
        chosen = batch if wanted == [*range(batch.num_rows)] else batch.take(at)
        numbers = [first + each for each in wanted]
        made = self._encoder.encode(chosen, numbers)
        found = list(self._encoder.numbers)
        deleted = {first + wanted[place] for place in _all_null(chosen, self._layout.checked)}
        columns = [column.take(at).to_pylist() for column in order]
        values: dict[int, tuple[int, ...]] = (
            dict(zip(numbers, zip(*columns, strict=True), strict=True)) if columns else {}
        )
        held = self._held
        for row, subject, lines, payload in zip(found, *made, strict=True):
            if row in deleted:
                lines, payload = lines + DELETED, b""
            entry = LastOfKey(values.get(row, ()), row, lines, payload)
            before = held.get(subject)
            if before is not None:
                if (before.order, before.row) > (entry.order, row):
                    continue
                self.bytes -= before.size
            held[subject] = entry
            self.bytes += len(lines) + len(payload) + _ENTRY_BYTES
        if len(found) == len(wanted):
            return []
        failed = [each for each in wanted if first + each not in set(found)]
        self.rows -= len(failed)
        return failed


def _numbers(column: pa.Array) -> pa.Array:
    """Whole numbers in the order of the values: dates as days, times as microseconds."""
    import pyarrow as pa

    kind: Any = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    return column.cast(pa.int64())


def _ascends(column: pa.Array) -> bool:
    """Whether none of the values is less than the one before it."""
    import pyarrow.compute as pc

    if len(column) < 2 or column.null_count:
        return len(column) < 2
    return bool(pc.all(pc.less_equal(column[:-1], column[1:])).as_py())


def _all_null(batch: pa.RecordBatch, columns: tuple[int, ...]) -> list[int]:
    """The rows in which each of these columns is null; none if there are no such columns."""
    import pyarrow.compute as pc

    if not columns or any(batch.column(at).null_count == 0 for at in columns):
        return []
    nulls = batch.column(columns[0]).is_null()
    for at in columns[1:]:
        nulls = pc.and_(nulls, batch.column(at).is_null())
    return [row for row, null in enumerate(nulls.to_pylist()) if null]


def _before(at: int, places: Sequence[int], subjects: Sequence[bytes | None]) -> int:
    """The row of the same key that comes before a row in the order; -1 if there is none."""
    found = -1
    for place in places:
        if place == at:
            return found
        if subjects[place] == subjects[at]:
            found = place
    return found
