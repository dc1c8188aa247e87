"""Arrow, Avro and protobuf payloads, and the schemas of a bucket."""

from __future__ import annotations

import base64
import datetime
import io
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory, timestamp_pb2
from pyspark.sql import types as t

from headrace.errors import ConfigurationError
from headrace.schemas.errors import NoSchemaError
from headrace.spark.decoding import avros, protobufs
from headrace.spark.decoding.arrows import MESSAGE_ROWS_MAX, ArrowFormat
from headrace.spark.decoding.columns import layout_of, source_schema
from headrace.spark.options import parse_options

from .conftest import Feed
from .test_decoding import publish, read, schema

UTC = datetime.UTC


pytestmark = pytest.mark.usefixtures("links_end")


class Bucket:
    """A key-value bucket beside a feed."""

    def __init__(self, feed: Feed) -> None:
        self.name = f"S{feed.name}"
        self._feed = feed
        config = {"name": f"KV_{self.name}", "subjects": [f"$KV.{self.name}.>"]}
        answer = feed.call(f"STREAM.CREATE.KV_{self.name}", {**config, "max_msgs_per_subject": 1})
        assert "error" not in answer, answer

    def put(self, key: str, value: bytes) -> None:
        self._feed.link.request(f"$KV.{self.name}.{key}", value)

    def delete(self, key: str) -> None:
        block = b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"
        self._feed.link.request_many([(f"$KV.{self.name}.{key}", b"")], [block])

    def close(self) -> None:
        self._feed.call(f"STREAM.DELETE.KV_{self.name}")


@pytest.fixture
def bucket(feed: Feed) -> Iterator[Bucket]:
    made = Bucket(feed)
    yield made
    made.close()


def publish_with(feed: Feed, header: str, payload: bytes) -> None:
    block = f"NATS/1.0\r\n{header}\r\n\r\n".encode() if header else b""
    name = f"{feed.name}.a".encode()
    sizes = len(block), len(block) + len(payload)
    line = b"HPUB %b %b %d %d\r\n%b%b\r\n" % (name, feed._inbox, *sizes, block, payload)
    plain = b"PUB %b %b %d\r\n%b\r\n" % (name, feed._inbox, len(payload), payload)
    feed.link.send(line if block else plain)
    assert feed.link.poll(5.0)


# Arrow


