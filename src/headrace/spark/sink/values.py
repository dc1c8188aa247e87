"""Payloads: the column ``data``, or other columns encoded as one value a row."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ...documents import read_json
from .layout import Layout
from .options import ACCEPTED

if TYPE_CHECKING:
    import pyarrow as pa


class UnfitValue(str):
    """Why a row has no payload; stands in its place."""

    __slots__ = ()


Payload = bytes | UnfitValue
Encode = Callable[["pa.RecordBatch"], list[Payload]]


def encoder_of(layout: Layout, schema: str = "") -> Encode:
    """What makes a batch's payloads, in the order of its rows.

    Raises:
        ConfigurationError: ``schema`` cannot be used, or a package is missing.
    """
    if layout.format == "raw":
        return lambda batch: _raw(batch.column(layout.data))
    if layout.format == "json":
        return lambda batch: _each(msgspec.json.Encoder().encode, _dicts(batch, layout))
    if layout.format == "arrow":
        return lambda batch: _arrow(batch, layout)
    encode = _avro(schema)
    return lambda batch: _each(encode, _dicts(batch, layout))


def _raw(column: pa.Array) -> list[Payload]:
    import pyarrow as pa

    if column.type != pa.binary():
        column = column.cast(pa.binary())
    values: list[Payload] = column.to_pylist()
    return [value or b"" for value in values] if column.null_count else values


def _dicts(batch: pa.RecordBatch, layout: Layout) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.select(list(layout.values)).to_pylist(
        maps_as_pydicts="strict"
    )
    return rows


def _each(encode: Callable[[Any], bytes], rows: list[dict[str, Any]]) -> list[Payload]:
    try:
        return [encode(row) for row in rows]
    except (TypeError, ValueError, OverflowError):
        return [_one(encode, row) for row in rows]


def _one(encode: Callable[[Any], bytes], row: dict[str, Any]) -> Payload:
    try:
        return encode(row)
    except (TypeError, ValueError, OverflowError) as error:
        return UnfitValue(f"it cannot be encoded: {error}")


def _arrow(batch: pa.RecordBatch, layout: Layout) -> list[Payload]:
    import pyarrow as pa

    values = batch.select(list(layout.values))
    payloads: list[Payload] = []
    for index in range(values.num_rows):
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, values.schema) as writer:
            writer.write_batch(values.slice(index, 1))
        payloads.append(out.getvalue().to_pybytes())
    return payloads


def _avro(schema: str) -> Callable[[Any], bytes]:
    try:
        import fastavro
    except ImportError:
        raise ACCEPTED.error(
            'valueFormat=avro needs the package fastavro: pip install "headrace[avro]"'
        ) from None
    try:
        parsed = fastavro.parse_schema(read_json(schema))
    except (ValueError, fastavro.schema.SchemaParseException, KeyError, TypeError) as error:
        raise ACCEPTED.error(f"option 'avroSchema' is no Avro schema: {error!r}") from None

    def encode(row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        return out.getvalue()

    return encode
