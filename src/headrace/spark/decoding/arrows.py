"""Arrow IPC payloads: each message is a stream of record batches, of which every row becomes a row."""

from __future__ import annotations

import base64
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

from .decoded import Decoded, Misfit

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGE_ROWS_MAX: Final = 1_000_000  # of a column of nulls a few bytes could claim any number


class ArrowFormat:
    """Decodes Arrow streams into the fields of ``schema``, by name; others are ignored, and missing ones are
    null.

    What a stranger sent is validated before anything reads it: a wrong offset in a buffer would make a
    process read foreign memory.
    """

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        self._schema = schema
        self._null_row = pa.Table.from_arrays(
            [pa.nulls(1, field.type) for field in schema], schema=schema
        )

    def decode(self, payloads: list[bytes], headers: list[bytes]) -> Decoded:
        import pyarrow as pa

        tables: list[pa.Table] = []
        counts: list[int] = []
        misfits: dict[int, Misfit] = {}
        for number, payload in enumerate(payloads):
            try:
                table, count = self._read(payload)
            except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
                text = str(error).splitlines()[0] if str(error) else type(error).__name__
                misfits[number] = Misfit(
                    f"not an Arrow stream of these columns: {text}",
                    base64.b64encode(payload).decode(),
                )
                table, count = self._null_row, 1
            tables.append(table)
            counts.append(count)
        rows = list(chain.from_iterable(map(repeat, range(len(counts)), counts)))
        if not self._schema.names:
            return Decoded([], rows, misfits)
        whole = pa.concat_tables(tables) if tables else self._schema.empty_table()
        return Decoded([_one_array(column) for column in whole.columns], rows, misfits)

    def _read(self, payload: bytes) -> tuple[pa.Table, int]:
        import pyarrow as pa

        with pa.ipc.open_stream(payload) as reader:
            names = reader.schema.names
            batches, count = [], 0
            for batch in reader:
                count += batch.num_rows
                if count > MESSAGE_ROWS_MAX:
                    raise ValueError(f"more than {MESSAGE_ROWS_MAX} rows in one message")
                batch.validate(full=True)
                batches.append(batch)
        columns: list[Any] = []
        for field in self._schema:
            if names.count(field.name) > 1:
                raise ValueError(f"column {field.name!r} is there more than once")
            if field.name in names:
                at = names.index(field.name)
                chunks = [batch.column(at).cast(field.type) for batch in batches]
                columns.append(pa.chunked_array(chunks, field.type))
            else:
                columns.append(pa.nulls(count, field.type))
        return pa.Table.from_arrays(columns, schema=self._schema), count


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