def ipc(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


def test_an_arrow_message_is_as_many_rows_as_it_has(
    feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    one = ipc(pa.table({"id": pa.array([1, 2, 3], pa.int32()), "more": ["x"] * 3}))
    words = pa.array(["a", None]).dictionary_encode()
    two = ipc(pa.table({"word": words, "id": pa.array([4, 5], pa.int64())}))
    wrong = ipc(pa.table({"id": ["x"]}))
    publish(feed, [one, b"poison", two, wrong, ipc(pa.table({"id": pa.array([], pa.int64())}))])
    wanted = schema(id="bigint", sequence="bigint", word="string")
    rows = read(feed, wanted, valueFormat="arrow")
    assert [(row["sequence"], row["id"], row["word"]) for row in rows] == [
        (1, 1, None),
        (1, 2, None),
        (1, 3, None),
        (2, None, None),
        (3, 4, "a"),
        (3, 5, None),
        (4, None, None),
    ]
    assert "2 values of this task did not fit" in caplog.text
    dropped = read(feed, wanted, valueFormat="arrow", mode="dropmalformed", rowsPerBatch="2")
    assert [row["sequence"] for row in dropped] == [1, 1, 1, 3, 3]
    rescued = read(feed, schema(_rescued="string", id="bigint"), valueFormat="arrow")
    assert base64.b64decode(rescued[3]["_rescued"]) == b"poison"
    assert rescued[4]["_rescued"] is None
    assert len(read(feed, schema(_rescued="string"), valueFormat="arrow")) == 7


def decode_arrow(*payloads: bytes) -> Any:
    form = ArrowFormat(pa.schema([("s", pa.string())]))
    return form.decode(list(payloads), [b""] * len(payloads))


def test_of_two_fields_of_one_name_in_an_arrow_struct_none_is_taken() -> None:
    parts = [pa.array([1_700_000_000_123]), pa.array([0], pa.timestamp("us", "UTC"))]
    twice = pa.StructArray.from_arrays(parts, names=["at", "at"])
    form = ArrowFormat(pa.schema([("s", pa.struct([("at", pa.timestamp("us", "UTC"))]))]))
    found = form.decode([ipc(pa.table({"s": twice}))], [b""])
    assert found.columns[0].to_pylist() == [None]
    assert "field 's' is struct<at: int64, at: timestamp" in found.misfits[0].reason


def test_arrow_buffers_that_lie_are_found_before_anything_reads_them() -> None:
    good = ipc(pa.table({"s": ["abcd"]}))
    assert good.count(b"\0\0\0\0\x04\0\0\0") >= 1
    for change in (
        (b"\0\0\0\0\x04\0\0\0", b"\0\0\0\0\0\0\0\x70"),
        (b"\0\0\0\0\x04\0\0\0", b"\x09\0\0\0\x04\0\0\0"),
        (b"abcd", b"ab\xff\xff"),
    ):
        found = decode_arrow(good, good.replace(*change), good)
        assert found.columns[0].to_pylist() == ["abcd", None, "abcd"]
        assert list(found.misfits) == [1]


def test_arrow_messages_of_more_rows_than_anybody_sends_are_refused() -> None:
    many = pa.RecordBatch.from_arrays([pa.nulls(MESSAGE_ROWS_MAX + 1)], ["n"])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, many.schema) as writer:
        writer.write_batch(many)
    assert len(sink.getvalue()) < 1000
    found = decode_arrow(sink.getvalue())
    assert "more than 1000000 rows" in found.misfits[0].reason


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_cut_and_flipped_arrow_messages_are_misfits_or_rows(cut: int) -> None:
    whole = ipc(pa.table({"s": ["abc", "d"]}))
    flipped = bytearray(whole)
    flipped[cut % len(whole)] ^= 0x41
    found = decode_arrow(whole[: cut % len(whole)], bytes(flipped), whole)
    assert found.columns[0].to_pylist()[-2:] == ["abc", "d"]
    found.columns[0].validate(full=True)


# Avro

V1 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "old", "type": "string"}],
}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "label", "type": "string", "aliases": ["old"], "default": "none"},
    ],
}


def avro(document: dict[str, Any], value: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(document), value)
    return sink.getvalue()


def test_avro_is_read_with_the_schema_of_the_option(feed: Feed) -> None:
    text = json.dumps(V2)
    good = avro(V2, {"id": 7, "amount": 2.5, "label": "x"})
    publish(feed, [good, good + b"left over", good[:-1], b""])
    wanted = schema(amount="double", id="bigint", sequence="bigint", _rescued="string")
    rows = read(feed, wanted, valueFormat="avro", avroSchema=text)
    assert rows[0] == {"amount": 2.5, "id": 7, "sequence": 1, "_rescued": None}
    assert [row["id"] for row in rows] == [7, None, None, None]
    assert base64.b64decode(rows[2]["_rescued"]) == good[:-1]
    with pytest.raises(ConfigurationError, match="has no field 'price'; there are: id, amount"):
        read(feed, schema(price="double"), valueFormat="avro", avroSchema=text)


