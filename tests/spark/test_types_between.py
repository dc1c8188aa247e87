"""Columns of one type written as another: read back equal, or refused by the sink or the reader."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import math
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.decoding import avros, protobufs
from headrace.spark.decoding.arrows import ArrowFormat
from headrace.spark.decoding.jsons import JsonFormat
from headrace.spark.sink.options import ValueSchema
from headrace.spark.sink.values import UnfitValue, encoder_of

from .test_types import (
    DOUBLES,
    INSTANTS,
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
TIMES = [
    *(each.replace(tzinfo=None) for each in INSTANTS),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),
    dt.datetime(1970, 1, 1),
    dt.datetime(2024, 2, 29, 12, 30, 15, 123_456),
    dt.datetime(2024, 2, 29, 12, 30, 15, 123_000),
]
FLOATS = [0.0, -0.0, 1.0, 1.5, -1.9, 16_777_217.0, math.nan, math.inf, -math.inf]
EDGES: dict[pa.DataType, list[Any]] = {
    pa.string(): [
        "",
        "a",
        "b",
        "1",
        "1.10",
        "true",
        "YWJj",
        "2024-02-29",
        "\0",
        "\u00e9\u20ac\U0001f600",
    ],
    pa.binary(): [b"", b"a", b"abc", b"\xff\0", b"\x01\xe2\x40", "\u00e9".encode()],
    pa.bool_(): [True, False],
    pa.int8(): [-128, -1, 0, 1, 2, 127],
    pa.int32(): [-(2**31), 0, 1, 2**24 + 1, 2**31 - 1],
    pa.int64(): [-(2**63), -1, 0, 1, 2, 3_000_000_000, 2**53 + 1, 2**63 - 1],
    pa.float32(): [*FLOATS, 1e-45, 3.4028234663852886e38],
    pa.float64(): [*FLOATS, 0.1, 1e39, 2.0**53, 2.0**63, 5e-324, 1.7976931348623157e308],
    pa.decimal128(20, 0): [Decimal(each) for each in (0, 1, -1, 2**63, 10**20 - 1, 1 - 10**20)],
    pa.decimal128(10, 2): [
        Decimal(each) for each in ("0.00", "1.00", "1.50", "1.25", "-99999999.99")
    ],
    pa.date32(): [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1970, 1, 2), dt.date.max],
    pa.timestamp("us", "UTC"): [each.replace(tzinfo=dt.UTC) for each in TIMES],
    pa.timestamp("us"): TIMES,
}
"""Values of each type at which formats differ; each is played as each type of each format."""


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


def equal_or_refused(
    batch: pa.RecordBatch, name: str, schema: ValueSchema, form: Any
) -> Iterator[tuple[Any, bytes]]:
    """The values that are written, each with its payload: they are read back equal, or refused."""
    payloads = encoder_of(layout_for(name, batch.schema), schema)(batch)
    for value, payload in zip(batch.column(0).to_pylist(), payloads, strict=True):
        if isinstance(payload, UnfitValue):
            assert str(payload)
            continue
        (column,), _, misfits = form.decode([payload], [b""])
        (found,) = column.to_pylist()
        if misfits:
            assert found is None
            assert "field 'x' is no" in misfits[0].reason
        else:
            assert same(found) == same(value)
        yield value, payload


def alike(found: Any, value: Any) -> bool:
    """Whether a library read what was written, of whichever type of Python's it made it."""
    if isinstance(value, list):
        return len(found) == len(value) and all(map(alike, found, value))
    if isinstance(value, float) and math.isnan(value):
        return isinstance(found, float) and math.isnan(found)
    if isinstance(value, float) and isinstance(found, float):
        return struct.pack(">d", found) == struct.pack(">d", value)
    return bool(found == value) and isinstance(found, bool) is isinstance(value, bool)


