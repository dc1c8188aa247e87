"""What a sink writes, the source reads back equal: every type, in the formats that have types."""

from __future__ import annotations

import base64
import datetime as dt
import io
import itertools
import json
import math
import struct
from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory, timestamp_pb2
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigurationError
from headrace.spark.decoding import avros, protobufs
from headrace.spark.decoding.arrows import ArrowFormat
from headrace.spark.decoding.decoded import Format
from headrace.spark.decoding.jsons import JsonFormat
from headrace.spark.sink.layout import Layout, check_types
from headrace.spark.sink.options import ValueSchema
from headrace.spark.sink.values import UnfitValue, encoder_of
from portions import some

from .conftest import Feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("large", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("money", pa.decimal128(10, 2)),
        ("exact", pa.decimal128(38, 18)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("numbers", pa.list_(pa.float64())),
        ("amounts", pa.map_(pa.string(), pa.decimal128(5, 1))),
        (
            "nested",
            pa.struct(
                [
                    ("whole", pa.int32()),
                    (
                        "parts",
                        pa.list_(pa.struct([("single", pa.float32()), ("text", pa.string())])),
                    ),
                ]
            ),
        ),
    ]
)
IN_LISTS = pa.struct([one for one in SCHEMA if not pa.types.is_nested(one.type)])
SCHEMA = SCHEMA.append(pa.field("deep", pa.list_(pa.struct([("of", IN_LISTS)]))))
"""The last column has all types without parts twice nested."""


EXACTLY = Context(prec=50)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda each: Decimal(each).scaleb(-scale, EXACTLY))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SINGLES = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0])
DOUBLES = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324])
MOMENTS = st.datetimes()
SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    name: st.none() | each
    for name, each in {
        "text": TEXTS,
        "bytes": st.binary(),
        "flag": st.booleans(),
        "tiny": signed(8),
        "small": signed(16),
        "whole": signed(32),
        "large": signed(64),
        "single": SINGLES,
        "double": DOUBLES,
        "money": decimals(10, 2),
        "exact": decimals(38, 18),
        "day": st.dates(dt.date(1, 1, 1)),
        "moment": MOMENTS.map(lambda each: each.replace(tzinfo=dt.UTC)),
        "local": MOMENTS,
    }.items()
}
PARTS = st.fixed_dictionaries({"single": st.none() | SINGLES, "text": st.none() | TEXTS})
ROWS = st.fixed_dictionaries(
    SIMPLE
    | {
        name: st.none() | each
        for name, each in {
            "numbers": st.lists(st.none() | DOUBLES, max_size=3),
            "amounts": st.dictionaries(TEXTS, st.none() | decimals(5, 1), max_size=3),
            "words": st.dictionaries(TEXTS, st.none() | signed(64), max_size=2),
            "nested": st.fixed_dictionaries(
                {
                    "whole": st.none() | signed(32),
                    "parts": st.none() | st.lists(st.none() | PARTS, max_size=2),
                }
            ),
            "deep": st.lists(
                st.fixed_dictionaries({"of": st.none() | st.fixed_dictionaries(SIMPLE)}), max_size=2
            ),
        }.items()
    }
)

Json = dict[str, Any]


