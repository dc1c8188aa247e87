from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.config.durations import format_duration, parse_duration

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "duration_ns"),
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
    ],
)
def test_durations_are_read_as_go_does(text: str, duration_ns: int | None) -> None:
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize(
    ("duration_ns", "text"),
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
def test_durations_are_written_as_go_does(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text


@given(st.integers(-(10**15), 10**15))
def test_what_is_written_reads_back(duration_ns: int) -> None:
    parsed = parse_duration(format_duration(duration_ns))
    assert parsed is not None
    assert abs(parsed - duration_ns) <= 1
