"""JSON payloads: whole chunks where they fit, single documents where one does not."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.spark.decoding.decoded import Decoded
from headrace.spark.decoding.jsons import PIECE_ROWS, JsonFormat

UTC = datetime.UTC
ID_NAME = pa.schema([("id", pa.int64()), ("name", pa.string())])


def decode(schema: pa.Schema, *documents: bytes) -> Decoded:
    return JsonFormat(schema).decode(list(documents), [b""] * len(documents))


def rows(found: Decoded) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def value(kind: pa.DataType, text: str) -> Any:
    """What one field of this JSON text decodes to; the misfit's reason if it does not fit."""
    found = decode(pa.schema([("a", kind)]), b'{"a":%s}' % text.encode())
    if found.misfits:
        assert found.columns[0].to_pylist() == [None]
        return found.misfits[0].rescued
    return found.columns[0][0].as_py()


def test_a_chunk_that_fits_is_decoded_at_once_and_other_fields_are_ignored() -> None:
    form = JsonFormat(ID_NAME)
    found = form.decode(
        [b'{"id":1,"name":"x","more":[1,{"deep":{}}]}', b'{"name":null}', b' {"id":\n3}\r\n'],
        [b""] * 3,
    )
    assert rows(found) == [(1, "x"), (None, None), (3, None)]
    assert found.misfits == {}
    assert form.one_by_one == 0


def test_only_the_neighbourhood_of_a_misfit_is_decoded_one_by_one() -> None:
    form = JsonFormat(ID_NAME)
    documents = [b'{"id":%d,"name":"n%d"}' % (n, n) for n in range(10 * PIECE_ROWS)]
    documents[1234] = b'{"id":"no number","name":"kept"}'
    found = form.decode(documents, [b""] * len(documents))
    assert form.one_by_one == PIECE_ROWS
    assert list(found.misfits) == [1234]
    assert found.misfits[1234].rescued == '{"id":"no number"}'
    assert "'id'" in found.misfits[1234].reason
    expected: list[tuple[Any, ...]] = [(n, f"n{n}") for n in range(10 * PIECE_ROWS)]
    expected[1234] = (None, "kept")
    assert rows(found) == expected


@pytest.mark.parametrize(
    "poison",
    [
        b"",
        b"   ",
        b"{",
        b"}",
        b"[1]",
        b"7",
        b"null",
        b'{"id":1}{"id":2}',
        b'{"id":1}\n{"id":2}',
        b'{"id":1},',
        b'{"name":"a\nb"}',
        b'{"name":"\xff"}',
        b'{"name":"\\ud800"}',
        b'{"id":[{}',
        b'{"id":1,"x":{}',
        b'"}',
        b'{"name":"}',
        b"\x00\x01",
        b'{"name":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 1_000_000,
        b'{"id":' + b"9" * 10_000 + b"}",
    ],
)
def test_a_poisoned_document_changes_no_row_but_its_own(poison: bytes) -> None:
    good = [b'{"id":1,"name":"a"}', b'{"id":2,"name":"b"}', b'{"id":3,"name":"c"}']
    found = decode(ID_NAME, *good[:1], poison, *good[1:], poison)
    assert [rows(found)[row] for row in (0, 2, 3)] == [(1, "a"), (2, "b"), (3, "c")]
    assert list(found.misfits) == [1, 4]
    assert rows(found)[1][0] is None
    found.misfits[1].rescued.encode()  # a surrogate would fail


