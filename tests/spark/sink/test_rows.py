"""Arrow batches to messages."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from typing import Any

import pyarrow as pa
import pytest

import peers
from headrace.errors import ConfigurationError
from headrace.spark.sink.layout import Column, lay_out
from headrace.spark.sink.options import ValueSchema, parse_sink_options
from headrace.spark.sink.rows import BadRow, Limits, RowEncoder, Rows, digest_of
from headrace.spark.sink.values import _holds_maps, encoder_of, with_schema

LIMITS = Limits(("orders.>", "x"), "orders._sink.>", 100)


class Encoder:
    def __init__(
        self, types: dict[str, str], id_prefix: str = "", size_max: int = 100, **raw: str
    ) -> None:
        options = with_schema(parse_sink_options({"stream": "S", **raw}, streaming=True))
        layout = lay_out(options, [Column(name, kind) for name, kind in types.items()])
        self.bad: list[BadRow] = []
        self.one = RowEncoder(
            options, layout, LIMITS._replace(size_max=size_max), id_prefix, self.bad.extend
        )

    def encode(self, **values: Any) -> Rows:
        return self.one.encode(pa.RecordBatch.from_pydict(values))

    @property
    def reasons(self) -> dict[str, str]:
        return {row.label: row.reason for row in self.bad}


def test_one_subject_and_a_payload_column() -> None:
    encoder = Encoder({"data": "binary", "sequence": "bigint"}, subject="orders.a")
    rows = encoder.encode(data=[b"1", None, b"3"], sequence=[1, 2, 3])
    assert rows == ([b"orders.a"] * 3, [b""] * 3, [b"1", b"", b"3"])
    text = Encoder({"data": "string"}, subject="orders.a").encode(data=["ä"])
    assert text.payloads == ["ä".encode()]


def test_a_template_takes_parts_of_tokens_only() -> None:
    encoder = Encoder(
        {"Region": "string", "id": "bigint", "day": "date", "data": "binary"},
        subject="orders.{region}.n{id}.{day}",
        onBadRow="skip",
    )
    day = dt.date(2026, 1, 2)
    rows = encoder.encode(
        Region=["eu", "a.b", None, "*", "", "é", "a b"],
        id=[1, 2, 3, 4, 5, 6, 7],
        day=pa.array([day] * 7),
        data=[b"x"] * 7,
    )
    assert [s.decode() for s in rows.subjects] == [
        "orders.eu.n1.2026-01-02",
        "orders.é.n6.2026-01-02",
    ]
    assert sorted(encoder.reasons) == ["1", "2", "3", "4", "6"]
    assert all("no part of a token" in reason for reason in encoder.reasons.values())


def test_the_subject_column_is_checked_row_by_row_and_once_per_subject() -> None:
    encoder = Encoder({"subject": "string", "data": "binary"})
    rows = encoder.encode(
        subject=["orders.a", "orders..b", "other", None, "orders.>", "orders._sink.s.0", "x"],
        data=[b"%d" % n for n in range(7)],
    )
    assert rows.payloads == [b"0", b"6"]
    assert encoder.reasons == {
        "1": "'orders..b' is no subject",
        "2": "the stream does not have the subject 'other'; it has orders.>, x",
        "3": "its subject is null",
        "4": "'orders.>' is no subject",
        "5": "'orders._sink.s.0' is where sinks keep their markers",
    }
    assert encoder.encode(subject=["orders.b", None], data=[b"", b""]).subjects == [b"orders.b"]
    assert list(encoder.reasons)[-1] == "8", "numbers go on from batch to batch"


def test_what_is_too_large_is_a_bad_row_headers_included() -> None:
    encoder = Encoder(
        {"data": "binary", "headers": "map<string,string>"}, subject="orders.a", onBadRow="skip"
    )
    kind = pa.map_(pa.string(), pa.string())
    headers = pa.array([[], [("a", "b" * 20)], [("a", "b" * 20)]], kind)
    rows = encoder.encode(data=[b"x" * 100, b"x" * 76, b"x" * 74], headers=headers)
    assert [len(payload) for payload in rows.payloads] == [100, 74]
    assert encoder.reasons == {"1": "it has 101 bytes; server and stream accept 100 with headers"}


def test_headers_in_each_of_their_forms_and_without_the_server_s_own() -> None:
    lists = pa.map_(pa.string(), pa.list_(pa.string()))
    kafka = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = Encoder({"data": "binary", "headers": "map<string,array<string>>"}, subject="x").encode(
        data=[b"", b"", b""],
        headers=pa.array(
            [
                [("a", ["1", "2"]), ("Nats-Rollup", ["all"]), ("NATS-expected-stream", ["x"])],
                None,
                [],
            ],
            lists,
        ),
    )
    assert rows.lines == [b"a: 1\r\na: 2\r\n", b"", b""]
    encoder = Encoder(
        {"data": "binary", "headers": "array<struct<key:string,value:binary>>"}, subject="x"
    )
    rows = encoder.encode(
        data=[b"", b"", b""],
        headers=pa.array(
            [
                [{"key": "k", "value": b"\xff"}, {"key": "n", "value": None}],
                [{"key": "a b", "value": b""}],
                [{"key": "a", "value": b"x\r\nNats-Rollup: all"}],
            ],
            kafka,
        ),
    )
    assert rows.lines == [b"k: \xff\r\nn: \r\n"]
    assert all("headers cannot be written" in reason for reason in encoder.reasons.values())
    assert sorted(encoder.reasons) == ["1", "2"]


def test_message_ids_and_lifetimes_have_columns() -> None:
    types = {"data": "binary", "msg_id": "string", "ttl": "string"}
    encoder = Encoder(types, subject="x", onBadRow="skip")
    rows = encoder.encode(
        data=[b""] * 7,
        msg_id=["a", None, "b", "c\n", "", "d", "e"],
        ttl=[None, "never", "1h30m", None, None, "0s", "soon"],
    )
    assert rows.lines == [
        b"Nats-Msg-Id: a\r\n",
        b"Nats-TTL: never\r\n",
        b"Nats-Msg-Id: b\r\nNats-TTL: 1h30m\r\n",
    ]
    assert sorted(encoder.reasons) == ["3", "4", "5", "6"]
    seconds = Encoder({"data": "binary", "ttl": "int"}, subject="x")
    assert seconds.encode(data=[b""], ttl=[60]).lines == [b"Nats-TTL: 60\r\n"]


def test_rows_without_a_message_id_get_one_by_their_number_and_by_what_they_are() -> None:
    encoder = Encoder({"subject": "string", "data": "binary"}, id_prefix="s:4:1:")
    first = encoder.encode(subject=["x", None], data=[b"", b""]).lines
    assert first == [b"Nats-Msg-Id: s:4:1:0:%b\r\n" % digest_of(b"x", b"", b"").encode()]
    (third,) = encoder.encode(subject=["x"], data=[b""]).lines
    assert third == first[0].replace(b":0:", b":2:")
    others = {
        digest_of(*each)
        for each in itertools.product((b"x", b"y"), (b"", b"a: b\r\n"), (b"", b"1"))
    }
    assert len(others) == 8


def test_json_takes_all_other_columns() -> None:
    types = {
        "subject": "string",
        "n": "int",
        "at": "timestamp",
        "m": "map<string,int>",
        "b": "binary",
    }
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    rows = Encoder(types).encode(
        subject=["x"],
        n=[None],
        at=pa.array([at], pa.timestamp("us", "UTC")),
        m=pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
        b=[b"\x00\xff"],
    )
    assert json.loads(rows.payloads[0]) == {
        "n": None,
        "at": "2026-01-02T03:04:05Z",
        "m": {"k": 1},
        "b": "AP8=",
    }


def test_arrow_is_a_stream_of_one_row() -> None:
    encoder = Encoder(
        {"n": "int", "s": "string"}, subject="x", valueFormat="arrow", size_max=10_000
    )
    rows = encoder.encode(n=pa.array([1, 2], pa.int32()), s=["a", "b"])
    tables = [pa.ipc.open_stream(payload).read_all() for payload in rows.payloads]
    assert [table.to_pylist() for table in tables] == [[{"n": 1, "s": "a"}], [{"n": 2, "s": "b"}]]
    assert tables[0].schema.field("n").type == pa.int32()


def test_avro_by_a_schema_and_a_row_that_does_not_fit() -> None:
    fastavro = peers.package("fastavro")
    import io

    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    encoder = Encoder(
        {"n": "bigint"}, subject="x", valueFormat="avro", avroSchema=json.dumps(schema)
    )
    rows = encoder.encode(n=[7, None])
    assert fastavro.schemaless_reader(io.BytesIO(rows.payloads[0]), schema) == {"n": 7}
    assert "cannot be encoded" in encoder.reasons["1"]
    with pytest.raises(ConfigurationError, match="is no Avro schema"):
        encoder_of(encoder.one._layout, ValueSchema(b'{"type": "nonsense"}'))


@pytest.mark.parametrize(
    ("kind", "holds"),
    [
        (pa.int64(), False),
        (pa.struct([("a", pa.list_(pa.string()))]), False),
        (pa.map_(pa.string(), pa.int32()), True),
        (pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.int32()))])), True),
        (pa.large_list(pa.map_(pa.string(), pa.int32())), True),
    ],
    ids=str,
)
def test_rows_are_searched_for_maps_only_where_there_may_be_some(
    kind: pa.DataType, holds: bool
) -> None:
    assert _holds_maps(kind) is holds