WHOLE = ["int8", "int32", "int64"]
DECIMALS = ["decimal128(20, 0)", "decimal128(10, 2)"]
FLOATING = ["float", "double"]
INSTANT, LOCAL, DAY = "timestamp[us, tz=UTC]", "timestamp[us]", "date32[day]"
WRITTEN_IN_AVRO: list[list[str]] = [
    ["string"], ["binary"], ["bool"],
    [*WHOLE, *DECIMALS], [*WHOLE, *DECIMALS],
    [*WHOLE, *DECIMALS, *FLOATING], [*WHOLE, *DECIMALS, *FLOATING],
    ["binary"],
    [*WHOLE, *DECIMALS], [*WHOLE, *DECIMALS],
    [DAY], [],
    [INSTANT], [INSTANT], [LOCAL], [LOCAL],
    ["string", *WHOLE, *DECIMALS, *FLOATING],
    [*WHOLE, *DECIMALS, *FLOATING],
    ["binary", "bool", DAY, INSTANT],
    ["string"],
]  # fmt: skip
"""From which columns each of ``AVRO_TYPES`` is written."""


def avro_batch(
    column: pa.DataType, values: list[Any], kind: Any, *, is_twice_nested: bool
) -> tuple[pa.RecordBatch, bytes]:
    if is_twice_nested:
        column = pa.map_(pa.string(), pa.list_(column))
        values = [[("k", [each])] for each in values]
        kind = {"type": "map", "values": {"type": "array", "items": kind}}
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})
    return pa.record_batch({"x": pa.array(values, column)}), text.encode()


@pytest.mark.parametrize("is_twice_nested", [False, True])
@pytest.mark.parametrize(
    ("kind", "written"), list(zip(AVRO_TYPES, WRITTEN_IN_AVRO, strict=True)), ids=str
)
def test_every_edge_as_any_type_of_avro(
    kind: Any, written: list[str], *, is_twice_nested: bool
) -> None:
    found = set()
    for column, values in EDGES.items():
        batch, text = avro_batch(column, [*values, None], kind, is_twice_nested=is_twice_nested)
        form = avros.avro_format(batch.schema, text, lambda payload, _: (None, payload))
        schema: Any = fastavro.parse_schema(json.loads(text))
        for value, payload in equal_or_refused(batch, "avro", ValueSchema(text), form):
            read: Any = fastavro.schemaless_reader(io.BytesIO(payload), schema, None)
            theirs = read["x"]
            ours = value[0][1][0] if is_twice_nested else value
            assert alike(theirs["k"][0] if is_twice_nested else theirs, ours)
            if ours is not None:
                found.add(str(column))
    assert found == set(written)


@given(VALUES, st.sampled_from(AVRO_TYPES), st.booleans())
def test_as_any_type_of_avro(
    typed: tuple[pa.DataType, Any], kind: Any, is_twice_nested: bool
) -> None:
    batch, text = avro_batch(typed[0], [typed[1]], kind, is_twice_nested=is_twice_nested)
    form = avros.avro_format(batch.schema, text, lambda payload, _: (None, payload))
    list(equal_or_refused(batch, "avro", ValueSchema(text), form))


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
    list(equal_or_refused(batch, "protobuf", ValueSchema(SETS[kind], "p.R"), form))


WRITTEN_IN_PROTOBUF = {
    F.TYPE_STRING: ["string"],
    F.TYPE_BYTES: ["binary"],
    F.TYPE_BOOL: ["bool"],
    F.TYPE_ENUM: ["string", *WHOLE, *DECIMALS],
    F.TYPE_MESSAGE: [INSTANT],
    F.TYPE_FLOAT: [*WHOLE, *DECIMALS, *FLOATING],
    F.TYPE_DOUBLE: [*WHOLE, *DECIMALS, *FLOATING],
}
"""From which columns each type is written; all others are whole numbers."""


@pytest.mark.parametrize("kind", sorted(SETS))
def test_every_edge_as_any_type_of_protobuf(kind: int) -> None:
    make: Any = message_factory.GetMessageClass(protobufs.descriptor(SETS[kind], "p.R"))
    found = set()
    for column, values in EDGES.items():
        batch = pa.record_batch({"x": pa.array(values, column)})
        form = protobufs.protobuf_format(
            batch.schema, SETS[kind], "p.R", lambda payload, _: payload
        )
        schema = ValueSchema(SETS[kind], "p.R")
        for value, payload in equal_or_refused(batch, "protobuf", schema, form):
            theirs = make.FromString(payload).x
            if kind == F.TYPE_MESSAGE:
                theirs = theirs.ToDatetime(dt.UTC)
            elif kind == F.TYPE_ENUM and isinstance(value, str):
                theirs = "ab"[theirs]
            assert alike(theirs, value)
            found.add(str(column))
    assert found == set(WRITTEN_IN_PROTOBUF.get(kind, [*WHOLE, *DECIMALS]))


