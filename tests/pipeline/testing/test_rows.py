"""Rows as plain values of JSON, compared without regard to their order. Pure."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.testing.cases import as_line, compare, plain

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
ROWS = st.lists(st.fixed_dictionaries({"a": VALUES, "b": VALUES}), max_size=5)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))), "2026-01-01T10:00:00Z"),
        (datetime(2026, 1, 1, 12, 0, 0, 250_000), "2026-01-01T12:00:00.250000Z"),
        (date(2026, 1, 1), "2026-01-01"),
        (b"text", "text"),
        (b"\xff", {"base64": "/w=="}),
        (Decimal("3.00"), 3),
        (Decimal("0.1"), 0.1),
        (Decimal("0.12345678901234567890"), "0.12345678901234567890"),
        (float("nan"), "nan"),
        ({"a": (1, b"x")}, {"a": [1, "x"]}),
    ],
)
def test_values_as_json_has_them(value: Any, shown: Any) -> None:
    assert plain(value) == shown
    json.dumps(plain(value), allow_nan=False)


@given(ROWS, st.randoms())
def test_rows_are_equal_in_any_order_also_when_they_were_written_down(
    rows: list[dict[str, Any]], random: Any
) -> None:
    came = [{key: plain(value) for key, value in row.items()} for row in rows]
    expected = [json.loads(as_line(row, ["a", "b"])) for row in came]
    random.shuffle(expected)
    assert not compare(expected, came, ["a", "b"])


@given(ROWS, ROWS)
def test_what_is_missing_and_what_is_extra_is_the_difference_of_multisets(
    expected: list[dict[str, Any]], came: list[dict[str, Any]]
) -> None:
    expected = [{key: plain(value) for key, value in row.items()} for row in expected]
    came = [{key: plain(value) for key, value in row.items()} for row in came]
    found = compare(expected, came, ["a", "b"])
    assert len(came) - len(found.extra) == len(expected) - len(found.missing)
    assert not set(found.missing) & set(found.extra)


def test_only_the_columns_that_are_expected_are_compared() -> None:
    came = [{"a": 1, "b": 2, "at": "2026-01-01T00:00:00Z"}]
    columns = ["a", "b", "at"]
    assert not compare([{"a": 1.0}], came, columns)
    moment = [{"at": "2026-01-01T02:00:00.000+02:00"}]
    assert not compare(moment, came, columns, ["at"])
    assert compare(moment, came, columns), "it is a text there"
    assert str(compare([{"c": 1}], came, columns)) == (
        "there is no column 'c'; there are: a, b, at"
    )
    assert compare([], came, columns).extra == (as_line(came[0], columns),)
    assert not compare([{"a": 0.1 + 0.2}], [{"a": 0.3}], ["a"]), "a sum in another order"
    assert compare([{"a": 1}], [{"a": True}], ["a"])


def test_a_difference_shows_rows_up_to_a_number() -> None:
    found = compare([{"a": 1}], [{"a": number} for number in range(2, 9)], ["a"])
    assert str(found) == "1 row missing, 7 rows not expected"
    assert found.lines(2) == ['- {"a": 1}', '+ {"a": 2}', '+ {"a": 3}', "+ and 5 more"]
