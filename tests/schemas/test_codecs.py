from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.schemas.avro_values import AvroSchema
from headrace.schemas.codecs import AvroCodec, JsonCodec, UnfitError
from headrace.schemas.errors import NoSchemaError
from headrace.schemas.registry import bundled

RECORD = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"], "default": None},
        {"name": "prices", "type": {"type": "array", "items": "double"}},
    ],
}
OBJECT = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "lines": {"type": "array", "items": {"type": "object", "required": ["item"]}},
    },
}


def avro() -> AvroCodec:
    return AvroCodec(json.dumps(RECORD).encode())


def of_json(schema: Any) -> JsonCodec:
    return JsonCodec(json.dumps(schema).encode())


@given(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "item": st.none() | st.text(max_size=10),
            "prices": st.lists(st.floats(allow_nan=False), max_size=5),
        }
    )
)
def test_what_avro_writes_anybody_reads_and_is_read_again(value: dict[str, Any]) -> None:
    codec = avro()
    body = codec.write(value)
    assert codec.read(body) == value
    theirs = fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema(RECORD), None)
    assert theirs == value


@given(st.binary(max_size=60))
def test_bytes_that_are_no_record_are_said_to_be_none_and_nothing_else_is_raised(
    body: bytes,
) -> None:
    codec = avro()
    try:
        found = codec.read(body)
    except UnfitError as error:
        assert str(error)
    else:
        assert set(found) == {"id", "item", "prices"}


def test_a_record_that_is_cut_off_or_goes_on_does_not_fit() -> None:
    body = avro().write({"id": 5, "item": "plum", "prices": []})
    with pytest.raises(UnfitError, match="no such record"):
        avro().read(body[:-2])
    with pytest.raises(UnfitError, match="1 bytes are left"):
        avro().read(body + b"x")


def test_a_record_cut_off_anywhere_does_not_fit_whatever_of_it_is_asked_for() -> None:
    fields = [
        ("text", "string", "plum"),
        ("flag", "boolean", True),
        ("large", "long", 1 << 40),
        ("single", "float", 1.5),
        ("double", "double", 2.5),
        ("fixed", {"type": "fixed", "name": "F", "size": 40}, bytes(40)),
        ("maybe", ["null", "string"], ("string", "x")),
        ("list", {"type": "array", "items": "long"}, [1, 2]),
        ("map", {"type": "map", "values": "bytes"}, {"k": b"v" * 90}),
    ]
    for count in range(1, len(fields) + 1):
        parts = [{"name": name, "type": kind} for name, kind, _ in fields[:count]]
        text = json.dumps({"type": "record", "name": "R", "fields": parts})
        schema = AvroSchema(text)
        body = schema.write({name: value for name, _, value in fields[:count]})
        for wanted in ((), [name for name, _, _ in fields]):
            read = schema.reader(wanted)
            assert set(read(body)) == {name for name, _, _ in fields[:count]}
            for end in range(len(body)):
                with pytest.raises(UnfitError):
                    read(body[:end])


def test_what_avro_cannot_write_names_the_field() -> None:
    with pytest.raises(UnfitError, match=r"shop\.Order\.id"):
        avro().write({"id": "five", "item": None, "prices": []})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "cannot be read"),
        (b'"long"', "must be a record"),
        (b'{"type":"record","name":"A","fields":[{"name":"a","type":"B"}]}', "cannot be read"),
        (
            b'{"type":"record","name":"A","fields":[{"name":"a","type":{"type":"array","items":"null"}}]}',
            "take no bytes",
        ),
        (
            (
                b'{"type":"record","name":"A","fields":[{"name":"a","type":["null","long",'
                b'{"type":"long","logicalType":"timestamp-millis"}]}]}'
            ),
            "a union has 'long' twice",
        ),
    ],
)
def test_an_avro_schema_that_cannot_be_used_says_why(text: bytes, said: str) -> None:
    with pytest.raises(NoSchemaError, match=said):
        AvroCodec(text)


def test_json_that_does_not_fit_names_the_field() -> None:
    codec = of_json(OBJECT)
    assert codec.read(b'{"id": 5, "lines": [{"item": "plum"}]}')["id"] == 5
    with pytest.raises(UnfitError, match=r"^\$\.lines\[1\]: "):
        codec.read(b'{"id": 5, "lines": [{"item": 1}, {}]}')
    with pytest.raises(UnfitError, match="no JSON"):
        codec.read(b"{")
    with pytest.raises(UnfitError, match=r"^\$\.id: "):
        codec.write({"id": "five"})
    assert codec.read(codec.write({"id": 5})) == {"id": 5}


def test_json_has_no_nan_and_does_not_make_it_null() -> None:
    codec = of_json({"type": "object"})
    with pytest.raises(UnfitError, match=r"^\$\.a: nan is no number of JSON"):
        codec.write({"b": None, "a": float("nan")})
    assert codec.write({"b": None}) == b'{"b":null}'


def test_a_json_schema_finds_those_it_refers_to_in_its_bundle_and_nowhere_else() -> None:
    text = json.dumps({"properties": {"customer": {"$ref": "customer.json"}}})
    codec = JsonCodec(bundled(text, {"customer.json": '{"type": "string"}'}))
    assert codec.read(b'{"customer": "eve"}') == {"customer": "eve"}
    with pytest.raises(UnfitError, match=r"\$\.customer"):
        codec.read(b'{"customer": 5}')
    with pytest.raises(NoSchemaError, match="customer"):
        JsonCodec(bundled(text, {}))


def test_a_json_schema_that_is_named_whole_is_meant_before_one_named_by_its_end() -> None:
    refs = ("address.json", "billing/address.json", "http://other/address.json", "http://x/y.json")
    named = {
        "address.json": '{"const": "short"}',
        "billing/address.json": '{"const": "billing"}',
        "http://x/y.json": '{"const": "whole"}',
    }
    meant = ["short", "billing", "short", "whole"]
    for names in (named, dict(reversed(named.items()))):
        for ref, value in zip(refs, meant, strict=True):
            text = json.dumps({"properties": {"at": {"$ref": ref}}})
            codec = JsonCodec(json.dumps({"schema": text, "named": names}).encode())
            assert codec.read(json.dumps({"at": value}).encode()) == {"at": value}
            with pytest.raises(UnfitError):
                codec.read(b'{"at": "another"}')


@pytest.mark.parametrize("text", [b"{", b'{"type": 5}', b'{"$ref": "http://127.0.0.1:1/x"}'])
def test_a_json_schema_that_cannot_be_used_says_why(text: bytes) -> None:
    with pytest.raises(NoSchemaError, match="JSON Schema"):
        JsonCodec(text)