def same(value: Any) -> Any:
    """In a form in which NaN equals itself, and −0.0 not 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, Decimal):
        return value.normalize(EXACTLY)
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return {key: same(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [same(each) for each in value]
    return value


ZONES = ("America/New_York", "Asia/Kolkata", "Africa/Monrovia", "Australia/Lord_Howe", "UTC")
INSTANTS = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1883, 11, 18, 16, 59, 59, 999_999, dt.UTC),  # New York was at -4:56:02
    dt.datetime(1971, 12, 31, 23, 59, 59, tzinfo=dt.UTC),  # Monrovia was at -0:44:30
    dt.datetime(2024, 4, 6, 15, 0, tzinfo=dt.UTC),  # Lord Howe's clock goes back by half an hour
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC),
]


def layout_for(name: str, schema: pa.Schema) -> Layout:
    every = tuple(range(len(schema)))
    return Layout(name, -1, -1, -1, -1, -1, every, (), value_names=tuple(schema.names))  # type: ignore[arg-type]


def with_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """The type as a session in this zone has it."""
    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp(kind.unit, zone)
    if pa.types.is_list(kind):
        return pa.list_(with_zone(kind.value_type, zone))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, with_zone(kind.item_type, zone))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(with_zone(one.type, zone)) for one in kind])
    return kind


def in_zone(schema: pa.Schema, zone: str) -> pa.Schema:
    return pa.schema([one.with_type(with_zone(one.type, zone)) for one in schema])


def avro_of(schema: pa.Schema) -> Json:
    """An Avro schema that holds all values of these columns."""
    names = itertools.count()

    def record(fields: Iterable[pa.Field]) -> Json:
        made = [{"name": one.name, "type": ["null", part(one.type)]} for one in fields]
        return {"type": "record", "name": f"R{next(names)}", "fields": made}

    def part(kind: pa.DataType) -> Any:
        types = pa.types
        if types.is_struct(kind):
            return record(kind)
        if types.is_list(kind):
            return {"type": "array", "items": ["null", part(kind.value_type)]}
        if types.is_map(kind):
            return {"type": "map", "values": ["null", part(kind.item_type)]}
        if types.is_decimal(kind):
            money = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
            return {"type": "bytes", **money}
        if types.is_timestamp(kind):
            local = "" if kind.tz else "local-"
            return {"type": "long", "logicalType": f"{local}timestamp-micros"}
        if types.is_date(kind):
            return {"type": "int", "logicalType": "date"}
        if types.is_integer(kind):
            return "long" if kind.bit_width == 64 else "int"
        simple = {
            "string": "string",
            "binary": "bytes",
            "bool": "boolean",
            "float": "float",
            "double": "double",
        }
        return simple[str(kind)]

    return record(schema)


F = descriptor_pb2.FieldDescriptorProto
PROTOBUF_TYPES: dict[str, int] = {
    "string": F.TYPE_STRING,
    "binary": F.TYPE_BYTES,
    "bool": F.TYPE_BOOL,
    "int8": F.TYPE_SINT32,
    "int16": F.TYPE_INT32,
    "int32": F.TYPE_SFIXED32,
    "int64": F.TYPE_SINT64,
    "float": F.TYPE_FLOAT,
    "double": F.TYPE_DOUBLE,
}


def protobuf_of(schema: pa.Schema) -> bytes:
    """A descriptor set that holds all values of these columns, but for nulls in lists and maps."""
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="row.proto", package="p", syntax="proto3")
    file.dependency.append(files.file[0].name)

    def message(name: str, fields: Iterable[pa.Field], *, is_entry: bool = False) -> str:
        made = file.message_type.add(name=name)
        for number, one in enumerate(fields, 1):
            field = made.field.add(name=one.name, number=number, label=1)
            kind = one.type
            if pa.types.is_list(kind):
                field.label, kind = 3, kind.value_type
            if pa.types.is_map(kind):
                entry = made.nested_type.add(name=f"{one.name.title()}Entry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, label=1, type=F.TYPE_STRING)
                item = entry.field.add(name="value", number=2, label=1)
                typed(item, kind.item_type, f"{name}{number}")
                field.label, field.type = 3, F.TYPE_MESSAGE
                field.type_name = f".p.{name}.{entry.name}"
                continue
            typed(field, kind, f"{name}{number}")
            if field.label == 1 and field.type != F.TYPE_MESSAGE:
                field.proto3_optional = True
                field.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{one.name}")
        return f".p.{name}"

    def typed(field: Any, kind: pa.DataType, name: str) -> None:
        if pa.types.is_struct(kind):
            field.type, field.type_name = F.TYPE_MESSAGE, message(name, kind)
        elif pa.types.is_timestamp(kind):
            field.type, field.type_name = F.TYPE_MESSAGE, ".google.protobuf.Timestamp"
        else:
            field.type = PROTOBUF_TYPES[str(kind)]

    message("Row", schema)
    return bytes(files.SerializeToString())


WORDS = pa.field("words", pa.map_(pa.string(), pa.int64()))
SCALARS = [
    SCHEMA.field(name) for name in (
        "text", "bytes", "flag", "tiny", "small", "whole", "large", "single", "double", "moment",
    )
]  # fmt: skip
IN_PROTOBUF = pa.schema(
    [
        *SCALARS,
        *(SCHEMA.field(name) for name in ("numbers", "nested")),
        WORDS,
        pa.field("deep", pa.list_(pa.struct([("of", pa.struct(SCALARS))]))),
    ]
)
COLUMNS_OF = {"json": SCHEMA, "arrow": SCHEMA, "avro": SCHEMA, "protobuf": IN_PROTOBUF}
AVRO_TEXT = json.dumps(avro_of(SCHEMA)).encode()
PROTOBUF_SET = protobuf_of(IN_PROTOBUF)
VALUE_SCHEMAS = {"avro": ValueSchema(AVRO_TEXT), "protobuf": ValueSchema(PROTOBUF_SET, "p.Row")}


def format_for(name: str, schema: pa.Schema) -> Format:
    if name == "json":
        return JsonFormat(schema)
    if name == "arrow":
        return ArrowFormat(schema)
    if name == "avro":
        return avros.avro_format(schema, AVRO_TEXT, lambda payload, _: (None, payload))
    return protobufs.protobuf_format(schema, PROTOBUF_SET, "p.Row", lambda payload, _: payload)


def is_held(name: str, value: Any) -> bool:
    """Whether a format holds a value of its columns: protobuf has no null in lists and maps."""
    if name != "protobuf":
        return True
    if isinstance(value, list):
        return all(
            one is not None
            and is_held(name, one[1] if isinstance(one, tuple) else one)
            and not (isinstance(one, tuple) and one[1] is None)
            for one in value
        )
    return not isinstance(value, dict) or all(is_held(name, one) for one in value.values())


def read_as(name: str, value: Any, kind: pa.DataType) -> Any:
    """What is read of a written value: of protobuf, which has no null lists and maps, empty ones."""
    if name != "protobuf":
        return value
    if value is None:
        return [] if pa.types.is_list(kind) or pa.types.is_map(kind) else None
    if pa.types.is_struct(kind):
        return {one.name: read_as(name, value[one.name], one.type) for one in kind}
    if pa.types.is_list(kind):
        return [read_as(name, one, kind.value_type) for one in value]
    return value


def utc_rows(schema: pa.Schema, columns: Iterable[pa.Array]) -> list[Json]:
    wanted = in_zone(schema, "UTC")
    arrays = [one.cast(field.type) for one, field in zip(columns, wanted, strict=True)]
    rows: list[Json] = pa.RecordBatch.from_arrays(arrays, schema=wanted).to_pylist()
    return rows


def in_json(value: Any, kind: pa.DataType) -> Any:
    """A value as Python's own reader of JSON finds it."""
    types = pa.types
    if value is None:
        return None
    if types.is_struct(kind):
        return {one.name: in_json(value[one.name], one.type) for one in kind}
    if types.is_list(kind):
        return [in_json(one, kind.value_type) for one in value]
    if types.is_map(kind):
        return {key: in_json(one, kind.item_type) for key, one in value}
    if types.is_binary(kind):
        return base64.b64encode(value).decode()
    if types.is_floating(kind) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if types.is_timestamp(kind):
        return value.replace(tzinfo=None).isoformat() + ("Z" if kind.tz else "")
    return value.isoformat() if types.is_date(kind) else value


