"""A query from stream to stream under simulation: Spark's order of calls, and whatever may happen in it.

``HEADRACE_SPARK_SEEDS`` sets how many seeds are played (15, with more than 45 kills, cuts and resets at
random points; ``make test-all`` plays 80), ``HEADRACE_SPARK_SEED`` the first one (0). A seed that fails names
itself; ``HEADRACE_SPARK_SEED=<seed> HEADRACE_SPARK_SEEDS=1`` plays it again, step by step the same.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

import peers
from portions import beginning_with, portion
from sim.spark.engine import HOOKS
from sim.spark.sabotage import SABOTAGES
from sim.spark.world import EVENTS, World

peers.package("pyspark")

COVERED_FROM = 160  # so many seeds do everything
FOUND_OUT_BY = 240  # seeds, at the latest
SEEDS = int(os.environ.get("HEADRACE_SPARK_SEEDS", "15"))
MUST_HAPPEN = (
    "zombie refused",
    "zombie found all stored",
    "recut refused",
    "second attempt",
    "read by a consumer",
    "handed over",
    "source was reset",
    "target was reset",
    "driver killed",
    "query died",
)
RESETS = range(portion(4, 2))
FIRST = int(os.environ.get("HEADRACE_SPARK_SEED", "0"))


def play(seed: int, **cast: object) -> Counter[str]:
    try:
        return World(seed, **cast).play()  # type: ignore[arg-type]
    except AssertionError as error:
        raise AssertionError(f"seed {seed} {cast or ''}: {error}") from error


@pytest.mark.timeout(7200)
def test_every_message_makes_one_row_whatever_happens() -> None:
    events: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        events += play(seed)
    print(events)
    if SEEDS >= COVERED_FROM:
        rare = [event for event in (*EVENTS, *MUST_HAPPEN) if not events[event]]
        assert not rare, f"never happened: {rare}"
        assert events["faults"] > 500 * SEEDS / COVERED_FROM


@pytest.mark.parametrize("hook", HOOKS)
def test_a_driver_that_dies_at_a_hook_doubles_and_loses_nothing(hook: str) -> None:
    assert play(1, delivery="exactlyOnce", faults=0, die_at=hook)["driver killed"] == 1


def test_nothing_happens_to_a_query_that_is_left_alone() -> None:
    events = play(2, delivery="exactlyOnce", faults=0)
    assert events["query died"] == events["driver killed"] == 0
    assert events["rows"] > 20


def test_a_source_that_is_made_again_at_any_moment_doubles_nothing() -> None:
    happen = ("reset source", "reset source", "cut", "freeze", "twin", "kill driver")
    events: Counter[str] = Counter()
    for seed in RESETS:
        events += play(seed, delivery="exactlyOnce", faults=12, events=happen)
    assert events["source was reset"] > len(RESETS)


@pytest.mark.parametrize("what", SABOTAGES)
def test_a_sink_that_breaks_its_word_is_found_out(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks, cast, likely = SABOTAGES[what]
    breaks(monkeypatch)
    with pytest.raises(AssertionError, match=r"^seed \d+ "):
        for seed in beginning_with(likely, range(FOUND_OUT_BY)):
            play(seed, **{"delivery": "exactlyOnce", **cast})
