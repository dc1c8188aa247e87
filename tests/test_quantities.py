"""Durations, sizes and times: what is typed, and what NATS writes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.quantities import (
    GO_UNITS,
    duration_ns,
    go_duration_text,
    parse_duration,
    parse_moment,
    parse_size,
)

NOW = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5), ("1.5", 1.5), ("500ms", 0.5), ("1h30m", 5400), ("7d", 604_800), ("2m3s", 123)],
)
def test_a_duration_is_typed_as_in_the_nats_tool(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1x", "1h-", "-5s", "1 h"])
def test_what_is_no_duration_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="accepted: 500ms"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512", 512),
        ("64K", 65_536),
        ("1GB", 1 << 30),
        ("2MiB", 2 << 20),
        ("1.5k", 1536),
        ("-1", -1),
    ],
)
def test_a_size_is_typed_with_a_unit(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "GB", "1X", "-2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="accepted: 512"):
        parse_size(text)


def test_a_moment_is_a_time_or_how_long_ago() -> None:
    assert parse_moment("1h", NOW) == datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
    assert parse_moment("2026-11-22T09:00:00Z", NOW) == datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
    assert parse_moment("2026-11-22 09:00", NOW) == datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
    with pytest.raises(ValueError, match="how long ago"):
        parse_moment("yesterday", NOW)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("5s", 5 * SECOND),
        ("1.5s", 3 * SECOND // 2),
        ("250ms", SECOND // 4),
        ("1h2m3s", 3723 * SECOND),
        ("-2s", -2 * SECOND),
        ("0", 0),
        (".5s", SECOND // 2),
        ("", None),
        ("5", None),
        ("5x", None),
        ("s", None),
        ("5 s", None),
        ("5d", None),
        ("5M", None),
        ("-", None),
        ("1s" * 33, None),
    ],
)
def test_durations_are_read_as_go_does(text: str, nanoseconds: int | None) -> None:
    assert duration_ns(text, GO_UNITS) == nanoseconds


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (2 * SECOND, "2s"),
        (90 * SECOND, "1m30s"),
        (3600 * SECOND, "1h0m0s"),
        (SECOND // 4, "250ms"),
        (1_500_000, "1.5ms"),
        (1_500, "1.5µs"),
        (999, "999ns"),
        (5 * SECOND // 2, "2.5s"),
        (-SECOND, "-1s"),
    ],
)
def test_durations_are_written_as_go_does(nanoseconds: int, text: str) -> None:
    assert go_duration_text(nanoseconds) == text


@given(st.integers(-(10**15), 10**15))
def test_what_is_written_reads_back(nanoseconds: int) -> None:
    parsed = duration_ns(go_duration_text(nanoseconds))
    assert parsed is not None
    assert abs(parsed - nanoseconds) <= 1
