"""What a reader's Avro schema makes of written values: as specified, and beside fastavro."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any, NamedTuple

import fastavro
import pytest

from headrace.schemas.avro_resolution import Resolution
from headrace.schemas.avro_values import AvroSchema
from headrace.schemas.errors import UnfitError

MISFIT = object()


def record(kind: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "x", "type": kind, **more}]}


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


MILLIS = logical("long", "timestamp-millis")
MICROS = logical("long", "timestamp-micros")
LOCAL = logical("long", "local-timestamp-micros")
DATE = logical("int", "date")
MONEY = logical("bytes", "decimal", precision=6, scale=2)
FIXED = {"type": "fixed", "name": "F", "size": 2}
FIXED_MONEY = {**FIXED, "logicalType": "decimal", "precision": 4, "scale": 2}
UP = {"type": "enum", "name": "E", "symbols": ["UP", "DOWN"]}
ONE = {"type": "record", "name": "One", "fields": [{"name": "a", "type": "int"}]}


class Case(NamedTuple):
    """A written value, and what the specification says is read of it: plain, or ``MISFIT``.

    ``differs``: fastavro's own resolution says something else, which is why it does not do ours.
    """

    name: str
    writer: Any
    reader: Any
    written: Any
    read: Any
    differs: bool = False


def missing(kind: Any, default: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """A field that the writer does not have."""
    writer = {"type": "record", "name": "R", "fields": []}
    return writer, record(kind, default=default), {}


def there(writer: Any, reader: Any, value: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    return record(writer), record(reader), {"x": value}


CASES = [
    Case("int to long", *there("int", "long", 5), 5),
    Case("int to float", *there("int", "float", 5), 5.0),
    Case("int to double", *there("int", "double", 5), 5.0),
    Case("long to float", *there("long", "float", 5), 5.0),
    Case("long to double", *there("long", "double", 2**53), float(2**53)),
    Case("long to double, rounded", *there("long", "double", 2**53 + 1), MISFIT, True),
    Case("float to double", *there("float", "double", 0.5), 0.5),
    Case("string to bytes", *there("string", "bytes", "é"), "é".encode()),
    Case("bytes to string", *there("bytes", "string", "é".encode()), "é"),
    Case("bytes to string, no UTF-8", *there("bytes", "string", b"\xff"), MISFIT),
    Case("long to int", *there("long", "int", 5), MISFIT),
    Case("string to int", *there("string", "int", "5"), MISFIT),
    Case("long to instant", *there("long", MILLIS, 1_700_000_000_123), 1_700_000_000_123, True),
    Case("instant to long", *there(MILLIS, "long", 1_700_000_000_123), 1_700_000_000_123, True),
    Case("micros to millis, whole", *there(MICROS, MILLIS, 5_000), 5),
    Case("micros to millis, cut", *there(MICROS, MILLIS, 5_001), MISFIT, True),
    Case("millis to micros", *there(MILLIS, MICROS, 5), 5_000, True),
    Case("date to int", *there(DATE, "int", 19_000), 19_000, True),
    Case("int to date", *there("int", DATE, 19_000), 19_000, True),
    Case("date to instant", *there(DATE, MICROS, 19_000), MISFIT, True),
    Case("decimal to bytes", *there(MONEY, "bytes", b"\x04\xd2"), b"\x04\xd2", True),
    Case("bytes to decimal", *there("bytes", MONEY, b"\x04\xd2"), b"\x04\xd2", True),
    Case(
        "decimal of another scale",
        *there(MONEY, {**MONEY, "scale": 3}, b"\x04\xd2"),
        MISFIT,
        True,
    ),
    Case("fixed of another size", *there(FIXED, {**FIXED, "size": 3}, b"ab"), MISFIT),
    Case("default of bytes", *missing("bytes", "\u00ff"), b"\xff", True),
    Case("default of fixed", *missing(FIXED, "\u00ff\u0000"), b"\xff\0", True),
    Case("default of a decimal", *missing(MONEY, "\u0004\u00d2"), b"\x04\xd2", True),
    Case("default of a fixed decimal", *missing(FIXED_MONEY, "\u0004\u00d2"), b"\x04\xd2", True),
    Case("default of a decimal in a union", *missing([MONEY, "null"], "\u0004"), b"\x04", True),
    Case("default of an instant", *missing(MILLIS, 5), 5, True),
    Case("default null", *missing(["null", "int"], None), None),
    Case(
        "default of a record, with that of its field",
        *missing(
            {
                "type": "record",
                "name": "In",
                "fields": [
                    {"name": "m", "type": MONEY},
                    {"name": "n", "type": "int", "default": 7},
                ],
            },
            {"m": "\u0004"},
        ),
        {"m": b"\x04", "n": 7},
        True,
    ),
    Case("no default", {**record("int"), "fields": []}, record("int"), {}, MISFIT),
    Case("symbol that the reader has not", *there(UP, {**UP, "symbols": ["UP"]}, "DOWN"), MISFIT),
    Case(
        "symbol with a default",
        *there(UP, {**UP, "symbols": ["UP"], "default": "UP"}, "DOWN"),
        "UP",
    ),
    Case("type into a union", *there("int", ["null", "long", "string"], 5), ("long", 5)),
    Case("its own type first", *there("long", ["double", "long"], 5), ("long", 5), True),
    Case("union into a type", *there(["null", "int"], "long", 5), 5),
    Case("null into a type", *there(["null", "int"], "long", None), MISFIT),
    Case(
        "union into a union",
        *there(["int", "string", "bytes"], ["bytes", "null", "double"], "é"),
        ("bytes", "é".encode()),
    ),
    Case(
        "instant in a union",
        *there(["null", "long"], ["null", MILLIS], 1_700_000_000_123),
        1_700_000_000_123,
    ),
    Case(
        "instants in an array of a map",
        *there(
            {"type": "array", "items": {"type": "map", "values": MILLIS}},
            {"type": "array", "items": {"type": "map", "values": MICROS}},
            [{"a": 1}, {}],
        ),
        [{"a": 1000}, {}],
        True,
    ),
    Case(
        "a field by its alias",
        {"type": "record", "name": "R", "fields": [{"name": "old", "type": "int"}]},
        record("long", aliases=["old"]),
        {"old": 5},
        5,
    ),
    Case(
        "a record by its alias",
        *there(ONE, {**ONE, "name": "Two", "aliases": ["One"]}, {"a": 5}),
        {"a": 5},
    ),
    Case("a record of another name", *there(ONE, {**ONE, "name": "Two"}, {"a": 5}), MISFIT),
    Case(
        "a record of another namespace",
        *there({**ONE, "namespace": "a"}, {**ONE, "namespace": "b"}, {"a": 5}),
        {"a": 5},
    ),
    Case(
        "a record and fields that it has not",
        *there(
            {**ONE, "fields": [*ONE["fields"], {"name": "b", "type": "string"}]},
            {**ONE, "fields": [*ONE["fields"], {"name": "c", "type": "int", "default": 3}]},
            {"a": 5, "b": "x"},
        ),
        {"a": 5, "c": 3},
    ),
    Case(
        "the branch of the full name",
        *there(
            {**ONE, "namespace": "b"},
            [{**ONE, "namespace": "a"}, {**ONE, "namespace": "b"}],
            {"a": 5},
        ),
        ("b.One", {"a": 5}),
    ),
]


def plain_of(schema: Any) -> Any:
    """The schema without logical types: fastavro writes plain values by it."""
    if isinstance(schema, list):
        return [plain_of(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: plain_of(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
        if key not in ("logicalType", "precision", "scale", "default")
    }


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain_of(schema)), value)
    return out.getvalue()


def resolved(writer: Any, reader: Any, body: bytes) -> Any:
    """The reader's field, as a plain value."""
    ours = AvroSchema(json.dumps(writer))
    resolution = Resolution(ours, AvroSchema(json.dumps(reader)))
    (field,) = resolution.fields()
    found = field.default if field.source is None else ours.read(body)[field.source]
    try:
        return found if field.convert is None else field.convert(found)
    except UnfitError as error:
        assert str(error)
        return MISFIT


