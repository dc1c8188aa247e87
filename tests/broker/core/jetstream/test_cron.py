"""Cron patterns and the other ways to say when a schedule fires."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.schedules import next_firing
from headrace.cron import parse_cron

SECOND = 1_000_000_000
BERLIN = ZoneInfo("Europe/Berlin")


def ns(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * SECOND


def after(pattern: str, moment: str) -> str | None:
    found = parse_cron(pattern).next_after(datetime.fromisoformat(moment))
    return found.isoformat(" ") if found else None


@pytest.mark.parametrize(
    ("pattern", "moment", "expected"),
    [
        ("* * * * * *", "2024-02-29 23:59:59", "2024-03-01 00:00:00"),
        ("0 30 9 * * mon-fri", "2024-03-01 09:30:00", "2024-03-04 09:30:00"),
        ("0 0 0 29 2 ?", "2024-02-29 00:00:00", "2028-02-29 00:00:00"),
        ("0 0 0 30 2 *", "2024-01-01 00:00:00", None),
        ("0 0 12 13 * fri", "2024-09-01 00:00:00", "2024-09-06 12:00:00"),
        ("0 0 12 13 * *", "2024-09-01 00:00:00", "2024-09-13 12:00:00"),
        ("0 0 12 */2 * fri", "2024-09-01 13:00:00", "2024-09-03 12:00:00"),
        ("0 0 0 1-31 * fri", "2026-11-01 00:00:00", "2026-11-02 00:00:00"),
        ("0 0 12 1-31/1 * fri", "2024-09-01 13:00:00", "2024-09-02 12:00:00"),
        ("15/20 * * * * *", "2024-01-01 00:00:36", "2024-01-01 00:00:55"),
        ("0 0 0 1 JAN,jul *", "2024-02-01 00:00:00", "2024-07-01 00:00:00"),
        ("0 0 0 * * 0", "2024-01-01 00:00:00", "2024-01-07 00:00:00"),
        ("59 59 23 31 12 *", "9999-12-31 23:59:58", "9999-12-31 23:59:59"),
    ],
)
def test_the_next_time_on_the_clock(pattern: str, moment: str, expected: str | None) -> None:
    assert after(pattern, moment) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "* * * * *", "60 * * * * *", "* * 24 * * *", "* * * 0 * *", "* * * * 13 *"),
        *("5-1 * * * * *", "*/0 * * * * *", "1-2-3 * * * * *", "1/2/3 * * * * *"),
        *("-1 * * * * *", "* * * * mon *", "1.5 * * * * *", "x * * * * *", "* * * * * 7"),
    ],
)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"fields$| is no .*; accepted: \d+ to "):
        parse_cron(pattern)


fields = st.tuples(
    st.sampled_from(["0", "*", "*/7", "10-20/3"]),
    st.sampled_from(["0", "*", "59", "*/15"]),
    st.sampled_from(["*", "0", "23", "8-18"]),
    st.sampled_from(["*", "?", "1", "31", "10-12"]),
    st.sampled_from(["*", "2", "jan-mar"]),
    st.sampled_from(["*", "sun", "mon-fri"]),
)


@given(fields, st.datetimes(datetime(2023, 1, 1), datetime(2026, 1, 1)))
def test_no_matching_second_is_left_out(parts: tuple[str, ...], moment: datetime) -> None:
    cron = parse_cron(" ".join(parts))
    found = cron.next_after(moment)
    if found is None:
        return
    assert found > moment
    assert found.second in cron.seconds
    assert found.minute in cron.minutes
    assert found.hour in cron.hours
    if found - moment > timedelta(seconds=2):  # nothing is found from one second before, either
        assert cron.next_after(found - timedelta(seconds=1)) == found
        middle = moment + (found - moment) / 2
        assert cron.next_after(middle) == found


# -- the other patterns


def test_a_single_time_does_not_repeat_and_may_have_passed() -> None:
    now = ns("2024-05-05T00:00:00+00:00")
    firing = next_firing("@at 2020-01-01T01:00:00.5+01:00", None, now, now)
    assert firing == (ns("2020-01-01T00:00:00+00:00") + SECOND // 2, False)
    assert next_firing("@at 2020-01-01T00:00:00Z", UTC, now, now) is None
    assert next_firing("@at tomorrow", None, now, now) is None


def test_an_interval_counts_from_the_last_time_and_skips_what_was_missed() -> None:
    start = ns("2024-05-05T00:00:00+00:00") + 300_000_000
    assert next_firing("@every 5s", None, start, start) == (start - 300_000_000 + 5 * SECOND, True)
    late = start + 100 * SECOND
    assert next_firing("@every 5s", None, start, late) == (late - 300_000_000 + 5 * SECOND, True)
    assert next_firing("@every 999ms", None, start, start) is None
    assert next_firing("@every 5s", UTC, start, start) is None


def test_a_pattern_is_of_its_time_zone() -> None:
    now = ns("2024-07-01T00:00:00+00:00")
    assert next_firing("@daily", BERLIN, now, now) == (ns("2024-07-01T22:00:00+00:00"), True)
    assert next_firing("@daily", None, now, now) == (ns("2024-07-02T00:00:00+00:00"), True)


def test_changing_clocks_neither_stop_a_schedule_nor_send_it_back() -> None:
    # In Berlin 02:30 does not exist on 2024-03-31 and comes twice on 2024-10-27.
    spring = ns("2024-03-30T12:00:00+00:00")
    found = next_firing("0 30 2 * * *", BERLIN, spring, spring)
    assert found is not None
    assert found.time_ns == ns("2024-04-01T00:30:00+00:00")
    autumn = ns("2024-10-27T00:59:30+00:00")
    times = []
    for _ in range(3):
        found = next_firing("0 */30 * * * *", BERLIN, autumn, autumn)
        assert found is not None
        assert found.time_ns > autumn
        autumn = found.time_ns
        times.append(datetime.fromtimestamp(autumn / SECOND, UTC).strftime("%H:%M"))
    assert times == ["01:00", "01:30", "02:00"]


@given(st.sampled_from(["* * * * * *", "0 15 2 * * *", "@hourly"]), st.integers(0, 366 * 86_400))
def test_time_only_goes_forward_in_any_zone(pattern: str, offset: int) -> None:
    start = ns("2024-01-01T00:00:00+00:00") + offset * SECOND
    found = next_firing(pattern, BERLIN, start, start)
    assert found is not None
    assert start < found.time_ns <= start + 26 * 3600 * SECOND