def moment(value: dt.date) -> dt.datetime:
    """A day as its midnight, a time without a zone as UTC: what the page says they are read as."""
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    return value.replace(tzinfo=value.tzinfo or dt.UTC)


def in_its_unit(value: dt.date) -> int:
    """Microseconds of a time, days of a date."""
    since = moment(value) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(
        **{"microseconds" if isinstance(value, dt.datetime) else "days": 1}
    )


def rounded(value: Any, kind: pa.DataType) -> float:
    """The number of a type that is nearest."""
    number = float(value)
    return struct.unpack("<f", struct.pack("<f", number))[0] if kind == pa.float32() else number


def is_read_of(
    found: Any, value: Any, written: pa.DataType, read: pa.DataType, payload: bytes
) -> bool:
    """Whether what was read is what was written; ``payload``: of JSON, else nothing."""
    if (
        payload
        and isinstance(value, float)
        and not math.isfinite(value)
        and not alike(found, value)
    ):
        value = json.loads(payload)["x"]  # it is text in JSON
    if isinstance(value, dt.date) and isinstance(found, dt.date):
        return moment(found) == moment(value)
    if isinstance(value, dt.date) and isinstance(found, int):
        return not payload and found == in_its_unit(value)
    if payload and isinstance(found, str) and not isinstance(value, str):
        return payload in (f'{{"x":{found}}}'.encode(), f'{{"x":"{found}"}}'.encode())
    if payload and isinstance(value, str) and not isinstance(found, str):
        return bool(found == of_text(value, read))
    if payload and isinstance(found, Decimal) and isinstance(value, float):
        return bool(found == Decimal(str(value)))  # its text, as short as may be
    if payload and pa.types.is_floating(read):
        return alike(found, rounded(value, read))
    if isinstance(found, str) and isinstance(value, bool | int | float | Decimal):
        number = json.loads(found) if isinstance(value, bool) else type(value)(found)
        return alike(rounded(number, written) if isinstance(value, float) else number, value)
    if isinstance(found, str) and isinstance(value, bytes):
        return found.encode() == value
    if isinstance(found, bytes) and isinstance(value, str):
        return found == value.encode()
    return alike(found, value)


def of_text(value: str, kind: pa.DataType) -> Any:
    """What JSON text is as another type."""
    if pa.types.is_timestamp(kind):
        found = moment(dt.date.fromisoformat(value))
        return found if kind.tz else found.replace(tzinfo=None)
    makers: dict[str, Any] = {BYTES: base64.b64decode, DAY: dt.date.fromisoformat}
    return makers.get(str(kind), Decimal)(value)


TEXT, BYTES = "string", "binary"
NUMBERS = [*WHOLE, *DECIMALS, *FLOATING]
READ_OF_ARROW = {
    TEXT: [TEXT, BYTES],
    BYTES: [TEXT, BYTES],
    "bool": ["bool", TEXT],
    "int8": [*NUMBERS, TEXT],
    **{key: [*WHOLE, "decimal128(20, 0)", *FLOATING, TEXT] for key in ("int32", "int64")},
    **{key: [*FLOATING, TEXT] for key in FLOATING},
    **{key: [*DECIMALS, TEXT] for key in DECIMALS},
    DAY: [DAY, "int32"],
    **{key: [INSTANT, LOCAL, "int64"] for key in (INSTANT, LOCAL)},
}
READ_OF_JSON = {
    TEXT: [TEXT, BYTES, *DECIMALS, DAY, INSTANT, LOCAL],
    BYTES: [TEXT, BYTES],
    "bool": ["bool", TEXT],
    **{key: [*NUMBERS, TEXT] for key in WHOLE},
    **{
        key: [*FLOATING, *DECIMALS, TEXT, BYTES] for key in FLOATING
    },  # the text "Infinity" is base64
    "decimal128(20, 0)": [*NUMBERS, TEXT],
    "decimal128(10, 2)": [*FLOATING, *DECIMALS, TEXT],
    DAY: [DAY, INSTANT, LOCAL, TEXT],
    **{key: [INSTANT, LOCAL, TEXT] for key in (INSTANT, LOCAL)},
}
"""As which columns values of each are read."""


