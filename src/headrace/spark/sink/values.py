"""Payloads: the column ``data``, or other columns encoded as one value a row, with the schema that a message
names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...errors import ConfigurationError
from ...schemas.codecs import AvroCodec, codecs_of
from ...schemas.errors import NoSchemaError
from ...schemas.framing import HEADER
from ..decoding.decoded import some_of
from ..links.outages import ServerPatience
from .layout import Layout
from .options import ACCEPTED, SinkOptions, ValueSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from ...schemas.registry import Kind


_PLANNING_S: Final = 5.0  # a write that cannot read its schema does not begin


def with_schema(options: SinkOptions, *, streaming: bool = False) -> SinkOptions:
    """The options with the schema that they name, read by the driver; in a query once for each batch, whose
    registry is waited for as its server is.

    Raises:
        ConfigurationError: there is none.
        RegistryAwayError: the registry does not answer.
    """
    if options.value_format not in ("avro", "protobuf"):
        return options
    schema_id = options.schema_id
    if options.registry.url:
        from ...schemas.registry import SchemaRegistry  # with HTTP, which other sinks need not load

        kind: Kind = "AVRO" if options.value_format == "avro" else "PROTOBUF"
        seconds = options.reconnect_timeout_s if streaming else _PLANNING_S
        patience = ServerPatience(seconds, f"the registry {options.registry.url}")
        found = SchemaRegistry(options.registry, kind, patience).newest()
        schema_id, text = found
    elif options.value_format == "avro":
        text = options.avro_schema.encode()
    else:
        text = _file(options.descriptor_file)
    header_line = prefix = b""
    if schema_id is not None and options.schema_id_to == "header":
        header_line = f"{HEADER}: {schema_id}\r\n".encode()
    elif schema_id is not None:
        prefix = b"\0" + schema_id.to_bytes(4, "big")
    return replace(
        options, value_schema=ValueSchema(text, options.message_name, header_line, prefix)
    )


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ACCEPTED.error(f"'descFilePath' {path!r}: {error.strerror}") from None


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)


class UnfitValue(str):
    """Why a row has no payload; stands in its place."""

    __slots__ = ()


Payload = bytes | UnfitValue
Encode = Callable[["pa.RecordBatch"], list[Payload]]


def encoder_of(layout: Layout, schema: ValueSchema | None = None) -> Encode:
    """What makes a batch's payloads, in the order of its rows.

    Raises:
        ConfigurationError: ``schema`` cannot be used, or a package is missing.
    """
    if layout.format == "raw":
        return lambda batch: _raw(batch.column(layout.data))
    if layout.format == "json":
        encode_json = msgspec.json.Encoder(decimal_format="number").encode
        return lambda batch: _each(encode_json, _spelled(batch, layout))
    if layout.format == "arrow":
        return lambda batch: _arrow(batch, layout)
    assert schema is not None
    if layout.format == "protobuf":
        from .protobufs import encoder

        names = layout.value_names
        encode = encoder(schema, names)
    else:
        encode = _avro(schema, layout.value_names)
    return lambda batch: _each(encode, _dicts(batch, layout))


def _raw(column: pa.Array) -> list[Payload]:
    import pyarrow as pa

    if column.type != pa.binary():
        column = column.cast(pa.binary())
    values: list[Payload] = column.to_pylist()
    return [value or b"" for value in values] if column.null_count else values


def _values(batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """The columns to encode, with all instants in UTC: Spark hands them over in the zone of its session."""
    import pyarrow as pa

    values = batch.select(list(layout.values))
    kinds = [_in_utc(field.type) for field in values.schema]
    if kinds == values.schema.types:
        return values
    columns = [column.cast(kind) for column, kind in zip(values.columns, kinds, strict=True)]
    fields = [field.with_type(kind) for field, kind in zip(values.schema, kinds, strict=True)]
    # What else the schema says is written, too, and must be the same in every zone.
    schema = pa.schema(fields, values.schema.metadata)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC") if kind.tz else kind
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([one.with_type(_in_utc(one.type)) for one in kind])
    if types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_in_utc(kind.key_type)),
            kind.item_field.with_type(_in_utc(kind.item_type)),
        )
    return kind


def _dicts(batch: pa.RecordBatch, layout: Layout) -> list[Any]:
    """The rows; why there is none in the place of one that Python cannot hold, such as a year after 9999."""
    values = _values(batch, layout)
    try:
        columns = [_pylist(column) for column in values.columns]
    except (ValueError, OverflowError, KeyError):
        return [_dict(values.slice(row, 1)) for row in range(values.num_rows)]
    names = values.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _pylist(column: pa.Array) -> list[Any]:
    """The values of a column. Raises ValueError, OverflowError, KeyError: Python cannot hold one."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        # Arrow looks the zone up for each of them, and its times take long to subtract from others.
        epoch = _EPOCH if kind.tz else _LOCAL_EPOCH
        micros: list[int | None] = column.cast(pa.int64()).to_pylist()
        return [None if one is None else epoch + timedelta(0, 0, one) for one in micros]
    # Arrow has a quicker way where it need not look for maps.
    how: Any = "strict" if _holds_maps(kind) else None
    found: list[Any] = column.to_pylist(maps_as_pydicts=how)
    return found


