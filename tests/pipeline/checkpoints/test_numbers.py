"""The batch numbers that a function of two parameters gets: never one that an earlier batch had."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.checkpoints.checkpoint import Checkpoint, Start
from headrace.pipeline.checkpoints.results_folder import OF_CHECKPOINT
from headrace.pipeline.queries.handlers import Numbers

NOW = 1_700_000_000


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint("q", str(tmp_path / "q"), tmp_path / "q")


def ledger(checkpoint: Checkpoint, *, again: bool = False) -> Numbers:
    numbers = Numbers(checkpoint, lambda: NOW)
    numbers.open(again=again)
    return numbers


def planned(checkpoint: Checkpoint, generation: int, batches: int, *, has_id: bool = False) -> None:
    """What Spark has planned of a generation, by a release with ids or by an earlier one."""
    assert checkpoint.folder is not None
    folder = checkpoint.folder / f"{generation:04d}"
    (folder / "offsets").mkdir(parents=True)
    for number in range(batches):
        (folder / "offsets" / str(number)).write_text("v1\n{}")
    if has_id:
        text = json.dumps({"id": "a", "pipeline": "p", "query": "q", "generation": generation})
        (folder / OF_CHECKPOINT).write_text(text)


def test_the_first_generation_has_the_numbers_of_spark(checkpoint: Checkpoint) -> None:
    numbers = ledger(checkpoint)
    assert [numbers.number_of("g1", batch, 1) for batch in (0, 1, 1, 2)] == [0, 1, 1, 2]
    assert ledger(checkpoint).number_of("g1", 2, 1) == 2, "a batch again after a kill"


RUNS = st.lists(st.tuples(st.sampled_from(["g1", "g2", "replay"]), st.booleans()), max_size=30)


@given(calls=RUNS)
def test_no_two_batches_have_one_number_and_later_ones_have_greater_ones(
    calls: list[tuple[str, bool]],
) -> None:
    with tempfile.TemporaryDirectory() as home:
        checkpoint = Checkpoint("q", home, Path(home))
        batches = {"g1": -1, "g2": -1, "replay": -1}
        given_to: dict[int, tuple[str, int]] = {}
        last = -1
        for run, is_again in calls:
            batches[run] += not is_again or batches[run] < 0
            number = ledger(checkpoint).number_of(run, batches[run], 1)
            assert given_to.setdefault(number, (run, batches[run])) == (run, batches[run])
            assert number >= last or is_again
            last = max(last, number)


def test_a_query_that_ran_before_there_was_a_ledger_goes_on(checkpoint: Checkpoint) -> None:
    planned(checkpoint, 1, 58)
    numbers = ledger(checkpoint)
    assert numbers.number_of("g1", 57, 1) == 57, "it may have been written before a kill"
    assert numbers.number_of("g1", 58, 1) == 58
    checkpoint.add({"orders": Start("earliest")})
    assert ledger(checkpoint).number_of("g2", 0, 2) == 59


def test_an_older_generation_counts_though_the_newer_one_began_at_0_again(
    checkpoint: Checkpoint,
) -> None:
    planned(checkpoint, 1, 58)
    planned(checkpoint, 2, 3)
    numbers = ledger(checkpoint)
    assert numbers.number_of("g2", 2, 2) == 2
    assert numbers.number_of("g2", 3, 2) == 58


def test_a_ledger_that_was_lost_gives_no_number_again(checkpoint: Checkpoint) -> None:
    planned(checkpoint, 1, 5, has_id=True)
    assert ledger(checkpoint).number_of("g1", 4, 1) == NOW


def test_a_query_that_is_begun_again_gives_no_number_again(checkpoint: Checkpoint) -> None:
    assert ledger(checkpoint, again=True).number_of("new", 0, 1) == NOW
    assert ledger(checkpoint).number_of("new", 1, 1) == NOW + 1