def test_avro_of_old_writers_is_read_with_the_newest_schema_of_the_bucket(
    feed: Feed, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.put("1", json.dumps(V1).encode())
    bucket.put("gone", b"{}")
    bucket.put("2", json.dumps(V2).encode())
    bucket.delete("gone")
    publish_with(feed, "Schema-Id: 1", avro(V1, {"id": 1, "old": "first"}))
    publish_with(feed, "schema-id: 2", avro(V2, {"id": 2, "amount": 0.5, "label": "second"}))
    publish_with(feed, "", avro(V2, {"id": 3, "label": "nobody knows"}))
    publish_with(feed, "schema-id: gone", b"x")
    publish_with(feed, "schema-id: a b", b"x")
    raw = {"stream": feed.name, "servers": feed.url, "valueFormat": "avro"}
    options = parse_options({**raw, "schemaBucket": bucket.name})
    struct = source_schema(options)
    assert isinstance(struct, t.StructType)
    assert [(f.name, f.dataType.simpleString()) for f in struct.fields[-4:]] == [
        ("id", "bigint"),
        ("amount", "double"),
        ("label", "string"),
        ("_rescued", "string"),
    ]
    rows = read(feed, struct, valueFormat="avro", schemaBucket=bucket.name)
    assert [(row["id"], row["amount"], row["label"]) for row in rows] == [
        (1, None, "first"),
        (2, 0.5, "second"),
        (None, None, None),
        (None, None, None),
        (None, None, None),
    ]
    assert "3 values of this task did not fit" in caplog.text
    assert "message 3: NoSchemaError: no header schema-id" in caplog.text


def test_confluent_s_prefix_names_the_schema(feed: Feed, bucket: Bucket) -> None:
    bucket.put("orders.1", json.dumps(V1).encode())
    bucket.put("orders.258", json.dumps(V2).encode())
    bucket.put("other.259", b"not read")
    first = avro(V1, {"id": 1, "old": "a"})
    second = avro(V2, {"id": 2, "label": "b"})
    publish(feed, [b"\0\0\0\0\x01" + first, b"\0\0\0\x01\x02" + second, second])
    how = {"schemaBucket": bucket.name, "schemaPrefix": "orders", "schemaIdFrom": "confluent"}
    rows = read(feed, schema(label="string", id="bigint"), valueFormat="avro", **how)
    assert rows == [
        {"label": "a", "id": 1},
        {"label": "b", "id": 2},
        {"label": None, "id": None},
    ]
    publish(feed, [b'\0\0\0\0\x01{"id":5}'])
    rows = read(feed, schema(id="bigint"), 3, valueFormat="json", schemaIdFrom="confluent")
    assert rows == [{"id": 5}]


def test_a_bucket_without_schemas_is_explained(feed: Feed, bucket: Bucket) -> None:
    raw = {"stream": feed.name, "servers": feed.url, "valueFormat": "avro"}
    with pytest.raises(ConfigurationError, match="has no schema under"):
        source_schema(parse_options({**raw, "schemaBucket": bucket.name}))
    with pytest.raises(ConfigurationError, match="no bucket 'none' for 'schemaBucket'"):
        source_schema(parse_options({**raw, "schemaBucket": "none"}))


def test_the_columns_of_json_may_lie_in_a_bucket(feed: Feed, bucket: Bucket) -> None:
    bucket.put("1", b"id bigint")
    bucket.put("2", b"id bigint, name string")
    raw = {"stream": feed.name, "servers": feed.url, "valueFormat": "json"}
    found = source_schema(parse_options({**raw, "schemaBucket": bucket.name}))
    assert str(found).endswith("id bigint, name string, _rescued string")


EVERYTHING = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "b", "type": "boolean"},
        {"name": "f", "type": "float"},
        {"name": "raw", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["UP", "DOWN"]}},
        {"name": "again", "type": ["null", "E"]},
        {"name": "l", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "m", "type": {"type": "map", "values": "long"}},
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lt", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "tod", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "p",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {"name": "n", "type": ["int", "long"]},
    ],
}


def test_avro_types_are_those_of_spark_s_own_reader(feed: Feed) -> None:
    text = json.dumps(EVERYTHING)
    struct = avros.spark_schema(text.encode())
    assert struct.simpleString() == (
        "struct<b:boolean,f:float,raw:binary,e:string,again:string,l:array<int>,m:map<string,bigint>,"
        "d:date,ts:timestamp,lt:timestamp_ntz,tod:int,u:string,p:decimal(6,2),n:bigint>"
    )
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 6000, UTC)
    value = {
        "b": True,
        "f": 0.5,
        "raw": b"hi",
        "e": "UP",
        "again": None,
        "l": [1, None],
        "m": {"k": 5},
        "d": moment.date(),
        "ts": moment,
        "lt": moment.replace(tzinfo=None),
        "tod": 77,
        "u": "6f1c7a3e-0000-4000-8000-000000000000",
        "p": Decimal("12.34"),
        "n": 2**40,
    }
    plain = json.loads(text)
    plain["fields"][10]["type"] = "int"
    plain["fields"][11]["type"] = "string"
    publish(feed, [avro(plain, value)])
    (row,) = read(feed, struct, valueFormat="avro", avroSchema=text)
    assert row == {**value, "m": [("k", 5)]}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "cannot be read"),
        ('"string"', "must be a record"),
        ('{"type":"record","name":"A","fields":[{"name":"x","type":"B"}]}', "cannot be read"),
        (
            '{"type":"record","name":"A","fields":[{"name":"x","type":["null","A"]}]}',
            "contains itself",
        ),
    ],
)
def test_avro_schemas_that_make_no_columns_are_explained(text: str, complaint: str) -> None:
    options = parse_options({"stream": "S", "valueFormat": "avro", "avroSchema": text})
    with pytest.raises(ConfigurationError, match=complaint):
        source_schema(options)