def their_reading(name: str, payload: bytes, row: Json, schema: pa.Schema) -> tuple[Any, Any]:
    """What the format's own library reads, and the row in the same form."""
    if name == "json":
        found = json.loads(payload, parse_float=Decimal)
        expected = {one.name: in_json(row[one.name], one.type) for one in schema}
        return numbers_alike(found, expected), numbers_alike(expected, expected)
    if name == "arrow":
        return pa.ipc.open_stream(payload).read_all().to_pylist()[0], row
    if name == "avro":
        read: Any = fastavro.schemaless_reader(io.BytesIO(payload), json.loads(AVRO_TEXT), None)
        return read, {
            one.name: dict(row[one.name])
            if one.name == "amounts" and row[one.name]
            else row[one.name]
            if one.name != "amounts" or row[one.name] is None
            else {}
            for one in schema
        }
    make: Any = message_factory.GetMessageClass(protobufs.descriptor(PROTOBUF_SET, "p.Row"))
    message = make.FromString(payload)
    found = scalars_of(message)
    found["words"] = sorted(message.words.items())
    found["deep"] = [
        {"of": scalars_of(one.of) if one.HasField("of") else None} for one in message.deep
    ]
    expected = {each: row[each] for each in found}
    expected["words"] = sorted(expected["words"] or ())
    return found, {**expected, "deep": expected["deep"] or []}


