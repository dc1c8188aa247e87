"""What an Avro schema holds is written and read equal; what it does not hold is refused, and said."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.schemas.codecs import AvroCodec
from headrace.schemas.errors import UnfitError

from .test_avro_resolution import (
    DATE,
    FIXED,
    FIXED_MONEY,
    LOCAL,
    MICROS,
    MILLIS,
    MONEY,
    ONE,
    UP,
    logical,
    record,
    written,
)

ZONED = dt.datetime(2024, 1, 2, 3, 4, 5, 678_000, dt.UTC)
PLAIN = dt.datetime(2024, 1, 2, 3, 4, 5, 678_000)
UUID = uuid.UUID("6f1c7a3e-0000-4000-8000-000000000000")
FITS: list[tuple[Any, Any, Any]] = [
    ("null", None, None),
    ("boolean", True, True),
    ("int", -(2**31), -(2**31)),
    ("long", 2**63 - 1, 2**63 - 1),
    ("long", Decimal("5.00"), 5),
    ("float", 0.5, 0.5),
    ("float", 16_777_216, 16_777_216.0),
    ("float", -0.0, -0.0),
    ("double", 2**53, float(2**53)),
    ("double", Decimal("0.5"), 0.5),
    ("double", math.inf, math.inf),
    ("bytes", bytearray(b"ab"), b"ab"),
    ("string", "é", "é"),
    (FIXED, b"ab", b"ab"),
    (UP, "DOWN", "DOWN"),
    (DATE, dt.date(1, 1, 1), dt.date(1, 1, 1)),
    (MILLIS, ZONED, ZONED),
    (MILLIS, ZONED.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30))), ZONED),
    (MICROS, ZONED.replace(microsecond=1, year=1), ZONED.replace(microsecond=1, year=1)),
    (LOCAL, PLAIN, PLAIN),
    (logical("int", "time-millis"), dt.time(1, 2, 3, 4000), dt.time(1, 2, 3, 4000)),
    (logical("long", "time-micros"), dt.time(1, 2, 3, 4), dt.time(1, 2, 3, 4)),
    (logical("string", "uuid"), UUID, UUID),
    (logical("string", "uuid"), str(UUID).upper(), UUID),
    (MONEY, Decimal("-9999.99"), Decimal("-9999.99")),
    (MONEY, Decimal("1E+3"), Decimal("1000.00")),
    (MONEY, Decimal("0E+1000000"), Decimal("0.00")),
    (MONEY, 12, Decimal("12.00")),
    (FIXED_MONEY, Decimal("-1.28"), Decimal("-1.28")),
    ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
    ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}),
    (["null", "int", "string"], None, None),
    (["double", "int"], 5, 5),
    (["float", "double"], 0.1, 0.1),
    (["int", "boolean"], True, True),
    (["int", "string"], {"member0": None, "member1": "x"}, "x"),
    (["null", "int", "string"], {"member0": None, "member1": None}, None),
    ([ONE, {"type": "map", "values": "string"}], {"a": 5}, {"a": 5}),
    ([ONE, {"type": "map", "values": "string"}], {"b": "x"}, {"b": "x"}),
]
UNFIT: list[tuple[Any, Any, str]] = [
    ("null", 5, "no null"),
    ("boolean", 2, "2 is no boolean"),
    ("int", True, "True is no int"),
    ("int", 1.5, "1.5 is no int"),
    ("int", -1.9, "-1.9 is no int"),
    ("int", 3_000_000_000, "3000000000 is no int"),
    ("int", None, "None is no int"),
    ("long", Decimal("1.5"), "no long"),
    ("long", Decimal("1E+1000000"), "no long"),
    ("long", 2**63, "no long"),
    ("long", ZONED, "no long"),
    ("float", 1e39, "too large for 32 bits"),
    ("float", 0.1, "rounded to the float"),
    ("float", 16_777_217, "rounded to the float"),
    ("double", 2**53 + 1, "rounded to the double"),
    ("double", 10**400, "no double"),
    ("double", Decimal("0.1"), "rounded to the double"),
    ("double", Decimal("NaN"), "rounded to the double"),
    ("double", "1", "'1' is no double"),
    ("bytes", "a", "'a' is no bytes"),
    ("string", b"a", "no string"),
    ("string", "\ud800", "surrogates not allowed"),
    (FIXED, b"abc", "no fixed F of 2 bytes"),
    (UP, "LEFT", "no symbol of enum E"),
    (DATE, ZONED, "no date"),
    (DATE, 19_000, "no date"),
    (MILLIS, ZONED.replace(microsecond=1), "would be cut"),
    (MILLIS, 1_700_000_000_000, "1700000000000 is no timestamp-millis"),
    (MILLIS, PLAIN, "it has no zone"),
    (LOCAL, ZONED, "it has a zone"),
    (logical("int", "time-millis"), dt.time(1, 2, 3, 4), "would be cut"),
    (logical("string", "uuid"), "order-7", "'order-7' is no uuid"),
    (logical("string", "uuid"), UUID.hex, "is no uuid"),
    (MONEY, Decimal("1.255"), "no decimal(6,2)"),
    (MONEY, Decimal("10000"), "no decimal(6,2)"),
    (MONEY, 0.5, "no decimal(6,2)"),
    ({"type": "array", "items": "int"}, "ab", "no array"),
    ({"type": "map", "values": "int"}, {5: 5}, "no string"),
    ([DATE, "string"], 5, "no union of int, string"),
    (["int", "string"], {"member0": 5, "member1": "x"}, "2 members"),
    (ONE, {"a": 5, "b": 6}, "has no field 'b'"),
    (ONE, {}, "it is not there, and has no default"),
    (ONE, {"a": "x"}, "R.x: One.a: 'x' is no int"),
]


def codec_of(kind: Any) -> AvroCodec:
    return AvroCodec(json.dumps(record(kind)).encode())


@pytest.mark.parametrize(("kind", "value", "read"), FITS, ids=str)
def test_what_fits_is_written_and_read_equal_by_us_and_by_fastavro(
    kind: Any, value: Any, read: Any
) -> None:
    codec = codec_of(kind)
    body = codec.write({"x": value})
    found = codec.read(body)["x"]
    assert (found, type(found)) == (read, type(read))
    theirs: Any = fastavro.schemaless_reader(
        io.BytesIO(body), fastavro.parse_schema(record(kind)), None
    )
    assert theirs["x"] == read


@pytest.mark.parametrize(("kind", "value", "said"), UNFIT, ids=lambda each: str(each)[:60])
def test_what_does_not_fit_is_refused_and_said(kind: Any, value: Any, said: str) -> None:
    with pytest.raises(UnfitError) as caught:
        codec_of(kind).write({"x": value})
    assert said in str(caught.value)


def test_a_field_that_is_left_out_has_its_default_or_is_null() -> None:
    fields = [
        {"name": "a", "type": "bytes", "default": "\u00ff"},
        {"name": "b", "type": ["null", "int"]},
        {"name": "c", "type": [MILLIS, "null"], "default": 5},
    ]
    codec = AvroCodec(json.dumps({"type": "record", "name": "R", "fields": fields}).encode())
    moment = dt.datetime(1970, 1, 1, 0, 0, 0, 5000, dt.UTC)
    assert codec.read(codec.write({})) == {"a": b"\xff", "b": None, "c": moment}


def test_a_decimal_of_more_digits_than_its_schema_has_is_refused_not_rounded() -> None:
    body = written(record(MONEY), {"x": (12_345_678).to_bytes(4, "big")})
    with pytest.raises(UnfitError, match="more than 6 digits"):
        codec_of(MONEY).read(body)


NUMBERS = st.integers() | st.floats() | st.decimals() | st.booleans()


@given(st.sampled_from(["int", "long", "float", "double"]), NUMBERS)
def test_a_number_is_read_equal_or_refused(kind: str, value: Any) -> None:
    codec = codec_of(kind)
    try:
        body = codec.write({"x": value})
    except UnfitError as error:
        assert "R.x: " in str(error)
        return
    found = codec.read(body)["x"]
    assert not isinstance(value, bool)
    assert found == value or (math.isnan(found) and math.isnan(value))
