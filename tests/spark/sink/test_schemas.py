"""Avro and protobuf as they are written: with a schema's id or without, read back by our own readers."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigurationError
from headrace.schemas.errors import RegistryAwayError
from headrace.schemas.framing import id_of_header, split_confluent
from headrace.spark.decoding import avros, protobufs
from headrace.spark.sink import values as schemas
from headrace.spark.sink.options import ValueSchema, parse_sink_options
from headrace.spark.sink.protobufs import encoder
from headrace.spark.sink.values import with_schema
from registry_server import RegistryServer

from .test_rows import Encoder

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"]}],
}


def read_avro(*bodies: bytes) -> list[list[Any]]:
    columns = pa.schema([("n", pa.int64()), ("s", pa.string())])
    form = avros.avro_format(
        columns, json.dumps(ORDER).encode(), lambda payload, block: (None, payload)
    )
    found = form.decode(list(bodies), [b""] * len(bodies))
    assert not found.misfits
    return [column.to_pylist() for column in found.columns]


AVRO: dict[str, Any] = {"valueFormat": "avro", "subject": "x"}
COLUMNS = {"n": "bigint", "s": "string"}


def test_avro_has_its_schema_s_id_in_the_header_or_before_the_value() -> None:
    own: dict[str, Any] = {**AVRO, "avroSchema": json.dumps(ORDER)}
    plain = Encoder(COLUMNS, **own).encode(n=[1, 2], s=["a", None])
    assert plain.lines == [b"", b""]
    with_header = Encoder(COLUMNS, **own, schemaId="7").encode(n=[1, 2], s=["a", None])
    assert with_header.payloads == plain.payloads
    assert [id_of_header(b"NATS/1.0\r\n" + line + b"\r\n") for line in with_header.lines] == [
        "7"
    ] * 2
    front = Encoder(COLUMNS, **own, schemaId="4294967295", schemaIdTo="confluent")
    rows = front.encode(n=[1, 2], s=["a", None])
    assert rows.lines == [b"", b""]
    assert [split_confluent(each) for each in rows.payloads] == [
        ("4294967295", body) for body in plain.payloads
    ]
    assert read_avro(*plain.payloads) == [[1, 2], ["a", None]]


def test_the_id_stands_beside_the_headers_of_rows() -> None:
    own: dict[str, Any] = {**AVRO, "avroSchema": json.dumps(ORDER), "schemaId": "7"}
    with_own = Encoder({**COLUMNS, "headers": "map<string,string>"}, **own)
    kind = pa.map_(pa.string(), pa.string())
    rows = with_own.encode(n=[1, 2], s=["a", "b"], headers=pa.array([[("a", "1")], None], kind))
    assert rows.lines == [b"schema-id: 7\r\na: 1\r\n", b"schema-id: 7\r\n"]


def test_a_registry_tells_schema_and_id(registry: RegistryServer) -> None:
    registry.register(
        "orders-value", json.dumps({**ORDER, "fields": ORDER["fields"][:1]}), number=3
    )
    registry.register("orders-value", json.dumps(ORDER), number=258)
    where: dict[str, Any] = {"schemaRegistry": registry.url, "schemaSubject": "orders-value"}
    rows = Encoder(COLUMNS, **AVRO, **where).encode(n=[1], s=["a"])
    schema_id, body = split_confluent(rows.payloads[0])
    assert schema_id == "258"
    assert read_avro(body) == [[1], ["a"]]
    rows = Encoder(COLUMNS, **AVRO, **where, schemaIdTo="header").encode(n=[1], s=["a"])
    assert (rows.lines, rows.payloads) == ([b"schema-id: 258\r\n"], [body])


def test_a_registry_without_the_subject_or_away_stops_the_write_before_it_begins(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = {"stream": "S", **AVRO, "schemaRegistry": registry.url, "schemaSubject": "none"}
    options = parse_sink_options(raw, streaming=True)
    with pytest.raises(ConfigurationError, match="has no subject 'none'"):
        with_schema(options)
    monkeypatch.setattr(schemas, "_PLANNING_S", 0.0)
    registry.faults += [503] * 10
    with pytest.raises(RegistryAwayError, match="status 503"):
        with_schema(options)


def test_a_query_waits_for_its_registry_as_long_as_for_its_server(
    registry: RegistryServer,
) -> None:
    registry.register("s", json.dumps(ORDER), number=1)
    raw = {"stream": "S", **AVRO, "schemaRegistry": registry.url, "schemaSubject": "s"}
    registry.faults += [503] * 2
    found = with_schema(parse_sink_options(raw, streaming=True), streaming=True)
    assert found.value_schema is not None
    registry.faults += [503] * 2
    hasty = parse_sink_options({**raw, "reconnectTimeout": "0s"}, streaming=True)
    with pytest.raises(RegistryAwayError, match="status 503"):
        with_schema(hasty, streaming=True)


def everything() -> descriptor_pb2.FileDescriptorSet:
    """Two messages, one within the other, with a field of each kind."""
    files = descriptor_pb2.FileDescriptorSet()
    times = files.file.add()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times)
    file = files.file.add(name="all.proto", package="shop", syntax="proto3")
    file.dependency.append(times.name)
    file.message_type.add(name="First")
    kind = file.message_type.add(name="All")
    part = kind.nested_type.add(name="Part")
    part.field.add(name="x", number=1, type=5, label=1)
    colour = kind.enum_type.add(name="Colour")
    for number, name in enumerate(("NONE", "RED")):
        colour.value.add(name=name, number=number)
    fields = (
        ("flag", 8, "", 1), ("small", 5, "", 1), ("large", 3, "", 1), ("huge", 4, "", 1),
        ("real", 1, "", 1), ("text", 9, "", 1), ("raw", 12, "", 1), ("colour", 14, ".shop.All.Colour", 1),
        ("at", 11, ".google.protobuf.Timestamp", 1), ("part", 11, ".shop.All.Part", 1),
        ("numbers", 5, "", 3), ("parts", 11, ".shop.All.Part", 3), ("words", 11, ".shop.All.WordsEntry", 3),
        ("single", 2, "", 1), ("this", 5, "", 1), ("that", 5, "", 1),
    )  # fmt: skip
    kind.oneof_decl.add(name="choice")
    entry = kind.nested_type.add(name="WordsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, type_name=".shop.All.Part", label=1)
    for number, (name, how, of, label) in enumerate(fields, 1):
        one = kind.field.add(name=name, number=number, type=how, label=label)
        if of:
            one.type_name = of
        if name in ("this", "that"):
            one.oneof_index = 0
    return files


FILES = everything().SerializeToString()
NAMES = tuple(field.name for field in protobufs.descriptor(FILES, "shop.All").fields)
PART = st.fixed_dictionaries({"x": st.integers(-(1 << 31), (1 << 31) - 1)})
TIME = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31), timezones=st.just(dt.UTC))
ROWS = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "small": st.integers(-(1 << 31), (1 << 31) - 1),
        "large": st.integers(-(1 << 63), (1 << 63) - 1),
        "huge": st.integers(0, (1 << 64) - 1).map(Decimal),
        "real": st.floats(allow_nan=False),
        "text": st.text(),
        "raw": st.binary(),
        "colour": st.sampled_from(["NONE", "RED"]),
        "at": st.none() | TIME,
        "part": st.none() | PART,
        "numbers": st.lists(st.integers(-5, 5)),
        "parts": st.lists(PART),
        "words": st.dictionaries(st.text(), PART),
        "single": st.floats(width=32, allow_nan=False),
        "this": st.integers(-5, 5),
        "that": st.none(),
    }
)


def read_protobuf(*bodies: bytes) -> list[dict[str, Any]]:
    struct = protobufs.spark_schema(FILES, "shop.All")
    from pyspark.sql.pandas.types import to_arrow_schema

    form = protobufs.protobuf_format(
        to_arrow_schema(struct, timezone="UTC"), FILES, "shop.All", lambda payload, block: payload
    )
    found = form.decode(list(bodies), [b""] * len(bodies))
    assert not found.misfits, found.misfits
    table = pa.table(dict(zip(NAMES, found.columns, strict=True)))
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return rows


@given(ROWS)
def test_a_row_as_protobuf_is_read_back_equal(row: dict[str, Any]) -> None:
    body = encoder(ValueSchema(FILES, "shop.All"), NAMES)(row)
    (found,) = read_protobuf(body)
    if row["at"] is not None:
        assert found["at"].astimezone(dt.UTC) == row["at"]
    assert {**found, "at": None} == {**row, "at": None}


def test_a_null_is_a_field_that_is_not_set() -> None:
    encode = encoder(ValueSchema(FILES, "shop.All"), NAMES)
    assert encode(dict.fromkeys(NAMES)) == b""
    assert encode({"part": {"x": None}}) != b"", "a struct of nulls is there"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"small": 1 << 31}, "range"),
        ({"huge": Decimal("1.5")}, "no whole number"),
        ({"huge": -1}, "range"),
        ({"colour": "BLUE"}, "colour is 'BLUE'; there are: NONE, RED"),
        ({"at": "today"}, "a time is needed, not str"),
        ({"part": 5}, "shop.All.Part is made of a struct"),
        ({"part": {"y": 1}}, "shop.All.Part has no field 'y'"),
        ({"numbers": [1, None]}, "numbers is a list without nulls"),
        ({"words": {"a": None}}, "words is a map without nulls"),
        ({"text": 5}, "shop.All.text: 5 is no str"),
        ({"text": b"a"}, "no str"),
        ({"raw": "a"}, "'a' is no bytes"),
        ({"flag": "yes"}, "no bool"),
        ({"flag": 2}, "shop.All.flag: 2 is no bool"),
        ({"small": True}, "True is no whole number"),
        ({"small": 1.0}, "1.0 is no whole number"),
        ({"huge": Decimal("1E+1000000")}, "no whole number of at most 64 bits"),
        ({"colour": True}, "no whole number"),
        ({"real": (1 << 53) + 1}, "would be rounded to the double"),
        ({"single": 1e39}, "too large for 32 bits"),
        ({"single": 0.1}, "would be rounded to the float"),
        ({"at": dt.datetime(2024, 1, 1)}, "has no zone"),
        ({"this": 1, "that": 2}, "shop.All holds one field of 'choice', not several"),
    ],
)
def test_a_value_that_does_not_fit_is_told(row: dict[str, Any], said: str) -> None:
    encode = encoder(ValueSchema(FILES, "shop.All"), NAMES)
    with pytest.raises((ValueError, TypeError)) as raised:
        encode(row)
    assert said in str(raised.value)


PROTOBUF: dict[str, Any] = {"valueFormat": "protobuf", "subject": "x", "messageName": "shop.All"}


def test_protobuf_by_a_file_and_a_row_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "shop.desc").write_bytes(FILES)
    own: dict[str, Any] = {
        **PROTOBUF,
        "descFilePath": str(tmp_path / "shop.desc"),
        "onBadRow": "skip",
    }
    types = {"small": "int", "colour": "string"}
    plain = Encoder(types, **own)
    rows = plain.encode(small=[1, 2], colour=["RED", "BLUE"])
    assert [row["small"] for row in read_protobuf(*rows.payloads)] == [1]
    assert "there are: NONE, RED" in plain.reasons["1"]
    front = Encoder(types, **own, schemaId="9", schemaIdTo="confluent").encode(
        small=[1], colour=["RED"]
    )
    schema_id, body = split_confluent(front.payloads[0])
    assert (schema_id, protobufs.split_path(body)[1]) == ("9", rows.payloads[0])
    with pytest.raises(ConfigurationError, match=r"sink: message 'shop\.All' has no field 'price'"):
        Encoder({"price": "int"}, **own)
    with pytest.raises(
        ConfigurationError, match="sink: the descriptor set has no message 'Nothing'"
    ):
        Encoder(types, **{**own, "messageName": "Nothing"})
    with pytest.raises(ConfigurationError, match=r"descFilePath.*No such file"):
        Encoder(types, **{**own, "descFilePath": str(tmp_path / "none")})


def test_the_path_to_a_message_is_confluent_s() -> None:
    for name, path in (
        ("shop.First", b"\0"),
        ("shop.All", b"\x02\x02"),
        ("shop.All.Part", b"\x04\x02\0"),
    ):
        kind = protobufs.descriptor(FILES, name)
        assert protobufs.path_of(kind) == path
        assert protobufs.split_path(path + b"rest") == (path, b"rest")


def test_protobuf_of_a_registry(registry: RegistryServer) -> None:
    files = everything()
    registry.register(
        "times", "…", number=1, kind="PROTOBUF", serialized=files.file[0].SerializeToString()
    )
    registry.register(
        "all-value",
        "…",
        number=2,
        kind="PROTOBUF",
        references=(("google/protobuf/timestamp.proto", "times", 1),),
        serialized=files.file[1].SerializeToString(),
    )
    where: dict[str, Any] = {"schemaRegistry": registry.url, "schemaSubject": "all-value"}
    rows = Encoder({"small": "int"}, **PROTOBUF, **where).encode(small=[5])
    schema_id, body = split_confluent(rows.payloads[0])
    assert schema_id == "2"
    assert read_protobuf(protobufs.split_path(body)[1])[0]["small"] == 5


URL = {"schemaRegistry": "http://r", "schemaSubject": "s"}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"valueFormat": "avro"}, "needs either 'avroSchema', or 'schemaRegistry'"),
        ({"valueFormat": "avro", "avroSchema": "{}", **URL}, "needs either 'avroSchema', or"),
        (
            {"valueFormat": "json", "avroSchema": "{}"},
            "'avroSchema' does not belong to valueFormat=json",
        ),
        (
            {"schemaId": "4"},
            "'schemaId' does not belong to valueFormat=json; it is for avro and protobuf",
        ),
        ({"valueFormat": "protobuf", "descFilePath": "f"}, "needs 'messageName'"),
        ({"valueFormat": "protobuf", "messageName": "m"}, "needs either 'descFilePath', or"),
        ({"valueFormat": "avro", "avroSchema": "{}", "messageName": "m"}, "it is for protobuf"),
        ({"valueFormat": "avro", **URL, "schemaId": "0"}, "leave out 'schemaId'"),
        (
            {"valueFormat": "avro", "schemaRegistry": "http://r"},
            "'schemaSubject' names the registry's",
        ),
        ({"valueFormat": "avro", "avroSchema": "{}", "schemaIdTo": "header"}, "needs 'schemaId'"),
        (
            {"valueFormat": "avro", "avroSchema": "{}", "schemaId": "-1"},
            "from 0 to 4294967295|at least 0",
        ),
        (
            {"valueFormat": "avro", "avroSchema": "{}", "schemaId": "4294967296"},
            "from 0 to 4294967295",
        ),
    ],
)
def test_options_that_do_not_fit_are_explained(raw: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_sink_options({"stream": "S", "subject": "x", **raw}, streaming=True)
    assert any(part in str(raised.value) for part in said.split("|"))
