"""RFC 3339 with nanoseconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.api.base import DocumentError
from headrace.api.times import ZERO_TIME, format_time, parse_time


@given(st.integers(1, 4_000_000_000_000_000_000))
def test_a_time_survives_its_text(timestamp_ns: int) -> None:
    assert parse_time(format_time(timestamp_ns)) == timestamp_ns


def test_the_zero_time_is_zero() -> None:
    assert format_time(0) == ZERO_TIME
    assert parse_time(ZERO_TIME) == 0
    assert parse_time("") == 0


@pytest.mark.parametrize(
    ("text", "timestamp_ns"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01T01:00:00.5+01:00", 500_000_000),
        ("1969-12-31T22:00:00.000000001-02:00", 1),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123_456_789),
    ],
)
def test_offsets_and_fractions_are_read(text: str, timestamp_ns: int) -> None:
    assert parse_time(text) == timestamp_ns


@pytest.mark.parametrize(
    "text", ["yesterday", "2023-11-14", "2023-13-14T00:00:00Z", "2023-11-14T00:00:00"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(DocumentError, match="RFC 3339"):
        parse_time(text)