@pytest.mark.parametrize(
    ("module", "raw"),
    [
        ("fastavro", {"valueFormat": "avro", "avroSchema": json.dumps(V1)}),
        ("google.protobuf", {"valueFormat": "protobuf", "messageName": "a.B"}),
    ],
)
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, raw: dict[str, str]
) -> None:
    if raw["valueFormat"] == "protobuf":
        (tmp_path / "set").write_bytes(descriptor_set())
        raw = {**raw, "descFilePath": str(tmp_path / "set")}
    monkeypatch.setitem(sys.modules, module, None)
    extra = f"headrace.{raw['valueFormat']}."
    with pytest.raises(ConfigurationError, match=f"pip install .{extra}"):
        layout_of(parse_options({"stream": "S", **raw}), schema(id="bigint"))


# Protobuf


def descriptor_set() -> bytes:
    """shop.Order, as protoc writes it; the file of Timestamp is left out, as without --include_imports."""
    F = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="SENT", number=1)
    item = file.message_type.add(name="Item")
    item.field.add(name="sku", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="TagsEntry", options={"map_entry": True})
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    order.oneof_decl.add(name="_note")
    add = order.field.add
    add(name="id", number=1, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    add(name="big", number=2, type=F.TYPE_UINT64, label=F.LABEL_OPTIONAL)
    add(name="data", number=3, type=F.TYPE_BYTES, label=F.LABEL_OPTIONAL)
    add(
        name="note",
        number=4,
        type=F.TYPE_STRING,
        label=F.LABEL_OPTIONAL,
        proto3_optional=True,
        oneof_index=0,
    )
    message = F.TYPE_MESSAGE
    kinds = {5: ("at", ".google.protobuf.Timestamp"), 6: ("first", ".shop.Item")}
    for number, (name, kind) in kinds.items():
        add(name=name, number=number, type=message, type_name=kind, label=F.LABEL_OPTIONAL)
    add(name="items", number=7, type=message, type_name=".shop.Item", label=F.LABEL_REPEATED)
    add(
        name="tags",
        number=8,
        type=message,
        type_name=".shop.Order.TagsEntry",
        label=F.LABEL_REPEATED,
    )
    add(name="state", number=9, type=F.TYPE_ENUM, type_name=".shop.State", label=F.LABEL_OPTIONAL)
    add(name="marks", number=10, type=F.TYPE_FLOAT, label=F.LABEL_REPEATED)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def order(**fields: Any) -> bytes:
    kind = protobufs.descriptor(descriptor_set(), "shop.Order")
    make: Any = message_factory.GetMessageClass(kind)
    return bytes(make(**fields).SerializeToString())


def test_protobuf_messages_are_read_by_their_descriptors(feed: Feed, tmp_path: Path) -> None:
    (tmp_path / "shop.desc").write_bytes(descriptor_set())
    how = {"descFilePath": str(tmp_path / "shop.desc"), "messageName": "shop.Order"}
    how |= {"valueFormat": "protobuf", "metadataPrefix": "_"}
    options = parse_options({"stream": feed.name, "servers": feed.url, **how})
    struct = source_schema(options)
    assert isinstance(struct, t.StructType)
    assert t.StructType(struct.fields[5:-1]).simpleString() == (
        "struct<id:bigint,big:decimal(20,0),data:binary,note:string,at:timestamp,first:struct<sku:string>,"
        "items:array<struct<sku:string>>,tags:map<string,int>,state:string,marks:array<float>>"
    )
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 678, UTC)
    at = timestamp_pb2.Timestamp()
    at.FromDatetime(moment)
    full = order(
        id=5,
        big=2**64 - 1,
        data=b"\0",
        note="",
        at={"seconds": at.seconds, "nanos": at.nanos},
        first={"sku": "a"},
        items=[{"sku": "b"}, {}],
        tags={"k": 1},
        state=1,
        marks=[0.5],
    )
    publish(feed, [full, b"", b"\xff\xff", order(state=7)])
    first, empty, bad, unknown = read(feed, struct, **how)
    assert {name: first[name] for name in struct.names[5:]} == {
        "id": 5,
        "big": Decimal(2**64 - 1),
        "data": b"\0",
        "note": "",
        "at": moment,
        "first": {"sku": "a"},
        "items": [{"sku": "b"}, {"sku": ""}],
        "tags": [("k", 1)],
        "state": "SENT",
        "marks": [0.5],
        "_rescued": None,
    }
    assert (empty["id"], empty["note"], empty["first"], empty["items"]) == (0, None, None, [])
    assert (bad["id"], base64.b64decode(bad["_rescued"])) == (None, b"\xff\xff")
    assert unknown["state"] == "7"
    narrow = t.StructType(
        [t.StructField("first", t.StructType([t.StructField("sku", t.StringType())]))]
    )
    assert read(feed, narrow, **how)[0] == {"first": {"sku": "a"}}