def scalars_of(message: Any) -> Json:
    """The fields of a message of protobuf that have no parts, and its instant."""
    found = {
        one.name: getattr(message, one.name) if message.HasField(one.name) else None
        for one in SCALARS
    }
    moment = found["moment"]
    return {**found, "moment": None if moment is None else moment.ToDatetime(dt.UTC)}


def numbers_alike(found: Any, expected: Any) -> Any:
    """Numbers of JSON as those that were written: its text does not say of which type they are."""
    if isinstance(found, dict):
        return {key: numbers_alike(one, expected.get(key)) for key, one in found.items()}
    if isinstance(found, list):
        others = expected if len(expected) == len(found) else [None] * len(found)
        return [numbers_alike(one, other) for one, other in zip(found, others, strict=True)]
    return type(expected)(found) if isinstance(expected, float | Decimal) else found


@pytest.mark.parametrize("name", ["json", "arrow", "avro", "protobuf"])
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=4), zone=st.sampled_from(ZONES))
def test_what_is_written_is_read_equal_by_us_and_by_the_format_s_own_library_or_refused(
    name: str, rows: list[Json], zone: str
) -> None:
    schema = COLUMNS_OF[name]
    utc = pa.RecordBatch.from_pylist(rows, schema)
    zoned = in_zone(schema, zone)
    arrays = [one.cast(field.type) for one, field in zip(utc.columns, zoned, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=zoned)
    payloads = encoder_of(layout_for(name, schema), VALUE_SCHEMAS.get(name))(batch)
    for row, payload in zip(utc.to_pylist(), payloads, strict=True):
        assert isinstance(payload, UnfitValue) is not is_held(name, row)
        if isinstance(payload, UnfitValue):
            continue
        columns, _, misfits = format_for(name, zoned).decode([payload], [b""])
        assert misfits == {}
        (back,) = utc_rows(schema, columns)
        wanted = {one.name: read_as(name, row[one.name], one.type) for one in schema}
        if name == "protobuf":  # whose maps have no order
            back, wanted = (each | {"words": sorted(each["words"])} for each in (back, wanted))
        assert same(back) == same(wanted)
        theirs, ours = their_reading(name, payload, row, schema)
        assert same(theirs) == same(ours)


def test_what_python_cannot_hold_makes_a_bad_row_and_the_others_are_encoded() -> None:
    far = pa.array([0, 2**59, 1], pa.int64()).cast(pa.timestamp("us"))
    layout = Layout("json", -1, -1, -1, -1, -1, (0,), ())
    first, bad, last = encoder_of(layout)(pa.record_batch([far], names=["at"]))
    assert isinstance(bad, UnfitValue)
    assert "it cannot be encoded" in bad
    assert (first, last) == (
        b'{"at":"1970-01-01T00:00:00"}',
        b'{"at":"1970-01-01T00:00:00.000001"}',
    )


@pytest.mark.parametrize("name", ["json", "arrow", "avro", "protobuf"])
def test_the_zone_of_the_session_never_enters_what_is_written(name: str) -> None:
    epoch, micro = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(microseconds=1)
    micros = [(each - epoch) // micro for each in INSTANTS]
    written = set()
    for zone in ZONES:
        at = pa.timestamp("us", zone)
        plain = (
            pa.array(micros, pa.int64())
            .cast(pa.timestamp("us"))
            .cast(pa.timestamp("us", "UTC"))
            .cast(at)
        )
        nested = pa.array([[{"at": each}] for each in micros], pa.list_(pa.struct([("at", at)])))
        keyed = pa.array([[("k", each)] for each in micros], pa.map_(pa.string(), at))
        batch = pa.record_batch(
            [plain, nested, keyed],
            pa.schema(
                [
                    ("at", at),
                    pa.field("nested", nested.type, nullable=False),  # as a column made by array(…)
                    pa.field("keyed", keyed.type, nullable=False),
                ]
            ),
        )
        layout = layout_for(name, batch.schema)
        payloads = encoder_of(layout, ZONED_SCHEMAS.get(name))(batch)
        assert [each for each in payloads if isinstance(each, UnfitValue)] == []
        written.add(tuple(payloads))
    assert len(written) == 1
    if name == "json":
        first = json.loads(next(iter(written))[0])
        assert first == {
            "at": "0001-01-01T00:00:00Z",
            "nested": [{"at": "0001-01-01T00:00:00Z"}],
            "keyed": {"k": "0001-01-01T00:00:00Z"},
        }


def zoned_schemas() -> dict[str, ValueSchema]:
    at: Json = {"type": "long", "logicalType": "timestamp-micros"}
    part = {"type": "record", "name": "Part", "fields": [{"name": "at", "type": at}]}
    kinds = {
        "at": at,
        "nested": {"type": "array", "items": part},
        "keyed": {"type": "map", "values": at},
    }
    record = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": name, "type": kind} for name, kind in kinds.items()],
    }
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="row.proto", package="p", syntax="proto3")
    file.dependency.append(files.file[0].name)
    time = ".google.protobuf.Timestamp"
    file.message_type.add(name="Part").field.add(
        name="at", number=1, type=11, type_name=time, label=1
    )
    row = file.message_type.add(name="Row")
    row.field.add(name="at", number=1, type=11, type_name=time, label=1)
    row.field.add(name="nested", number=2, type=11, type_name=".p.Part", label=3)
    row.field.add(name="keyed", number=3, type=11, type_name=".p.Row.KeyedEntry", label=3)
    entry = row.nested_type.add(name="KeyedEntry", options={"map_entry": True})
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, type_name=time, label=1)
    return {
        "avro": ValueSchema(json.dumps(record).encode()),
        "protobuf": ValueSchema(files.SerializeToString(), "p.Row"),
    }


