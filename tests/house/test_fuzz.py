"""The fuzzers, a little of each, and the inputs that once failed. ``make fuzz`` is the whole."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"
INPUTS = 300

sys.path.insert(0, str(FUZZ))
harness: Any = importlib.import_module("run")
mutation: Any = importlib.import_module("mutation")
sys.path.remove(str(FUZZ))


@pytest.mark.parametrize("name", harness.TARGETS)
def test_garbage_breaks_no_promise(name: str) -> None:
    target = harness.TARGETS[name]
    rng = random.Random(name)
    for _ in range(INPUTS):
        data = mutation.mutated(target, rng)
        target.check(data, rng)


@pytest.mark.parametrize("name", harness.TARGETS)
def test_the_corpus_itself_is_good(name: str) -> None:
    target = harness.TARGETS[name]
    for data in target.corpus:
        target.check(data, random.Random(1))


@pytest.mark.parametrize("name", harness.TARGETS)
def test_inputs_that_once_failed_are_read_as_promised(name: str) -> None:
    for path in sorted((FUZZ / "kept" / name).glob("*.bin")):
        for seed in range(5):
            harness.TARGETS[name].check(path.read_bytes(), random.Random(seed))
