"""Arrow IPC payloads: each message is a stream of record batches, of which every row becomes a row."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

from .decoded import Decoded
from .misfits import Misfit

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
                if not _holds(reader.schema.field(at).type, field.type):
                    said = reader.schema.field(at).type
                    raise ValueError(f"field {field.name!r} is {said}, which is no {field.type}")
                chunks = [_cast(batch.column(at), field.type) for batch in batches]
                columns.append(pa.chunked_array(chunks, field.type))
            else:
                columns.append(pa.nulls(count, field.type))
        return pa.Table.from_arrays(columns, schema=self._schema), count


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column as this type, all of it equal. Raises ArrowInvalid, ValueError."""
    if column.type == kind:
        return column
    made = column.cast(kind)
    if _is_rounded(column, made):
        raise ValueError("a double would be rounded to a float of 32 bits")
    return made


def _is_rounded(column: pa.Array, made: pa.Array) -> bool:
    """Whether a double was made a float that is not equal: all else a cast says itself."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind = pa.types, made.type
    if column.type == kind or types.is_null(column.type):
        return False
    if types.is_dictionary(column.type):
        return _is_rounded(column.dictionary_decode(), made)
    if types.is_float32(kind) and types.is_float64(column.type):
        equal = pc.or_(pc.equal(made.cast(column.type), column), pc.is_nan(column))
        return pc.all(equal).as_py() is False
    if types.is_struct(kind):
        names = [column.type.field(at).name for at in range(column.type.num_fields)]
        there, parts = column.flatten(), made.flatten()
        return any(
            _is_rounded(there[names.index(one.name)], part)
            for one, part in zip(kind, parts, strict=True)
            if one.name in names
        )
    if types.is_map(kind):
        return _is_rounded(column.keys, made.keys) or _is_rounded(column.items, made.items)
    return types.is_list(kind) and _is_rounded(column.flatten(), made.flatten())


def _holds(source: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values of a type may be those of a column, if a cast says that they are equal.

    A bare number is no time, and text no number: a cast would take them for one.
    """
    import pyarrow as pa

    types = pa.types
    if source == kind or types.is_null(source):
        return True
    if types.is_dictionary(source):
        return _holds(source.value_type, kind)
    if types.is_struct(kind):
        if not types.is_struct(source):
            return False
        names = [one.name for one in source]
        there = {one.name: one.type for one in source}
        # Of two fields of one name a cast takes the first.
        return all(
            names.count(one.name) == 1 and _holds(there[one.name], one.type)
            for one in kind
            if one.name in there
        )
    if types.is_map(kind):
        return (
            types.is_map(source)
            and _holds(source.key_type, kind.key_type)
            and _holds(source.item_type, kind.item_type)
        )
    if types.is_list(kind):
        is_list = types.is_list(source) or types.is_large_list(source)
        return (is_list or types.is_fixed_size_list(source)) and _holds(
            source.value_type, kind.value_type
        )
    return any(
        all(is_a(one) for is_a, one in zip(pair, (source, kind), strict=True)) for pair in _pairs()
    )


def _pairs() -> list[tuple[Callable[[Any], bool], Callable[[Any], bool]]]:
    """Types without parts, and those that may hold their values."""
    import pyarrow as pa

    types = pa.types

    def is_text(kind: Any) -> bool:
        return bool(
            types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        )

    def is_bytes(kind: Any) -> bool:
        return bool(
            types.is_binary(kind)
            or types.is_large_binary(kind)
            or types.is_binary_view(kind)
            or types.is_fixed_size_binary(kind)
        )

    def is_number(kind: Any) -> bool:
        return bool(
            types.is_integer(kind)
            or types.is_floating(kind)
            or types.is_decimal(kind)
            or types.is_boolean(kind)
        )

    def is_time(kind: Any) -> bool:
        return bool(types.is_timestamp(kind) or types.is_date(kind))

    return [
        (types.is_integer, types.is_integer),
        (types.is_integer, types.is_floating),
        (types.is_integer, types.is_decimal),
        (types.is_floating, types.is_floating),
        (types.is_decimal, types.is_decimal),
        (types.is_boolean, types.is_boolean),
        (is_number, types.is_string),
        (is_text, types.is_string),
        (is_text, types.is_binary),
        (is_bytes, types.is_binary),
        (is_bytes, types.is_string),
        (types.is_timestamp, types.is_timestamp),
        (types.is_date, types.is_date),
        (is_time, types.is_integer),
    ]


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
