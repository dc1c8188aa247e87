from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.pipeline.triggers import AVAILABLE_NOW, CONTINUOUS, parse_trigger


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("cron", "now", "then"),
    [
        ("* * * * *", "2026-03-01T10:00:00", "2026-03-01T10:01:00"),
        ("*/15 * * * *", "2026-03-01T10:15:30", "2026-03-01T10:30:00"),
        ("5 3-5,22 * * *", "2026-03-01T05:05:00", "2026-03-01T22:05:00"),
        ("0 6 * * 1-5", "2026-11-20T06:00:00", "2026-11-23T06:00:00"),  # a Friday, a Monday
        ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 13 * 5", "2026-11-01T00:00:00", "2026-11-06T00:00:00"),  # either will do
        ("0 0 */1 * 5", "2026-11-01T00:00:00", "2026-11-06T00:00:00"),  # all days: no restriction
        ("0 0 * * sun", "2026-11-20T06:00:00", "2026-11-22T00:00:00"),
        ("@monthly", "2026-12-05T00:00:00", "2027-01-01T00:00:00"),
    ],
)
def test_a_schedule_has_its_next_time(cron: str, now: str, then: str) -> None:
    trigger = parse_trigger({"schedule": cron})
    assert trigger.next_time(at(now)) == at(then)


def test_a_schedule_every_so_often_keeps_to_the_clock() -> None:
    trigger = parse_trigger({"schedule": "every 15m"})
    assert trigger.next_time(at("2026-03-01T10:07:00")) == at("2026-03-01T10:15:00")
    assert trigger.next_time(at("2026-03-01T10:15:00")) == at("2026-03-01T10:30:00")


def test_words_for_always_and_once() -> None:
    assert parse_trigger("continuous") == CONTINUOUS
    assert parse_trigger("Available Now") == parse_trigger("availableNow") == AVAILABLE_NOW
    assert parse_trigger("every 250ms").interval_s == 0.25
    assert not parse_trigger("every 1s").is_bounded


def test_a_backlog_by_messages_and_by_time() -> None:
    given = {"lag": 5000, "after": "10m", "stream": "ORDERS", "group": "billing"}
    trigger = parse_trigger(given)
    assert (trigger.mark, trigger.after_s, trigger.poll_s) == (5000, 600.0, 1.0)
    assert (trigger.stream, trigger.group) == ("ORDERS", "billing")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("sometimes", "accepted: 'continuous'"),
        (5, "accepted: 'continuous'"),
        ("every 5 parsecs", "not a duration"),
        ("every 0s", "not a duration"),
        ({"schedule": "every 3d"}, "up to 1d"),
        ({"schedule": "* * *"}, "has 3 fields"),
        ({"schedule": "61 * * * *"}, "no minute; accepted: 0 to 59"),
        ({"schedule": "x * * * *"}, "no minute"),
        ({"schedule": "0 0 * * 7"}, "'7' is no day of the week; accepted: 0 to 6, sun, mon"),
        ({"schedule": "0 0 1-40 * *"}, "'1-40' is no day of the month"),
        ({"schedule": "0 0 31 2 *"}, "no time that ever comes"),
        ({"schedule": "@daily", "lag": 1}, "a schedule has no lag"),
        ({"lag": 0}, "at least 1"),
        ({"lag": True}, "at least 1"),
        ({"lag": 5, "mark": 1}, "has no mark"),
        ({"lag": 5, "consumer": "c"}, "give both"),
        ({"lag": 5, "stream": "S", "consumer": "c", "group": "g"}, "not both"),
    ],
)
def test_other_triggers_are_refused_with_what_is_accepted(raw: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_trigger(raw)
