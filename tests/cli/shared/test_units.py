from __future__ import annotations

from datetime import UTC, datetime

from headrace.cli.shared.units import (
    ago,
    bytes_text,
    count_text,
    duration_text,
)

NOW = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)


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
