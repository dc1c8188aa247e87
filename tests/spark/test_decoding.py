"""Values as columns, from the options to the batches of a task; without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import types as t

from headrace.errors import ConfigurationError
from headrace.spark.decoding.columns import layout_of, source_schema
from headrace.spark.options import parse_options
from headrace.spark.slices import Slice
from headrace.spark.tasks.bad_messages import BadMessageError
from headrace.spark.tasks.read_slice import read_slice

from .conftest import Feed

pytestmark = pytest.mark.usefixtures("links_end")


KINDS: dict[str, t.DataType] = {
    "bigint": t.LongType(),
    "string": t.StringType(),
    "double": t.DoubleType(),
    "binary": t.BinaryType(),
    "timestamp": t.TimestampType(),
    "map": t.MapType(t.StringType(), t.ArrayType(t.StringType())),
}


def schema(**columns: str) -> t.StructType:
    return t.StructType([t.StructField(name, KINDS[kind]) for name, kind in columns.items()])


def read(feed: Feed, wanted: t.StructType, lo: int = 0, /, **more: str) -> list[dict[str, Any]]:
    """The rows of one task, as Spark would start it: what it needs has been pickled."""
    raw = {"stream": feed.name, "servers": feed.url, **more}
    options = parse_options(raw)
    layout = pickle.loads(pickle.dumps(layout_of(options, wanted)))
    head = feed.control.head()[0]
    batches = list(read_slice(options, layout, Slice(lo, head.last_seq, epoch=head.epoch)))
    return [row for batch in batches for row in batch.to_pylist()]


ORDERS = [
    b'{"id":1,"amount":2.5,"note":"x"}',
    b'{"id":"two","amount":5}',
    b"not json",
    b'{"id":4}',
]


def publish(feed: Feed, payloads: list[bytes], subject: str = "a") -> None:
    feed.publish([subject] * len(payloads), lambda index: payloads[index])


def test_permissive_keeps_every_message_and_rescues_what_does_not_fit(
    feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    publish(feed, ORDERS)
    wanted = schema(sequence="bigint", id="bigint", amount="double", _rescued="string")
    assert read(feed, wanted, valueFormat="json") == [
        {"sequence": 1, "id": 1, "amount": 2.5, "_rescued": None},
        {"sequence": 2, "id": None, "amount": 5.0, "_rescued": '{"id":"two"}'},
        {"sequence": 3, "id": None, "amount": None, "_rescued": "not json"},
        {"sequence": 4, "id": 4, "amount": None, "_rescued": None},
    ]
    assert f"stream {feed.name!r}: 2 values of this task did not fit and are null" in caplog.text
    assert "the first is message 2: field 'id' is no int64" in caplog.text


def test_where_messages_are_is_not_read_for_values_alone(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publish(feed, ORDERS)
    monkeypatch.setattr("headrace.spark.tasks.batch_builder._positions", None)
    rows = read(feed, schema(id="bigint"), valueFormat="json")
    assert rows == [{"id": 1}, {"id": None}, {"id": None}, {"id": 4}]
    assert "the first is message 2: field 'id' is no int64" in caplog.text


def test_dropmalformed_leaves_out_the_rows_and_says_how_many(
    feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    publish(feed, ORDERS)
    wanted = schema(id="bigint", sequence="bigint")
    rows = read(feed, wanted, valueFormat="json", mode="DROPMALFORMED")
    assert rows == [{"id": 1, "sequence": 1}, {"id": 4, "sequence": 4}]
    assert "2 values of this task did not fit and were dropped" in caplog.text


def test_failfast_makes_them_bad_messages(make_feed: Callable[..., Feed]) -> None:
    feed, dead = make_feed(), make_feed()
    publish(feed, ORDERS)
    wanted = schema(id="bigint")
    with pytest.raises(BadMessageError, match="message 2 cannot be read: field 'id' is no int64"):
        read(feed, wanted, valueFormat="json", mode="failfast")
    kept = read(feed, wanted, valueFormat="json", mode="failfast", onBadMessage="skip")
    assert kept == [{"id": 1}, {"id": 4}]
    letters = f"deadletter:{dead.name}.bad"
    again = read(feed, wanted, valueFormat="json", mode="failfast", onBadMessage=letters)
    assert again == kept
    assert [m.payload for m in dead.stored(range(1, 5))] == ORDERS[1:3]


def test_what_is_not_selected_need_not_fit(feed: Feed) -> None:
    publish(feed, [b"poison"], "other")
    publish(feed, ORDERS[:1], "mine")
    publish(feed, [b"poison"], "other")
    wanted = schema(id="bigint", sequence="bigint")
    mine = {"subjects": f"{feed.name}.mine", "mode": "failfast", "valueFormat": "json"}
    assert read(feed, wanted, **mine) == [{"id": 1, "sequence": 2}]
    assert read(feed, wanted, 2, **mine) == []


def test_a_field_with_the_name_of_an_own_column_is_read_with_a_prefix(feed: Feed) -> None:
    publish(feed, [b'{"subject":"mail","sequence":"high"}'])
    wanted = schema(subject="string", sequence="string", meta_subject="string")
    with pytest.raises(ConfigurationError, match="'sequence' has type bigint, not string"):
        read(feed, wanted, valueFormat="json")
    assert read(feed, wanted, valueFormat="json", metadataPrefix="meta_") == [
        {"subject": "mail", "sequence": "high", "meta_subject": f"{feed.name}.a"}
    ]


def test_text_is_a_column_value(feed: Feed) -> None:
    publish(feed, ["grüß".encode(), b"\xff"])
    wanted = schema(value="string", data="binary", _rescued="string")
    assert read(feed, wanted, valueFormat="string") == [
        {"value": "grüß", "data": "grüß".encode(), "_rescued": None},
        {"value": None, "data": b"\xff", "_rescued": "\\xff"},
    ]
    with pytest.raises(ConfigurationError, match="the value is in the column 'value'"):
        read(feed, schema(text="string"), valueFormat="string")


def test_large_messages_of_many_rows_come_in_batches_of_the_usual_size(feed: Feed) -> None:
    publish(feed, ORDERS[:1] * 25)
    raw = {"stream": feed.name, "servers": feed.url, "rowsPerBatch": "10", "valueFormat": "json"}
    options = parse_options(raw)
    layout = layout_of(options, schema(id="bigint"))
    batches = list(read_slice(options, layout, Slice(0, 25)))
    assert [batch.num_rows for batch in batches] == [10, 10, 5]


def options_of(**raw: str) -> Any:
    return parse_options({"stream": "S", **raw})


def test_without_a_schema_of_the_user_the_value_s_columns_follow_the_own_ones() -> None:
    found = source_schema(options_of(valueFormat="json", valueSchema="id bigint, at timestamp"))
    assert found == (
        "subject string, sequence bigint, timestamp timestamp, stream string, partition int, "
        "id bigint, at timestamp, _rescued string"
    )
    as_json = schema(id="bigint").json()
    struct = source_schema(
        options_of(valueFormat="json", valueSchema=as_json, includeHeaders="true")
    )
    assert isinstance(struct, t.StructType)
    assert struct.names[-3:] == ["headers", "id", "_rescued"]
    assert struct["headers"].dataType == KINDS["map"]
    assert "value string, _rescued string" in str(source_schema(options_of(valueFormat="string")))
    assert str(source_schema(options_of())).startswith("subject string, data binary")


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ({"valueFormat": "xml"}, "accepted: raw, string, json, arrow, avro or protobuf"),
        ({"valueFormat": "json", "mode": "lenient"}, "permissive, dropmalformed or failfast"),
        ({"valueSchema": "a int"}, "'valueSchema' is for valueFormat=json or arrow, not for raw"),
        ({"valueFormat": "json", "avroSchema": "{}"}, "'avroSchema' is for valueFormat=avro"),
        ({"valueFormat": "json", "metadataPrefix": "a-b"}, "letters, digits and _"),
        ({"valueFormat": "avro"}, "needs 'avroSchema', or 'schemaBucket'"),
        ({"valueFormat": "protobuf"}, "needs 'messageName'"),
        ({"valueFormat": "protobuf", "messageName": "a.B"}, "needs either 'descFilePath', or"),
        ({"valueFormat": "json", "schemaPrefix": "a"}, "'schemaPrefix' needs 'schemaBucket'"),
        ({"valueFormat": "json", "schemaBucket": "b", "schemaPrefix": "a."}, "without the last"),
    ],
)
def test_wrong_options_are_explained(raw: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        options_of(**raw)


def test_a_missing_schema_is_explained() -> None:
    with pytest.raises(ConfigurationError, match=r"give \.schema\(.*valueSchema"):
        source_schema(options_of(valueFormat="json"))
    with pytest.raises(ConfigurationError, match="no schema as JSON"):
        source_schema(options_of(valueFormat="json", valueSchema='{"type":'))


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (t.StructField("id", t.LongType(), False), "leave out NOT NULL"),
        (t.StructField("l", t.ArrayType(t.LongType(), False)), "leave out NOT NULL"),
        (t.StructField("v", t.VariantType()), "type variant, which no value is decoded to"),
        (t.StructField("i", t.DayTimeIntervalType()), "which no value is decoded to"),
        (t.StructField("_rescued", t.LongType()), "has type string, not bigint"),
        (t.StructField("Subject", t.StringType()), "there twice.*metadataPrefix"),
        (t.StructField("headers", KINDS["map"]), "set includeHeaders=true"),
    ],
)
def test_columns_that_cannot_be_are_refused_at_the_start(
    field: t.StructField, complaint: str
) -> None:
    wanted = t.StructType([t.StructField("subject", t.StringType()), field])
    with pytest.raises(ConfigurationError, match=complaint):
        layout_of(options_of(valueFormat="json"), wanted)


def test_a_raw_value_has_no_columns_but_data() -> None:
    with pytest.raises(ConfigurationError, match="no column 'id'"):
        layout_of(options_of(), schema(id="bigint"))
