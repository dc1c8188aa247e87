from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.demo.errors import DemoError
from headrace.demo.flights import LEG_COLUMNS, UNKNOWN_AIRCRAFT, LastLeg, schema_of
from headrace.demo.results import Results, kept


def leg(
    sequence: int, tailnum: str = "N1", number: int = 1, arr_delay: int | None = 4
) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "tailnum": tailnum,
        "scheduled": 60 * sequence,
        "leg": number,
        "arr_delay": arr_delay,
    }


def batch_of(*legs: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(legs), schema=schema_of(LEG_COLUMNS))


def write(results: Results, batch: int, *legs: dict[str, Any]) -> None:
    """As one task does."""
    assert list(kept([batch_of(*legs)], results.scratch(batch), 0, 7)) == [batch_of(*legs)]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    made = Results(tmp_path)
    made.prepare()
    return made


def test_a_batch_leaves_each_aircraft_s_last_leg_to_the_next(results: Results) -> None:
    write(results, 0, leg(1, "N1"), leg(2, "N2"), leg(3, "N1", 2, None))
    done = results.complete(0, results.state_before(0))
    assert pq.read_table(next(done.glob("*.parquet"))).num_rows == 3
    assert results.state_before(1) == {
        "N1": LastLeg(3, 180, 2, None),
        "N2": LastLeg(2, 120, 1, 4),
    }
    write(results, 1, leg(4, "N2", 2))
    results.complete(1, results.state_before(1))
    after = results.state_before(2)
    assert after["N1"].sequence == 3
    assert after["N2"].sequence == 4


def test_a_batch_run_again_replaces_what_it_left(results: Results) -> None:
    for _ in range(2):
        write(results, 0, leg(1), leg(2))
        results.complete(0, results.state_before(0))
    assert results.read()["sequence"].to_pylist() == [1, 2]


def test_what_is_being_written_is_never_read_and_removed_at_the_next_start(
    results: Results,
) -> None:
    write(results, 0, leg(1))
    results.complete(0, {})
    write(results, 1, leg(2))
    assert results.read()["sequence"].to_pylist() == [1]
    results.prepare()
    assert sorted(place.name for place in results.legs.iterdir()) == ["batch=00000"]


def test_legs_come_back_in_stream_order(results: Results) -> None:
    write(results, 0, leg(3), leg(1))
    results.complete(0, {})
    write(results, 1, leg(4), leg(2))
    results.complete(1, results.state_before(1))
    assert results.read()["sequence"].to_pylist() == [1, 2, 3, 4]


def test_an_empty_batch_hands_the_state_on(results: Results) -> None:
    write(results, 0, leg(1))
    results.complete(0, {})
    write(results, 1)
    results.complete(1, results.state_before(1))
    assert results.state_before(2) == results.state_before(1)


def test_a_task_that_failed_leaves_nothing_to_the_one_that_runs_again(results: Results) -> None:
    place = results.scratch(0)
    failing = kept(iter([batch_of(leg(1))]), place, 1, 7)
    next(failing)
    del failing
    for task, sequence in ((0, 2), (1, 1)):
        assert list(kept([batch_of(leg(sequence))], place, task, 8))
    done = results.complete(0, {})
    assert sorted(file.name for file in done.iterdir()) == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    assert results.read()["sequence"].to_pylist() == [1, 2]


def test_only_the_states_that_may_be_needed_again_are_kept(results: Results) -> None:
    for batch in range(6):
        write(results, batch, leg(batch + 1))
        results.complete(batch, results.state_before(batch))
    assert sorted(place.name for place in results.states.iterdir()) == [
        "00003.parquet",
        "00004.parquet",
        "00005.parquet",
    ]


def test_a_missing_state_is_a_sentence(results: Results) -> None:
    with pytest.raises(DemoError, match=r"state/00004\.parquet is missing.*--reset"):
        results.state_before(5)


def test_flights_without_an_aircraft_are_not_remembered(results: Results) -> None:
    write(results, 0, leg(1, UNKNOWN_AIRCRAFT))
    results.complete(0, {})
    assert results.state_before(1) == {}


def test_before_the_first_batch_there_is_nothing_to_read(results: Results) -> None:
    with pytest.raises(DemoError, match="no results yet"):
        results.read()
