"""When a failed query is begun again: a decision, tested in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.failures.causes import Cause, Kind
from headrace.pipeline.failures.supervising import SAME_MAX, WAIT_MAX_S, Again, Restarts, Stop
from headrace.pipeline.model import NO_RESTARTS, RestartSettings

WORKER = Cause("worker", "Spark lost a Python worker")
SETTINGS = RestartSettings(attempts=5, backoff_s=1.0, within_s=600.0)


def test_waits_double_until_a_batch_is_finished() -> None:
    restarts = Restarts(RestartSettings(attempts=99))
    causes = [Cause("worker", text) for text in "abcdefghi"]
    waits = [restarts.failed(cause, 7, 1.0) for cause in causes]
    assert [each.wait_s for each in waits if isinstance(each, Again)] == [
        *(1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        *(WAIT_MAX_S,) * 3,
    ]
    assert restarts.failed(WORKER, 8, 2.0) == Again(10, 1.0, 1)


def test_the_same_failure_at_the_same_place_three_times_is_no_accident() -> None:
    restarts = Restarts(SETTINGS)
    one = Cause("other", "ValueError: row 17 of task 3")
    other = Cause("other", "ValueError: row 4711 of task 0")
    assert restarts.failed(one, 7, 0.0) == Again(1, 1.0, 1)
    assert restarts.failed(other, 7, 2.0) == Again(2, 2.0, 2), "numbers make no other failure"
    said = restarts.failed(one, 7, 5.0)
    assert said == Stop("it failed in the same way at the same place 3 times, which is no accident")


def test_a_python_process_that_a_busy_machine_starts_too_late_is_an_accident_each_time() -> None:
    restarts = Restarts(RestartSettings(attempts=SAME_MAX + 1))
    late = Cause("worker", "Spark lost a Python worker (Python worker failed to connect back): it")
    for _ in range(SAME_MAX + 1):
        assert isinstance(restarts.failed(late, 7, 0.0), Again)
    assert restarts.failed(late, 7, 0.0) == Stop(
        f"it was begun again {SAME_MAX + 1} times within {restarts._settings.within_s:g} s (restart)"
    )


@pytest.mark.parametrize("kind", ["worker", "other"])
def test_a_failure_elsewhere_or_another_one_is_counted_from_its_beginning(kind: Kind) -> None:
    restarts = Restarts(SETTINGS)
    cause = Cause(kind, "boom")
    assert isinstance(restarts.failed(cause, 1, 0.0), Again)
    assert isinstance(restarts.failed(cause, 1, 0.0), Again)
    assert restarts.failed(cause, 2, 0.0) == Again(3, 1.0, 1)
    assert restarts.failed(Cause(kind, "bang"), 2, 0.0) == Again(4, 2.0, 1)


def test_more_failures_than_attempts_within_the_time_stop_it_and_fewer_do_not() -> None:
    restarts = Restarts(RestartSettings(attempts=2, within_s=10.0))
    assert isinstance(restarts.failed(WORKER, 1, 0.0), Again)
    assert isinstance(restarts.failed(WORKER, 2, 9.0), Again)
    assert restarts.failed(WORKER, 3, 10.0) == Again(2, 1.0, 1), "the first is ten seconds past"
    assert restarts.failed(WORKER, 4, 11.0) == Stop(
        "it was begun again 2 times within 10 s (restart)"
    )


def test_a_mistake_and_a_query_without_restarts_stop_at_once() -> None:
    assert Restarts(SETTINGS).failed(Cause("mistake", "no such column"), -1, 0.0) == Stop()
    assert Restarts(NO_RESTARTS).failed(WORKER, -1, 0.0) == Stop()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["worker", "other", "away"]),
            st.sampled_from("ab"),
            st.integers(0, 2),
            st.floats(0, 300),
        ),
        max_size=40,
    ),
    st.integers(1, 4),
)
def test_a_query_is_never_begun_again_more_often_than_its_settings_allow(
    failures: list[tuple[Kind, str, int, float]], attempts: int
) -> None:
    settings = RestartSettings(attempts, 0.5, 600.0)
    restarts, now, position = Restarts(settings), 0.0, 0
    begun: list[float] = []
    row: list[tuple[str, str, int]] = []
    for kind, text, progress, passed in failures:
        now, position = now + passed, position + progress
        row.append((kind, text, position))
        follows = restarts.failed(Cause(kind, text), position, now)
        if isinstance(follows, Stop):
            same = row[-SAME_MAX:]
            is_same = len(same) == SAME_MAX and len(set(same)) == 1 and kind != "away"
            assert is_same or len([at for at in begun if at > now - 600.0]) == attempts
            return
        begun.append(now)
        assert len([at for at in begun if at > now - 600.0]) <= attempts
        assert 0.5 <= follows.wait_s <= WAIT_MAX_S
