"""What a sink writes, the source reads back equal: every type, in the formats that have types."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from collections.abc import Callable
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigurationError
from headrace.spark.decoding.arrows import ArrowFormat
from headrace.spark.decoding.jsons import JsonFormat
from headrace.spark.sink.fitting import check_types
from headrace.spark.sink.layout import Layout
from headrace.spark.sink.options import ValueSchema
from headrace.spark.sink.values import UnfitValue, encoder_of

from .conftest import Feed
from .test_source import best_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


EXACTLY = Context(prec=50)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda each: Decimal(each).scaleb(-scale, EXACTLY))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SINGLES = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0])
DOUBLES = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324])
MOMENTS = st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29))
ROWS = st.fixed_dictionaries(
    {
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
            "numbers": st.lists(st.none() | DOUBLES, max_size=3),
            "amounts": st.dictionaries(TEXTS, st.none() | decimals(5, 1), max_size=3),
            "nested": st.fixed_dictionaries(
                {
                    "whole": st.none() | signed(32),
                    "parts": st.none()
                    | st.lists(
                        st.none()
                        | st.fixed_dictionaries(
                            {"single": st.none() | SINGLES, "text": st.none() | TEXTS}
                        ),
                        max_size=2,
                    ),
                }
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


def there_and_back(batch: pa.RecordBatch, name: str) -> tuple[list[Json], list[Json]]:
    layout = Layout(name, -1, -1, -1, -1, -1, tuple(range(batch.num_columns)), ())  # type: ignore[arg-type]
    payloads = encoder_of(layout)(batch)
    assert not any(isinstance(each, UnfitValue) for each in payloads)
    decoder: Any = (JsonFormat if name == "json" else ArrowFormat)(batch.schema)
    columns, _, misfits = decoder.decode(payloads, [b""] * len(payloads))
    assert not misfits
    back = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    before, after = batch.to_pylist(), back.to_pylist()
    return [same(row) for row in before], [same(row) for row in after]


@pytest.mark.parametrize("name", ["json", "arrow"])
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_what_is_encoded_is_decoded_equal(name: str, rows: list[Json]) -> None:
    before, after = there_and_back(pa.RecordBatch.from_pylist(rows, SCHEMA), name)
    assert before == after


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


ZONES = ("America/New_York", "Asia/Kolkata", "Africa/Monrovia", "Australia/Lord_Howe", "UTC")
INSTANTS = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1883, 11, 18, 16, 59, 59, 999_999, dt.UTC),  # New York was at -4:56:02
    dt.datetime(1971, 12, 31, 23, 59, 59, tzinfo=dt.UTC),  # Monrovia was at -0:44:30
    dt.datetime(2024, 4, 6, 15, 0, tzinfo=dt.UTC),  # Lord Howe's clock goes back by half an hour
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC),
]


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
        batch = pa.record_batch({"at": plain, "nested": nested, "keyed": keyed})
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


def layout_for(name: str, schema: pa.Schema) -> Layout:
    every = tuple(range(len(schema)))
    return Layout(name, -1, -1, -1, -1, -1, every, (), value_names=tuple(schema.names))  # type: ignore[arg-type]


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


@pytest.fixture
def server_url(request: pytest.FixtureRequest) -> str:
    return best_server(request)


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


AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": name, "type": ["null", kind]}
        for name, kind in {
            "number": "int",
            "text": "string",
            "bytes": "bytes",
            "flag": "boolean",
            "whole": "int",
            "large": "long",
            "single": "float",
            "double": "double",
            "money": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            "day": {"type": "int", "logicalType": "date"},
            "moment": {"type": "long", "logicalType": "timestamp-micros"},
            "numbers": {"type": "array", "items": ["null", "double"]},
        }.items()
    ],
}


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_every_type_is_written_and_read_back_equal(
    spark: SparkSession, make_feed: Callable[..., Feed]
) -> None:
    feed = make_feed()
    rows = [{"number": number, **row} for number, row in enumerate(generated(150))]
    plain = pa.Table.from_pylist(rows, pa.schema([pa.field("number", pa.int32()), *SCHEMA]))
    everything = spark.createDataFrame(plain)
    in_avro = [field["name"] for field in AVRO["fields"]]  # type: ignore[index]
    for name in ("json", "arrow", "avro"):
        df = everything if name != "avro" else everything.select(*in_avro)
        schema = {"avroSchema": json.dumps(AVRO)} if name == "avro" else {}
        writer = df.write.format("jetstream").mode("append").option("servers", feed.url)
        writer.options(valueFormat=name, subject=f"{feed.name}.{name}", **schema).save(feed.name)
        columns = ", ".join(
            f"{field.name} {field.dataType.simpleString()}" for field in df.schema.fields
        )
        reader = spark.read.format("jetstream").option("servers", feed.url).schema(columns)
        reader = reader.options(
            valueFormat=name, subjects=f"{feed.name}.{name}", mode="failfast", **schema
        )
        found = reader.load(feed.name).orderBy("number").toArrow().to_pylist()
        expected = df.orderBy("number").toArrow().to_pylist()
        assert len(expected) == len(rows)
        assert [same(row) for row in found] == [same(row) for row in expected], name
