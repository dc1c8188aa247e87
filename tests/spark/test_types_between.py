"""Columns of one type written as another: read back equal, or refused by the sink or the reader."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.decoding import avros, protobufs
from headrace.spark.sink.options import ValueSchema
from headrace.spark.sink.values import UnfitValue, encoder_of

from .test_types import (
    DOUBLES,
    MOMENTS,
    PROTOBUF_TYPES,
    SINGLES,
    TEXTS,
    decimals,
    layout_for,
    same,
    signed,
)

COLUMNS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): TEXTS,
    pa.binary(): st.binary(max_size=4) | TEXTS.map(str.encode),
    pa.bool_(): st.booleans(),
    pa.int8(): signed(8),
    pa.int32(): signed(32),
    pa.int64(): signed(64) | st.integers(-(2**54), 2**54),
    pa.float32(): SINGLES | signed(8).map(float),
    pa.float64(): DOUBLES | SINGLES | signed(8).map(float) | st.just(1e39),
    pa.decimal128(20, 0): decimals(20, 0) | decimals(3, 0),
    pa.decimal128(10, 2): decimals(10, 2) | decimals(3, 1),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): MOMENTS.map(lambda each: each.replace(tzinfo=dt.UTC))
    | MOMENTS.map(lambda each: each.replace(tzinfo=dt.UTC, microsecond=5000)),
    pa.timestamp("us"): MOMENTS,
}


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


AVRO_TYPES: list[Any] = [
    "string", "bytes", "boolean", "int", "long", "float", "double",
    {"type": "fixed", "name": "F", "size": 3},
    logical("bytes", "decimal", precision=9, scale=3),
    logical("bytes", "decimal", precision=20, scale=0),
    logical("int", "date"),
    logical("int", "time-millis"),
    logical("long", "timestamp-millis"),
    logical("long", "timestamp-micros"),
    logical("long", "local-timestamp-millis"),
    logical("long", "local-timestamp-micros"),
    ["null", "float", "int", "string"],
    ["double", "long"],
    ["null", logical("long", "timestamp-millis"), logical("int", "date"), "bytes", "boolean"],
    {"type": "enum", "name": "E", "symbols": ["a", "b"]},
]  # fmt: skip
VALUES = st.sampled_from(list(COLUMNS)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.none() | COLUMNS[kind])
)


def equal_or_refused(batch: pa.RecordBatch, name: str, schema: ValueSchema, form: Any) -> bool:
    """Whether a value is written; then it is read back equal, or refused."""
    (payload,) = encoder_of(layout_for(name, batch.schema), schema)(batch)
    if isinstance(payload, UnfitValue):
        assert str(payload)
        return False
    (column,), _, misfits = form.decode([payload], [b""])
    (found,), (value,) = column.to_pylist(), batch.column(0).to_pylist()
    if misfits:
        assert found is None
        assert "field 'x' is no" in misfits[0].reason
    else:
        assert same(found) == same(value)
    return True


@given(VALUES, st.sampled_from(AVRO_TYPES), st.booleans())
def test_as_any_type_of_avro(
    typed: tuple[pa.DataType, Any], kind: Any, is_twice_nested: bool
) -> None:
    column, value = typed
    if is_twice_nested:
        column, value = pa.map_(pa.string(), pa.list_(column)), [("k", [value])]
        kind = {"type": "map", "values": {"type": "array", "items": kind}}
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})
    batch = pa.record_batch({"x": pa.array([value], column)})
    form = avros.avro_format(batch.schema, text.encode(), lambda payload, _: (None, payload))
    equal_or_refused(batch, "avro", ValueSchema(text.encode()), form)


F = descriptor_pb2.FieldDescriptorProto


def protobuf_of(kind: int) -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="x.proto", package="p", syntax="proto3")
    file.dependency.append(files.file[0].name)
    colours = file.enum_type.add(name="E")
    for number, name in enumerate("ab"):
        colours.value.add(name=name, number=number)
    row = file.message_type.add(name="R")
    field = row.field.add(name="x", number=1, type=kind, label=1, proto3_optional=True)
    field.oneof_index = 0
    row.oneof_decl.add(name="_x")
    names = {F.TYPE_MESSAGE: ".google.protobuf.Timestamp", F.TYPE_ENUM: ".p.E"}
    if kind in names:
        field.type_name = names[kind]
    return bytes(files.SerializeToString())


SETS = {
    kind: protobuf_of(kind)
    for kind in (
        *PROTOBUF_TYPES.values(),
        F.TYPE_UINT32,
        F.TYPE_UINT64,
        F.TYPE_MESSAGE,
        F.TYPE_ENUM,
    )
}


@given(VALUES, st.sampled_from(sorted(SETS)))
def test_as_any_type_of_protobuf(typed: tuple[pa.DataType, Any], kind: int) -> None:
    column, value = typed
    batch = pa.record_batch({"x": pa.array([value], column)})
    form = protobufs.protobuf_format(batch.schema, SETS[kind], "p.R", lambda payload, _: payload)
    equal_or_refused(batch, "protobuf", ValueSchema(SETS[kind], "p.R"), form)


def test_what_holds_a_value_is_written_and_read() -> None:
    """The two above are no good if all is refused."""
    held = set()
    for kind, files in SETS.items():
        batch = pa.record_batch({"x": pa.array([1], pa.int64())})
        form = protobufs.protobuf_format(batch.schema, files, "p.R", lambda payload, _: payload)
        if equal_or_refused(batch, "protobuf", ValueSchema(files, "p.R"), form):
            held.add(kind)
    assert set(SETS) - held == {F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_BOOL, F.TYPE_MESSAGE}