def test_protobuf_descriptors_may_lie_in_a_bucket_and_values_have_confluent_s_prefix(
    feed: Feed, bucket: Bucket
) -> None:
    bucket.put("2", another_order_first())
    bucket.put("3", descriptor_set())
    second, first = b"\x02\x02", b"\0"
    publish(
        feed,
        [
            b"\0\0\0\0\x03" + second + order(id=1),
            b"\0\0\0\0\x02" + first + order(id=2),  # by the schema that it was written with
            b"\0\0\0\0\x02" + second + order(id=3),
            b"\0\0\0\0\x03" + first + order(id=4),
            b"\0\0\0\0\x03\x02\x0a" + order(id=5),
            b"\0\0\0\0\x09" + second + order(id=6),
            b"\0",
        ],
    )
    how = {"messageName": "shop.Order", "valueFormat": "protobuf", "schemaIdFrom": "confluent"}
    rows = read(feed, schema(id="bigint", _rescued="string"), schemaBucket=bucket.name, **how)
    assert [row["id"] for row in rows] == [1, 2, None, None, None, None, None]
    assert all(row["_rescued"] for row in rows[2:])


def another_order_first() -> bytes:
    """The file with its messages the other way round."""
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set())
    item, order = files.file[0].message_type
    first, second = descriptor_pb2.DescriptorProto(), descriptor_pb2.DescriptorProto()
    first.CopyFrom(order)
    second.CopyFrom(item)
    del files.file[0].message_type[:]
    files.file[0].message_type.extend([first, second])
    return bytes(files.SerializeToString())


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (b"\0", "the message is of type shop.Item, not shop.Order"),
        (b"\x02\0", "of type shop.Item"),
        (b"\x04\x02\0", "of type shop.Order.TagsEntry"),
        (b"\x02\x04", "of no type of its schema"),
        (b"\x01", "no path"),
        (b"", "no path"),
    ],
)
def test_a_message_of_another_type_is_a_misfit_and_says_of_which(path: bytes, said: str) -> None:
    typed = protobufs.Typed(descriptor_set(), "shop.Order", None)
    assert typed.take("1", b"\x02\x02rest") == b"rest"
    with pytest.raises(NoSchemaError, match=said):
        typed.take("1", path)


def test_descriptors_that_do_not_help_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "set"
    raw = {"stream": "S", "valueFormat": "protobuf", "descFilePath": str(path)}
    with pytest.raises(ConfigurationError, match="No such file"):
        source_schema(parse_options({**raw, "messageName": "shop.Order"}))
    path.write_bytes(descriptor_set())
    with pytest.raises(
        ConfigurationError, match=r"no message 'Order'; there are: shop\.Item, shop"
    ):
        source_schema(parse_options({**raw, "messageName": "Order"}))
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        source_schema(parse_options({**raw, "messageName": "shop.Order"}))
