"""Schemas that lie in a bucket, where strangers store them, and messages written with them.

A reader or a query that is planned meets a schema that is used, or a ConfigurationError that says why not; a
message is a row or a misfit with a short reason. Neither takes longer than its bytes, nor ends the process.
"""

from __future__ import annotations

import json
import random
import time
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2

from headrace.errors import ConfigurationError
from headrace.schemas.errors import NoSchemaError
from headrace.schemas.framing import id_of_header, split_confluent
from headrace.schemas.limits import REASON_CHARACTERS_MAX
from headrace.spark.decoding import avros, protobufs
from headrace.spark.decoding.decoded import Format
from mutation import Target

SPLIT: Final = b"\0payload\0"
LONG_S: Final = 20.0
"""What takes so long grows by more than its bytes, however slow the machine is."""
READER: Final = (
    b'{"type":"record","name":"A","fields":[{"name":"a","type":["null","long"],"default":null}]}'
)


def _record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


def _avro(schema: Any, payload: bytes = b"\2") -> bytes:
    return json.dumps(schema).encode() + SPLIT + payload


def _twice(levels: int, leaf: Any, *, optional: bool) -> dict[str, Any]:
    """Records of two of the record before each: few lines, more columns than anybody has room for."""
    inner: Any = leaf
    for level in range(levels):
        named = inner if level == 0 else inner["name"]
        if optional:
            inner, named = ["null", inner], ["null", named]
            inner = _record(f"R{level}", a=inner, b=named)
        else:
            inner = _record(f"R{level}", a=inner, b=named)
    return _record("A", a=inner)


def _chain(levels: int) -> dict[str, Any]:
    """Records that have each other by name, deeper than any document may be."""
    fields: dict[str, Any] = {"f0": _record("R0", a="int")}
    fields |= {f"f{n}": _record(f"R{n}", a=f"R{n - 1}") for n in range(1, levels)}
    return _record("A", **fields)