@pytest.mark.parametrize("is_twice_nested", [False, True])
@pytest.mark.parametrize("column", EDGES, ids=str)
@pytest.mark.parametrize(("name", "table"), [("arrow", READ_OF_ARROW), ("json", READ_OF_JSON)])
def test_every_edge_read_as_any_type_is_what_was_written_or_refused(
    name: str, table: dict[str, list[str]], column: pa.DataType, *, is_twice_nested: bool
) -> None:
    def nested(kind: pa.DataType) -> pa.DataType:
        return pa.struct([("y", pa.list_(kind))]) if is_twice_nested else kind

    values = EDGES[column]
    rows = [{"y": [each]} for each in values] if is_twice_nested else values
    batch = pa.record_batch({"x": pa.array(rows, nested(column))})
    payloads = encoder_of(layout_for(name, batch.schema))(batch)
    as_written = batch.column(0).to_pylist()
    read = set()
    for kind in EDGES:
        schema = pa.schema([("x", nested(kind))])
        form = JsonFormat(schema) if name == "json" else ArrowFormat(schema)
        for value, payload in zip(as_written, payloads, strict=True):
            assert isinstance(payload, bytes)
            (one,), _, misfits = form.decode([payload], [b""])
            (found,) = one.to_pylist()
            if misfits:
                assert found is None
                continue
            if is_twice_nested:
                (found,), (value,) = found["y"], value["y"]
                payload = payload.replace(b'{"y":[', b"").replace(b"]}", b"")
            text = payload if name == "json" else b""
            assert is_read_of(found, value, column, kind, text), (found, value)
            read.add(str(kind))
    assert read == set(table[str(column)])


def proto2_of(make: Callable[[Any], None]) -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="x.proto", package="p", syntax="proto2")
    make(file)
    return bytes(files.SerializeToString())


def test_a_row_without_a_field_that_proto2_requires_is_bad_and_the_others_are_written() -> None:
    def make(file: Any) -> None:
        row = file.message_type.add(name="R")
        row.field.add(name="x", number=1, type=F.TYPE_INT32, label=F.LABEL_REQUIRED)

    schema = ValueSchema(proto2_of(make), "p.R")
    batch = pa.record_batch({"x": pa.array([None, 1], pa.int32())})
    bad, good = encoder_of(layout_for("protobuf", batch.schema), schema)(batch)
    assert isinstance(bad, UnfitValue)
    assert "missing required fields: x" in bad
    assert good == b"\x08\x01"


def test_text_of_proto2_that_is_no_utf8_is_bytes_or_a_misfit() -> None:
    files = proto2_of(
        lambda file: file.message_type.add(name="R").field.add(
            name="x", number=1, type=F.TYPE_STRING, label=1
        )
    )
    for kind, expected in ((pa.binary(), b"\xff"), (pa.string(), None), (pa.date32(), None)):
        form = protobufs.protobuf_format(
            pa.schema([("x", kind)]), files, "p.R", lambda payload, _: payload
        )
        (column,), _, misfits = form.decode([b"\x0a\x01\xff", b"\x0a\x01a"], [b"", b""])
        assert column[0].as_py() == expected
        assert (0 in misfits) is (expected is None)


def test_of_several_names_of_a_number_the_first_is_read() -> None:
    def make(file: Any) -> None:
        names = file.enum_type.add(name="E")
        names.options.allow_alias = True
        for name in ("FIRST", "SECOND"):
            names.value.add(name=name, number=1)
        row = file.message_type.add(name="R")
        row.field.add(name="x", number=1, type=F.TYPE_ENUM, type_name=".p.E", label=1)

    form = protobufs.protobuf_format(
        pa.schema([("x", pa.string())]), proto2_of(make), "p.R", lambda payload, _: payload
    )
    assert form.decode([b"\x08\x01"], [b""]).columns[0].to_pylist() == ["FIRST"]
