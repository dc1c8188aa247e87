"""Decodes the payloads of a task; what becomes of those that do not fit, ``misfits`` decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..options.decoding import Mode
from .decoded import ArrayFormat, Format
from .misfits import MalformedError, Misfit, Misfits

if TYPE_CHECKING:
    import pyarrow as pa


class Columns(NamedTuple):
    """Columns by name, and the number of each row's message; None if each message made one row."""

    arrays: dict[str, pa.Array]
    rows: pa.Array | None


class Decoder:
    """Decodes the value of one task's messages.

    Args:
        form: the payload's format.
        names: the columns that it makes, as the user writes them.
        mode: what becomes of values that do not fit.
        rescued: the name of the column for these; "" for none.
        stream: for the report.
    """

    def __init__(
        self, form: Format, names: Sequence[str], mode: Mode, rescued: str, stream: str
    ) -> None:
        self._format = form
        self._names = tuple(names)
        self._misfits = Misfits(mode, rescued, stream)

    @property
    def misfits(self) -> int:
        """How many values did not fit so far."""
        return self._misfits.count

    @property
    def reads_arrays(self) -> bool:
        """Whether ``decode_together`` may be used."""
        return isinstance(self._format, ArrayFormat)

    def decode_together(self, payloads: pa.BinaryArray) -> dict[str, pa.Array] | None:
        """The value's columns by name, of payloads that all fit; None where one does not: then ``decode``."""
        if not isinstance(self._format, ArrayFormat):
            return None
        columns = self._format.decode_together(payloads)
        if columns is None:
            return None
        arrays = dict(zip(self._names, columns, strict=True))
        self._misfits.rescue(arrays, {}, None, len(payloads))
        return arrays

    def decode(
        self, payloads: list[bytes], headers: list[bytes], sequence_of: Callable[[int], int]
    ) -> Columns:
        """The value's columns; ``sequence_of`` tells that of a message, for the report.

        Raises:
            MalformedError: in the mode failfast, if a value does not fit.
        """
        import pyarrow as pa

        found = self._format.decode(payloads, headers)
        misfits = found.misfits
        if misfits:
            self._misfits.add(misfits, sequence_of)
        arrays = dict(zip(self._names, found.columns, strict=True))
        rows = None if found.rows is None else pa.array(found.rows, pa.int64())
        self._misfits.rescue(arrays, misfits, rows, len(payloads))
        if misfits and self._misfits.drops:
            return _without(arrays, rows, misfits, len(payloads))
        return Columns(arrays, rows)

    def decode_others(
        self,
        deleted: Sequence[int],
        payloads: list[bytes],
        headers: list[bytes],
        sequence_of: Callable[[int], int],
    ) -> Columns:
        """``decode``, where the ``deleted`` messages have no value: their columns are null."""
        import pyarrow as pa
        import pyarrow.compute as pc

        gone = set(deleted)
        kept = [number for number in range(len(payloads)) if number not in gone]
        try:
            found = self.decode(
                [payloads[number] for number in kept],
                [headers[number] for number in kept],
                lambda number: sequence_of(kept[number]),
            )
        except MalformedError as error:
            reasons = {kept[number]: reason for number, reason in error.reasons.items()}
            raise MalformedError(reasons) from None
        numbers = pa.array(kept, pa.int64())
        rows = numbers if found.rows is None else numbers.take(found.rows)
        rows = pa.concat_arrays([rows, pa.array(deleted, pa.int64())])
        order = pc.sort_indices(rows)
        return Columns(
            {
                name: pa.concat_arrays([array, pa.nulls(len(deleted), array.type)]).take(order)
                for name, array in found.arrays.items()
            },
            rows.take(order),
        )

    def report(self) -> None:
        """Say how many values did not fit, if any."""
        self._misfits.report()


def _without(
    arrays: dict[str, pa.Array], rows: pa.Array | None, misfits: dict[int, Misfit], messages: int
) -> Columns:
    import pyarrow as pa

    keep = [number not in misfits for number in range(messages)]
    if rows is None:
        numbers = pa.array([number for number in range(messages) if keep[number]], pa.int64())
        return Columns({name: array.take(numbers) for name, array in arrays.items()}, numbers)
    mask = pa.array(keep, pa.bool_()).take(rows)
    return Columns({n: array.filter(mask) for n, array in arrays.items()}, rows.filter(mask))