ZONED_SCHEMAS = zoned_schemas()


def test_types_that_json_cannot_hold_are_refused_before_a_row_is_written() -> None:
    from pyspark.sql import types as t

    text, whole = t.StringType(), t.IntegerType()
    two = t.StructType([t.StructField("a", whole), t.StructField("a", text)])
    refused: dict[str, t.DataType] = {
        "keys that are int": t.MapType(whole, text),
        "keys that are date": t.ArrayType(t.MapType(t.DateType(), text)),
        "interval day to second": t.DayTimeIntervalType(),
        "variant": t.StructType([t.StructField("v", t.VariantType())]),
        "two fields of one name": two,
    }
    layout = Layout("json", -1, -1, -1, -1, -1, (0, 1), ())
    for why, kind in refused.items():
        schema = t.StructType([t.StructField("id", whole), t.StructField("c", kind)])
        with pytest.raises(ConfigurationError, match=f"cannot hold {why} .*set valueFormat=arrow"):
            check_types(layout, schema)
        check_types(layout._replace(format="arrow"), schema)
        check_types(layout._replace(values=(0,)), schema)


def generated(count: int) -> list[Json]:
    """Rows with whatever Hypothesis comes up with."""
    found: list[Json] = []

    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(ROWS)
    def collect(row: Json) -> None:
        found.append(row)

    collect()
    return found


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_every_type_is_written_and_read_back_equal_in_every_zone(
    spark: SparkSession, make_feed: Callable[..., Feed], tmp_path: Path
) -> None:
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_schema

    feed = make_feed()
    rows = generated(50)
    last = 0
    (tmp_path / "row.desc").write_bytes(PROTOBUF_SET)
    protobuf = {"descFilePath": str(tmp_path / "row.desc"), "messageName": "p.Row"}
    schemas = {"avro": {"avroSchema": AVRO_TEXT.decode()}, "protobuf": protobuf}
    written: dict[str, set[tuple[bytes, ...]]] = {}
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    try:
        for zone, name in some(itertools.product(ZONES, COLUMNS_OF), 3):
            spark.conf.set("spark.sql.session.timeZone", zone)
            columns = COLUMNS_OF[name]
            whole = pa.Table.from_pylist(rows, columns).to_pylist()
            held = [row for row in whole if is_held(name, row)]
            simple = [one.name for one in columns if not pa.types.is_nested(one.type)]
            for row in held:
                row["deep"] = [{"of": {one: row[one] for one in simple}}]
            plain = pa.Table.from_pylist(held, columns)
            table = with_numbers(plain).drop(["deep"])
            kinds = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
            df = spark.createDataFrame(table, kinds).coalesce(1)
            df = df.withColumn("moment", functions.timestamp_micros("moment"))
            of = functions.struct(*simple).alias("of")
            df = df.withColumn("deep", functions.array(functions.struct(of)))
            subject = f"{feed.name}.{name}.{zone.partition('/')[2] or zone}"
            options = {"servers": feed.url, "valueFormat": name, **schemas.get(name, {})}
            writer = df.write.format("jetstream").mode("append").options(**options)
            writer.option("subject", subject).save(feed.name)
            ddl = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in df.schema.fields)
            reader = spark.read.format("jetstream").options(**options, mode="failfast")
            found = reader.option("subjects", subject).schema(f"{ddl}, sequence bigint")
            expected = [
                {one.name: read_as(name, row[one.name], one.type) for one in columns}
                for row in plain.to_pylist()
            ]
            back = of_spark(found.load(feed.name), columns)
            if name == "protobuf":  # whose maps have no order
                for each in (*back, *expected):
                    each["words"] = sorted(each["words"])
            assert differences(back, expected) == [], (
                name,
                zone,
            )
            first, last = last + 1, last + len(held)
            stored = [each.payload for each in feed.stored(range(first, last + 1))]
            written.setdefault(name, set()).add(tuple(stored))
            if name == "json":
                raw = spark.read.format("jetstream").option("servers", feed.url)
                texts = raw.option("subjects", subject).load(feed.name)
                theirs = texts.selectExpr(
                    f"from_json(cast(data as string), '{ddl}') AS v", "sequence"
                )
                spark_s = theirs.select("v.*", "sequence")
                assert differences(of_spark(spark_s, columns), expected) == [], zone
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert {name: len(each) for name, each in written.items()} == dict.fromkeys(written, 1)
    assert set(written) == set(COLUMNS_OF)


def with_numbers(table: pa.Table) -> pa.Table:
    """The table with its instants as numbers: Spark would shift old ones by the zone of the session."""
    at = table.schema.get_field_index("moment")
    return table.set_column(at, "moment", table.column(at).cast(pa.int64()))


def of_spark(df: DataFrame, columns: pa.Schema) -> list[Json]:
    """The rows of a frame in the stream's order, as of a session in UTC."""
    table = df.orderBy("sequence").toArrow().select(columns.names).combine_chunks()
    arrays = [one.combine_chunks() for one in table.columns]
    return utc_rows(columns, arrays)


def differences(found: list[Json], expected: list[Json]) -> list[tuple[str, Any, Any]]:
    """The fields that are not equal."""
    return [
        (name, here, there)
        for one, other in zip(found, expected, strict=True)
        for (name, here), there in zip(one.items(), other.values(), strict=True)
        if same(here) != same(there)
    ]