def _holds_maps(kind: pa.DataType) -> bool:
    """Whether its values are maps, or have some in them."""
    import pyarrow as pa

    return pa.types.is_map(kind) or any(
        _holds_maps(kind.field(at).type) for at in range(kind.num_fields)
    )


def _dict(row: pa.RecordBatch) -> Any:
    try:
        return row.to_pylist(maps_as_pydicts="strict")[0]
    except (ValueError, OverflowError, KeyError) as error:
        return UnfitValue(f"it cannot be encoded: {error}")


def _spelled(batch: pa.RecordBatch, layout: Layout) -> list[Any]:
    """The rows for JSON, which has no numbers for NaN and infinity: they are text, as Spark writes them."""
    rows: list[Any] = _dicts(batch, layout)
    if all(_is_finite(batch.column(at)) for at in layout.values):
        return rows
    return [_with_text(row) for row in rows]


def _is_finite(column: pa.Array) -> bool:
    """Whether there is no NaN and no infinity in it, however deep."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_floating(kind):
        return pc.all(pc.is_finite(column)).as_py() is not False
    if pa.types.is_struct(kind):
        return all(map(_is_finite, column.flatten()))
    if pa.types.is_map(kind):
        return _is_finite(column.items)
    if pa.types.is_list(kind):
        return _is_finite(column.flatten())
    return True


_NOT_FINITE: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}


def _with_text(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
    if isinstance(value, dict):
        return {key: _with_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_text(each) for each in value]
    return value


def _each(encode: Callable[[Any], bytes], rows: list[Any]) -> list[Payload]:
    if UnfitValue in set(map(type, rows)):
        return [row if isinstance(row, UnfitValue) else _one(encode, row) for row in rows]
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

    values = _values(batch, layout)
    payloads: list[Payload] = []
    for index in range(values.num_rows):
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, values.schema) as writer:
            writer.write_batch(values.slice(index, 1))
        payloads.append(out.getvalue().to_pybytes())
    return payloads


def _avro(schema: ValueSchema, names: Iterable[str]) -> Callable[[Any], bytes]:
    try:
        codec = codecs_of("avro")(schema.text)
    except NoSchemaError as error:
        raise ACCEPTED.error(f"this is no Avro schema: {error}") from None
    except ConfigurationError:
        raise ACCEPTED.error(
            'valueFormat=avro needs the package fastavro: pip install "headrace[avro]"'
        ) from None
    assert isinstance(codec, AvroCodec)
    missing = [name for name in names if name not in codec.fields]
    if missing:
        raise ACCEPTED.error(
            f"the Avro schema has no field {missing[0]!r}; there are: {some_of(codec.fields)}"
        )
    write, prefix = codec.write, schema.prefix
    return (lambda row: prefix + write(row)) if prefix else write