def test_two_poisons_that_together_look_whole_do_not_shift_rows() -> None:
    found = decode(ID_NAME, b'{"id":1}\n{"id":2}', b"", b'{"id":3}')
    assert rows(found) == [(None, None), (None, None), (3, None)]
    found = decode(ID_NAME, b'{"x":[{"id":1}', b'{"id":2}]}', b'{"id":3}')
    assert rows(found) == [(None, None), (None, None), (3, None)]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pa.int64(), "-9223372036854775808", -(2**63)),
        (pa.int64(), "9223372036854775808", '{"a":9223372036854775808}'),
        (pa.int32(), "3000000000", '{"a":3000000000}'),
        (pa.int8(), "-128", -128),
        (pa.int64(), "1.0", '{"a":1.0}'),
        (pa.int64(), "true", '{"a":true}'),
        (pa.int64(), '"1"', '{"a":"1"}'),
        (pa.float64(), "1", 1.0),
        (pa.float64(), "1e300", 1e300),
        (pa.float64(), "1e999", '{"a":1e999}'),
        (pa.float64(), "-1e99999999999999999999", '{"a":-1e99999999999999999999}'),
        (pa.float64(), "1e-99999999999999999999", 0.0),
        (pa.float64(), "9" * 5000, '{"a":' + "9" * 5000 + "}"),
        (pa.float64(), '"Infinity"', float("inf")),
        (pa.float32(), "1e39", '{"a":1e39}'),
        (pa.float32(), "3.4028235e38", 3.4028234663852886e38),
        (pa.list_(pa.float32()), "[1e39]", '{"a":[1e39]}'),
        (pa.struct([("x", pa.float64())]), '{"x": 1e400}', '{"a":{"x": 1e400}}'),
        (pa.float64(), "true", '{"a":true}'),
        (pa.bool_(), "false", False),
        (pa.bool_(), "0", '{"a":0}'),
        (pa.string(), "12.50", "12.50"),
        (pa.string(), "12345678901234567.89", "12345678901234567.89"),
        (pa.string(), "1e400", "1e400"),
        (pa.string(), "1E+2", "1E+2"),
        (pa.string(), "-0", "-0"),
        (pa.string(), "0", "0"),
        (pa.string(), "9007199254740993", "9007199254740993"),
        (pa.string(), "-Infinity", "-Infinity"),
        (pa.string(), "true", "true"),
        (pa.string(), "9" * 5000, "9" * 5000),
        (pa.string(), "true", "true"),
        (pa.string(), '{"b": [1, null],\n "c,}": 1.10}', '{"b": [1, null],\n "c,}": 1.10}'),
        (
            pa.list_(pa.string()),
            '["1.10", 1.10, null, [ ], "\\"]"]',
            ["1.10", "1.10", None, "[ ]", '"]'],
        ),
        (
            pa.struct([("x", pa.string()), ("y", pa.int8())]),
            '{"y":1,"x":1.0}',
            {"x": "1.0", "y": 1},
        ),
        (pa.map_(pa.string(), pa.string()), '{"k": 1.10, "l": []}', [("k", "1.10"), ("l", "[]")]),
        (pa.string(), '"ä"', "ä"),
        (pa.decimal128(10, 2), "1.25", Decimal("1.25")),
        (pa.decimal128(10, 2), '"1.25"', Decimal("1.25")),
        (pa.decimal128(10, 2), '"+1e1"', Decimal("10.00")),
        (pa.decimal128(10, 2), '"1_000"', '{"a":"1_000"}'),
        (pa.decimal128(10, 2), '" 1"', '{"a":" 1"}'),
        (pa.decimal128(10, 2), '"\u0661"', '{"a":"\u0661"}'),
        (pa.decimal128(10, 2), '"NaN"', '{"a":"NaN"}'),
        (pa.decimal128(10, 2), "0", Decimal("0.00")),
        (pa.decimal128(2, 2), "0", Decimal("0.00")),
        (pa.decimal128(10, 2), "1.255", '{"a":1.255}'),
        (pa.date32(), '"2024-02-29"', datetime.date(2024, 2, 29)),
        (pa.date32(), '"2023-02-29"', '{"a":"2023-02-29"}'),
        (
            pa.timestamp("us", "UTC"),
            '"2024-01-02T03:04:05.123456+02:00"',
            datetime.datetime(2024, 1, 2, 1, 4, 5, 123456, UTC),
        ),
        (
            pa.timestamp("us", "UTC"),
            '"2024-01-02 03:04:05"',
            datetime.datetime(2024, 1, 2, 3, 4, 5, 0, UTC),
        ),
        (
            pa.timestamp("us", "UTC"),
            '"2024-01-02T03:04:05.123456789Z"',
            datetime.datetime(2024, 1, 2, 3, 4, 5, 123456, UTC),
        ),
        (pa.timestamp("us", "UTC"), "1700000000", '{"a":1700000000}'),
        (
            pa.timestamp("us", "UTC"),
            '"9999-12-31T23:59:59-00:01"',
            '{"a":"9999-12-31T23:59:59-00:01"}',
        ),
        (
            pa.list_(pa.timestamp("us", "UTC")),
            '["0001-01-01T00:00:00+05:30"]',
            '{"a":["0001-01-01T00:00:00+05:30"]}',
        ),
        (
            pa.timestamp("us", "UTC"),
            '"0001-01-01T05:30:00+05:30"',
            datetime.datetime(1, 1, 1, tzinfo=UTC),
        ),
        (pa.timestamp("us"), '"2024-01-02T03:04:05Z"', datetime.datetime(2024, 1, 2, 3, 4, 5)),
        (pa.binary(), '"aGk="', b"hi"),
        (pa.binary(), '"?"', '{"a":"?"}'),
        (pa.list_(pa.date32()), '["2024-01-01",null]', [datetime.date(2024, 1, 1), None]),
        (pa.list_(pa.int32()), '[1,"x"]', '{"a":[1,"x"]}'),
        (pa.struct([("x", pa.int32())]), '{"x":1,"y":2}', {"x": 1}),
        (pa.struct([("x", pa.int32())]), "[]", '{"a":[]}'),
        (pa.map_(pa.string(), pa.int64()), '{"k":1,"l":null}', [("k", 1), ("l", None)]),
        (pa.int64(), "null", None),
    ],
)
def test_a_field_is_the_same_alone_and_beside_a_misfit(
    kind: pa.DataType, text: str, expected: Any
) -> None:
    assert value(kind, text) == expected
    schema = pa.schema([("a", kind)])
    document = b'{"a":%s}' % text.encode()
    alone = decode(schema, document)
    beside = decode(schema, document, b"poison")
    assert beside.columns[0][:1].to_pylist() == alone.columns[0].to_pylist()
    assert beside.misfits.get(0) == alone.misfits.get(0)
    assert alone.columns[0].type == kind