def theirs(case: Case, body: bytes) -> Any:
    """What fastavro's resolution makes of it."""
    writer, reader = (fastavro.parse_schema(one) for one in (case.writer, case.reader))
    try:
        found: Any = fastavro.schemaless_reader(io.BytesIO(body), writer, reader)
    except (fastavro.read.SchemaResolutionError, ValueError, KeyError, TypeError):
        return MISFIT
    return found["x"]


def native(case: Case) -> Any:
    """A plain value as fastavro returns it, where that can be told without its resolution."""
    if case.read is MISFIT:
        return MISFIT
    plain = case.read[1] if isinstance(case.read, tuple) else case.read
    kind = case.reader["fields"][0]["type"]
    if kind == MILLIS:
        return dt.datetime.fromtimestamp(plain / 1000, dt.UTC)
    if kind == DATE:
        return dt.date(1970, 1, 1) + dt.timedelta(plain)
    if kind in (MONEY, FIXED_MONEY):
        return Decimal(int.from_bytes(plain, "big", signed=True)).scaleb(-2)
    return plain


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_evolution_is_avro_s(case: Case) -> None:
    body = written(case.writer, case.written)
    found = resolved(case.writer, case.reader, body)
    assert found is MISFIT if case.read is MISFIT else found == case.read
    assert type(found) is type(case.read)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fastavro_resolves_as_specified_but_for_what_is_said_to_differ(case: Case) -> None:
    found, expected = theirs(case, written(case.writer, case.written)), native(case)
    same = found is expected or (found == expected and type(found) is type(expected))
    assert same is not case.differs
