"""A query into the latest value of each key, under simulation: whatever happens, each ends with its last row.

``HEADRACE_SPARK_SEEDS`` and ``HEADRACE_SPARK_SEED`` as in ``test_spark.py``.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

import peers
from headrace.spark.sink import keyed
from portions import beginning_with
from sim.spark.engine import HOOKS
from sim.spark.keyed import KeyedWorld
from sim.spark.sabotage import KEYED_SABOTAGES

peers.package("pyspark")

SEEDS = int(os.environ.get("HEADRACE_SPARK_SEEDS", "10"))
FIRST = int(os.environ.get("HEADRACE_SPARK_SEED", "0"))
COVERED_FROM = 50
FOUND_OUT_BY = 60  # seeds, at the latest
MUST_HAPPEN = (
    "kill task", "kill driver", "twin", "freeze", "zombie refused", "second attempt", "recut",
    "target was reset",
)  # fmt: skip


@pytest.fixture(autouse=True)
def few_keys_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a task stores its keys in several portions."""
    monkeypatch.setattr(keyed, "PORTION", 2)


def play(seed: int, **cast: object) -> Counter[str]:
    try:
        return KeyedWorld(seed, **cast).play()
    except AssertionError as error:
        raise AssertionError(f"seed {seed} {cast or ''}: {error}") from error


@pytest.mark.timeout(7200)
def test_each_key_ends_with_its_last_row_whatever_happens() -> None:
    events: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        events += play(seed)
    print(events)
    if SEEDS >= COVERED_FROM:
        rare = [event for event in MUST_HAPPEN if not events[event]]
        assert not rare, f"never happened: {rare}"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_driver_that_dies_at_a_hook_leaves_the_last_rows(hook: str) -> None:
    assert play(1, delivery="exactlyOnce", faults=0, die_at=hook)["driver killed"] == 1


@pytest.mark.parametrize("what", KEYED_SABOTAGES)
def test_a_sink_that_breaks_its_word_is_found_out(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks, likely = KEYED_SABOTAGES[what]
    breaks(monkeypatch)
    with pytest.raises(AssertionError, match=r"^seed \d+ "):
        for seed in beginning_with(likely, range(FOUND_OUT_BY)):
            play(seed, delivery="exactlyOnce")
