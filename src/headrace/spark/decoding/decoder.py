"""Decodes the payloads of a task, and does with what does not fit as the mode says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ..options.decoding import Mode
from .decoded import ArrayFormat, Decoded, Format, Misfit

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger("headrace.spark")

RESCUED_COLUMN: Final = "_rescued"


class MalformedError(Exception):
    """Values that do not fit, where that makes their messages bad: why, by the message's number."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__()
        self.reasons = reasons


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
        self._mode = mode
        self._rescued = rescued
        self._stream = stream
        self._first = ""
        self.misfits = 0

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
        if self._rescued:
            arrays[self._rescued] = _rescued_column(Decoded(columns, None, {}), len(payloads))
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
            if self._mode == "failfast":
                raise MalformedError({number: misfit.reason for number, misfit in misfits.items()})
            self._count(misfits, sequence_of)
        arrays = dict(zip(self._names, found.columns, strict=True))
        rows = None if found.rows is None else pa.array(found.rows, pa.int64())
        if self._rescued:
            arrays[self._rescued] = _rescued_column(found, len(payloads))
        if misfits and self._mode == "dropmalformed":
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
        if not self.misfits:
            return
        done = {"permissive": "are null", "dropmalformed": "were dropped"}[self._mode]
        _LOG.warning(
            "stream %r: %d values of this task did not fit and %s; the first is %s",
            self._stream,
            self.misfits,
            done + (f", see {self._rescued}" if self._rescued else ""),
            self._first,
        )

    def _count(self, misfits: dict[int, Misfit], sequence_of: Callable[[int], int]) -> None:
        if not self._first:
            number, misfit = min(misfits.items())
            self._first = f"message {sequence_of(number)}: {misfit.reason}"
        self.misfits += len(misfits)


def _rescued_column(found: Decoded, messages: int) -> pa.Array:
    import pyarrow as pa

    if not found.misfits:
        return pa.nulls(messages if found.rows is None else len(found.rows), pa.string())
    texts: list[str | None] = [None] * messages
    for number, misfit in found.misfits.items():
        texts[number] = misfit.rescued
    column = pa.array(texts, pa.string())
    return column if found.rows is None else column.take(pa.array(found.rows, pa.int64()))


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
