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
tally: Any = importlib.import_module("tally")
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


def noting(played: Path, *, bad: int | None = None) -> Any:
    """A target that writes down what it is given, and dislikes its input number ``bad``."""

    def check(data: bytes, rng: random.Random) -> None:
        with played.open("ab") as file:
            file.write(data.hex().encode() + b" %d\n" % rng.getrandbits(64))
        if bad is not None and len(played.read_bytes().splitlines()) > bad:
            raise AssertionError("no")

    return mutation.Target("noting", [b"abc", b"defgh"], [b"x"], check)


def test_no_two_processes_and_no_two_runs_play_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "BATCH", 20)
    played, total = tmp_path / "played", tmp_path / "total.json"
    for inputs in (100, 300, 300):  # each counts those before it; the last has nothing to do
        assert harness.run(noting(played), inputs, 0, 1, tally.FileTally(total, 1), 2)
    lines = played.read_bytes().splitlines()
    count = tally.FileTally(total, 1).inputs("noting")
    assert count == len(lines)
    assert 300 <= count <= 300 + 2 * 20  # a batch under way is played to its end
    assert len(set(lines)) == len(lines)
    assert harness.run(noting(played), 40, 0, 1, tally.Tally(), 2)  # without a file: from the start
    assert len(set(played.read_bytes().splitlines())) == len(lines)


def test_what_fails_in_any_process_ends_the_run_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "BATCH", 20)
    monkeypatch.setattr(harness, "KEPT", tmp_path / "kept")
    target = noting(tmp_path / "played", bad=50)
    total = tmp_path / "total.json"
    assert not harness.run(target, 10_000, 0, 1, tally.FileTally(total, 1), 2)
    assert len((tmp_path / "played").read_bytes().splitlines()) < 200
    assert list((tmp_path / "kept" / "noting").glob("*.bin"))
    assert tally.FileTally(total, 1).inputs("noting") in (0, 20, 40)  # whole batches only
    assert "seed 1, batch" in capfd.readouterr().err