def test_minus_zero_is_the_same_float_beside_a_map_and_with_a_decimal() -> None:
    for more in (
        (),
        (("s", pa.struct([("t", pa.string())])),),
        (("m", pa.map_(pa.string(), pa.int64())),),
        (("d", pa.decimal128(5, 2)),),
    ):
        form = pa.schema([("a", pa.float64()), ("n", pa.int64()), *more])
        found = decode(form, b'{"a":-0,"n":-0,"d":-0}', *([b"poison"] if more else []))
        assert str(found.columns[0][0].as_py()) == "-0.0"
        assert found.columns[1][0].as_py() == 0


def test_random_documents_decode_to_the_same_rows_whole_and_one_by_one() -> None:
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("x", pa.float64()),
            ("s", pa.string()),
            ("t", pa.timestamp("us", "UTC")),
            ("d", pa.date32()),
            ("l", pa.list_(pa.struct([("k", pa.string()), ("m", pa.decimal128(12, 3))]))),
        ]
    )
    chance = random.Random(11)

    def document() -> bytes:
        moment = datetime.datetime(2020, 1, 1, tzinfo=UTC) + datetime.timedelta(
            microseconds=chance.randrange(10**15)
        )
        whole = {
            "n": chance.randrange(-(2**63), 2**63),
            "x": chance.choice([chance.random() * 10 ** chance.randrange(-300, 300), 5, 0.1]),
            "s": "".join(chance.choices('aä"\\\n\u2028😀\t/', k=chance.randrange(8))),
            "t": moment.isoformat(),
            "d": moment.date().isoformat(),
            "l": [{"k": "v", "m": chance.randrange(10**6) / 1000, "o": None}] * chance.randrange(3),
            "unknown": {"n": [1]},
        }
        kept = {key: v for key, v in whole.items() if chance.random() < 0.8}
        return json.dumps(kept, ensure_ascii=chance.random() < 0.5).encode()

    documents = [document() for _ in range(400)]
    form = JsonFormat(schema)
    together = form.decode(documents, [])
    assert form.one_by_one == 0
    assert together.misfits == {}
    single = form.decode([*documents, b"poison"], [])
    assert form.one_by_one == len(documents) + 1
    for whole, one in zip(together.columns, single.columns, strict=True):
        assert one[:-1].equals(whole)


@pytest.mark.parametrize("wanted", [pa.int64(), pa.map_(pa.string(), pa.int64()), pa.binary()])
def test_what_nobody_asks_for_may_be_as_deep_or_long_as_it_likes(wanted: pa.DataType) -> None:
    schema = pa.schema([("id", pa.int64()), ("a", wanted)])
    for value in (
        b"[" * 3000 + b"]" * 3000,
        b'{"x":' * 100_000 + b"1" + b"}" * 100_000,
        b"9" * 5000,
    ):
        found = decode(schema, b'{"id":1,"a":null,"x": %s, "s": "]}\\""}' % value)
        assert (rows(found), found.misfits) == ([(1, None)], {})
    broken = decode(schema, b'{"id":1,"x": %s}' % (b"[" * 3000 + b"]" * 2999))
    assert list(broken.misfits) == [0]
    deep = b"[" * 3000 + b"]" * 3000
    itself = decode(schema, b'{"id":1,"a": %s}' % deep)
    assert rows(itself) == [(1, None)]
    assert itself.misfits[0].rescued == '{"a":' + deep.decode() + "}"


@pytest.mark.parametrize("number", ["1.10", "-0", "7"])
def test_a_number_is_its_text_beside_what_is_too_deep_for_python(number: str) -> None:
    deep = "[" * 3000 + "]" * 3000
    document = f'{{"x": {deep}, "a": {number}}}'.encode()
    found = decode(pa.schema([("a", pa.string())]), document)
    assert (rows(found), found.misfits) == ([(number,)], {})