AVRO: Final = [
    READER + SPLIT + b"\2\x08",
    _avro(_record("A", a="A"), b""),
    _avro(_record("A", b=_record("B", a="A")), b""),
    _avro(_record("A", a=["null", "A"]), b"\2" * 200_000),
    _avro(_record("A", a={"type": "array", "items": "A"}), b"\2" * 200_000),
    _avro(_record("A", a={"type": "map", "values": "A"}), b"\2\0" * 200_000),
    _avro(_record("A", a={"type": "array", "items": "null"}), b"\xfe" * 8 + b"\x7f\0"),
    _avro(
        _record("A", a={"type": "array", "items": _record("B", c="null")}), b"\xfe" * 8 + b"\x7f"
    ),
    _avro(
        _record("A", a={"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
        b"\xfe\x7f",
    ),
    _avro(_twice(40, "null", optional=False), b""),
    _avro(_twice(20, "int", optional=True), b"\2" * 1000),
    _avro(_chain(400), b"\2"),
    _avro(_record("A", a={"type": "fixed", "name": "F", "size": 2**62}), b"abc"),
    _avro(_record("A", a={"type": "bytes", "logicalType": "decimal", "precision": 10**9}), b"\2a"),
    _avro(_record("A", a={"type": "enum", "name": "E", "symbols": ["x"]}), b"\xfe\xff\xff\xff\x0f"),
    _avro(_record("A" * 100_000, a="int")),
    _avro({"type": "record", "name": "A", "fields": "none"}),
    _avro({"type": "record", "name": {"type": []}, "fields": [{"name": 1, "type": None}]}),
    _avro(_record("A", a=[["null"], ["null"]])),
    _avro([1, None, {}]),
    _avro({"type": "record"}),
    b"[" * 50_000 + SPLIT,
    b'{"type":' * 90 + b'"int"' + b"}" * 90 + SPLIT + b"\2",
]
AVRO_TOKENS: Final = [
    *(b'"null"', b'"A"', b'"array"', b'"map"', b'"items"', b'"values"', b'"record"', b'"name"'),
    *(b'"type"', b"[", b"]", b"{", b"}", b":", b",", b"null", b"true", b"-1", b"1e400", b"\xff"),
    *(b'"logicalType":"date",', b'"size":99999999999999999999', b'"\\ud800"', b'"\\u0000"', SPLIT),
    *(b'"aliases":', b'"default":', b'"namespace":"..",', b"\2" * 20, b"\xff" * 10, b"\0"),
]


def _timely(begun: float) -> None:
    took = time.process_time() - begun
    assert took < LONG_S, f"{took:.1f} s of processor time for one input"


def _decoded(form: Format, payload: bytes) -> None:
    found = form.decode([payload, payload[: len(payload) // 2]], [b"", b""])
    assert all(len(column) == 2 for column in found.columns)
    for misfit in found.misfits.values():
        assert 0 < len(misfit.reason) <= REASON_CHARACTERS_MAX + 1, misfit.reason[:1000]


def _refused(error: ConfigurationError) -> None:
    assert 0 < len(str(error)) < 2000, f"a refusal of {len(str(error))} characters"


def check_avro(data: bytes, rng: random.Random) -> None:
    """Raise what a schema in a bucket does beside making rows, misfits or a ConfigurationError."""
    text, _, payload = data.partition(SPLIT)
    begun = time.process_time()
    columns = pa.schema([("a", pa.int64())])
    try:
        avros.spark_schema(text)
    except ConfigurationError as error:
        _refused(error)
    try:
        _decoded(avros.avro_format(columns, text, lambda value, _: (None, value)), payload)
    except ConfigurationError as error:
        _refused(error)
    _decoded(avros.avro_format(columns, READER, lambda value, _: (text, value)), payload)
    _timely(begun)


def _files(*files: descriptor_pb2.FileDescriptorProto) -> bytes:
    text: bytes = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()
    return text + SPLIT + b"\x08\x01"


def _file(name: str, *imports: str, **messages: list[str]) -> descriptor_pb2.FileDescriptorProto:
    """A file of messages with fields ``a``, ``b``, … of these messages, and a number."""
    made = descriptor_pb2.FileDescriptorProto(name=name, package="p", dependency=imports)
    for message, fields in messages.items():
        one = made.message_type.add(name=message)
        one.field.add(name="n", number=1, type=3, label=1)
        for number, kind in enumerate(fields, 2):
            one.field.add(
                name=f"f{number}", number=number, type=11, type_name=f".p.{kind}", label=1
            )
    return made


PROTOBUF: Final = [
    _files(_file("a", A=[])),
    _files(_file("a", A=["A"])),
    _files(_file("a", "a", A=[])),
    _files(_file("a", "b", A=[]), _file("b", "a", B=[])),
    _files(_file("a", "missing", A=[])),
    _files(
        *(_file(f"f{n}", f"f{n + 1}", **{f"M{n}": []}) for n in range(2000)), _file("f2000", A=[])
    ),
    _files(_file("a", A=["R0"], **{f"R{n}": [f"R{n + 1}"] * 2 for n in range(40)}, R40=[])),
    _files(_file("a", A=["R0"], **{f"R{n}": [f"R{n + 1}"] for n in range(3000)}, R3000=[])),
    _files(_file("a", **{f"Message{n}": [] for n in range(5000)})),
    _files(_file("a" * 100_000, A=[])),
    _files(_file("a", A=["None"])),
    _files(_file("a", A=[]), _file("a", A=[])),
    b"\xff" * 100 + SPLIT,
    SPLIT + b"\x08\x01",
]
PROTOBUF_TOKENS: Final = [
    b"\0",
    b"\n",
    b"\x12",
    b"\x22",
    b"a",
    b"A",
    b".p.A",
    b"\xff" * 10,
    b"\xff\xff\xff\x7f",
    SPLIT,
]


def check_protobuf(data: bytes, rng: random.Random) -> None:
    """As ``check_avro``, for descriptor sets; and the ids before values, which stand in messages."""
    text, _, payload = data.partition(SPLIT)
    begun = time.process_time()
    for find in (
        lambda: split_confluent(payload),
        lambda: protobufs.split_path(payload),
        lambda: id_of_header(b"NATS/1.0\r\nschema-id: %s\r\n\r\n" % text[:100].hex().encode()),
    ):
        try:
            find()
        except NoSchemaError as error:
            assert 0 < len(str(error)) < 1000
    columns = pa.schema([("n", pa.int64())])
    try:
        protobufs.spark_schema(text, "p.A")
    except ConfigurationError as error:
        _refused(error)
    try:
        form = protobufs.protobuf_format(columns, text, "p.A", lambda value, _: value)
    except ConfigurationError as error:
        _refused(error)
    else:
        _decoded(form, payload)
    _timely(begun)


TARGETS = (
    Target("avro", AVRO, AVRO_TOKENS, check_avro, joined_max=1),
    Target("protobuf", PROTOBUF, PROTOBUF_TOKENS, check_protobuf, joined_max=1),
)
