from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.cli.shared.units import (
    ago,
    bytes_text,
    count_text,
    duration_text,
    parse_duration,
    parse_moment,
    parse_size,
)

NOW = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)


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


def test_numbers_are_shown_short() -> None:
    assert [bytes_text(n) for n in (-1, 0, 1023, 1536, 5 << 30)] == [
        "unlimited", "0 B", "1023 B", "1.5 KiB", "5.0 GiB",
    ]  # fmt: skip
    assert count_text(1_234_567) == "1,234,567"
    durations = [duration_text(s) for s in (-1, 0.0002, 0.25, 1.5, 90, 3600, 90_061)]
    assert durations == ["never", "200µs", "250ms", "1.50s", "1m30s", "1h", "1d1h"]


def test_how_long_ago_a_time_was() -> None:
    assert ago("2026-11-22T09:58:30.123456789Z", NOW) == "1m30s"
    assert ago("0001-01-01T00:00:00Z", NOW) == "never"
    assert ago(None, NOW) == "never"
    assert ago("2026-11-22T09:59:59.9Z", NOW) == "0s"
