from __future__ import annotations

import pytest

from headrace.pipeline.checkpoints.plan_text import (
    Window,
    is_only_for_streams,
    state_of,
    windows_of,
)

MODULO = "precisetimestampconversion(timestamp#0-T60000ms, TimestampType, LongType) - {begin}) % {slide})"
START = f"((x - CASE WHEN ((({MODULO} < cast(0 as bigint)) THEN y END) - 0)"
WINDOW = (
    "named_struct(start, knownnullable(precisetimestampconversion("
    + START
    + ", LongType, TimestampType)), end, knownnullable(precisetimestampconversion(("
    + START
    + " + {size}), LongType, TimestampType)))"
)
TUMBLING = """~Aggregate [window#9, k#3L], [window#9-T60000ms AS w#4-T60000ms, k#3L, sum(v#2L) AS s#5L]
+- ~Project [{window} AS window#9-T60000ms, timestamp#0-T60000ms, v#2L, k#3L]
   +- ~Project [timestamp#0, value#1L AS v#2L, (value#1L % 3) AS k#3L]
      +- ~StreamingRelationV2 some.Provider@52, jetstream, [stream=S], [timestamp#0, value#1L]
"""


def tumbling(size: int, slide: int = 0, begin: int = 0) -> str:
    """In seconds."""
    micros = {"size": size * 10**6, "slide": (slide or size) * 10**6, "begin": begin * 10**6}
    return TUMBLING.format(window=WINDOW.format(**micros))


@pytest.mark.parametrize(
    ("plan", "window"),
    [
        (tumbling(300), "windows of 5m of timestamp"),
        (tumbling(600), "windows of 10m of timestamp"),
        (tumbling(86_400, 3600), "windows of 1d, every 1h of timestamp"),
        (tumbling(90, 90, 15), "windows of 90s, from 15s of timestamp"),
    ],
)
def test_windows_are_told_by_size_slide_and_start(plan: str, window: str) -> None:
    assert state_of(plan) == [f"sum(value) by {window}, (value % 3)"]


def test_the_numbers_of_columns_do_not_count() -> None:
    plan = tumbling(300)
    other = plan.replace("#9", "#109").replace("#3L", "#77L").replace("#0", "#1000")
    assert state_of(other) == state_of(plan)


@pytest.mark.parametrize(
    ("plan", "state"),
    [
        (
            "~Deduplicate [k#3L, timestamp#0-T60000ms]\n+- ~X [k#3L]\n",
            ["duplicates by k, timestamp"],
        ),
        ("~DeduplicateWithinWatermark [k#3L]\n+- ~X [k#3L]\n", ["duplicates by k"]),
        ("~Distinct\n+- ~Project [(v#1 + 1) AS k#3]\n", ["duplicates by (v + 1)"]),
        (
            "~Join Inner, ((k#3L = k#19L) AND (t#0 > u#20))\n:- ~A\n:  +- ~C\n+- ~B\n",
            ["join by k = k"],
        ),
        ("~Join Inner, (k#3L = k#19L)\n:- ~A\n+- B [k#19L]\n", []),
        ("Aggregate [k#1], [k#1, count(1) AS n#2]\n+- Relation [k#1]\n", []),
        ("~Project [sum#3 AS count#4]\n+- ~Filter (count#4 > 1)\n", []),
        ("~Aggregate [count(1) AS n#2L]\n+- ~A\n", ["count(1) by nothing"]),
        ("~Aggregate [k#1, j#2], [k#1, j#2]\n+- ~A\n", ["rows by k, j"]),
        ("", []),
    ],
)
def test_what_keeps_state_and_what_does_not(plan: str, state: list[str]) -> None:
    assert state_of(plan) == state


@pytest.mark.parametrize(
    ("plan", "window"),
    [
        (tumbling(300), "windows of 5m of timestamp"),
        (tumbling(86_400, 3600), "windows of 1d, every 1h of timestamp"),
        (tumbling(300).replace("~", ""), "windows of 5m of timestamp"),
        (tumbling(300).replace("[timestamp#0,", "[(a#70 + b#71) AS timestamp#0,"), "(a + b)"),
    ],
)
def test_windows_that_a_stream_or_a_batch_groups_by_have_their_column(
    plan: str, window: str
) -> None:
    (found,) = windows_of(plan)
    assert found.text.endswith(window)


def test_only_windows_that_rows_are_grouped_by_count() -> None:
    assert windows_of(tumbling(300).replace("Aggregate [window#9, k#3L]", "Aggregate [k#3L]")) == []
    assert windows_of("") == []


@pytest.mark.parametrize(
    ("window", "time", "starts"),
    [
        (Window("t", 10, 10, 0), 39, (30, 30)),
        (Window("t", 10, 10, 0), 40, (40, 40)),
        (Window("t", 10, 10, 3), 39, (33, 33)),
        (Window("t", 10, 5, 0), 39, (30, 35)),
        (Window("t", 10, 4, 0), 39, (32, 36)),
        (Window("t", 10, 4, 1), 45, (37, 45)),
    ],
)
def test_the_windows_that_hold_a_time_begin_from_one_to_another(
    window: Window, time: int, starts: tuple[int, int]
) -> None:
    assert window.starts(time) == starts
    every = range(window.begin, 80, window.slide)
    holding = [each for each in every if each <= time < each + window.size]
    assert (holding[0], holding[-1]) == starts


def test_duplicates_within_a_watermark_are_left_out_of_streams_only() -> None:
    assert is_only_for_streams("~DeduplicateWithinWatermark [k#3L]\n+- ~X [k#3L]\n")
    assert not is_only_for_streams("~Deduplicate [k#3L]\n+- ~X [k#3L]\n")
