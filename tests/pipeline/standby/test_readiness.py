from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DisconnectedError
from headrace.pipeline.model import Place, Problem
from headrace.pipeline.standby import readiness as module
from headrace.pipeline.standby.readiness import RETRY_MAX_S, RETRY_S, Readiness, pause_after
from headrace.pipeline.standby.state import Ready
from waiting import until_here

PLACE = Place(Path("orders.toml"), 3)
MISSING = Problem(PLACE, "there is no stream 'ORDERS'")


class Rehearsals:
    """Rehearsals that find what they are told to find, in order, the last one again and again."""

    def __init__(self, *found: list[Problem] | Exception) -> None:
        self._found = list(found)
        self.step = "rehearsing query 'out'"
        self.ran = 0
        self.kept = 0
        self.given_up = threading.Event()
        self.hangs = threading.Event()
        self.hangs.set()

    def run(self) -> list[Problem]:
        self.hangs.wait(30)
        self.ran += 1
        found = self._found.pop(0) if len(self._found) > 1 else self._found[0]
        if isinstance(found, Exception):
            raise found
        return found

    def keep_warm(self) -> None:
        self.kept += 1

    def give_up(self) -> None:
        self.given_up.set()
        self.hangs.set()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setattr(module, "RETRY_MAX_S", 0.01)
    monkeypatch.setattr(module, "KEEP_S", 0.01)


@contextmanager
def getting_ready(
    rehearsals: Rehearsals, steady: Callable[[], float] = lambda: 0.0
) -> Iterator[Readiness]:
    readiness = Readiness(lambda: rehearsals, lambda t: Problem(PLACE, t), lambda: 7.0, steady)
    with readiness:
        yield readiness


def test_a_rehearsal_that_finds_nothing_makes_it_ready_and_workers_are_kept() -> None:
    rehearsals = Rehearsals([])
    with getting_ready(rehearsals) as readiness:
        until_here(lambda: readiness.now == Ready(True, 7.0), "it does not get ready")
        until_here(lambda: rehearsals.kept > 3, "workers are not kept")
    assert rehearsals.given_up.is_set()
    assert rehearsals.ran == 1


def test_what_is_missing_is_told_and_tried_again_until_it_is_there() -> None:
    rehearsals = Rehearsals([MISSING], [MISSING], [])
    told: list[str] = []

    def is_ready(readiness: Readiness) -> bool:
        if str(readiness.now) not in told:
            told.append(str(readiness.now))
        return readiness.now.is_ready

    rehearsals.hangs.clear()
    with getting_ready(rehearsals) as readiness:
        assert str(readiness.now) == "getting ready"
        rehearsals.hangs.set()
        until_here(lambda: is_ready(readiness), "it does not get ready")
    assert rehearsals.ran >= 3


def test_a_rehearsal_that_breaks_is_a_problem_in_the_line_of_the_pipeline() -> None:
    with getting_ready(Rehearsals(OSError("Java has gone"))) as readiness:
        until_here(lambda: readiness.now.problems, "it is not told")
        assert str(readiness.now) == (
            "not ready: orders.toml:3: the rehearsal failed: Java has gone"
        )


@pytest.mark.parametrize(
    ("error", "has_a_trace"),
    [(LookupError("nobody thought of it"), True), (DisconnectedError("no server"), False)],
)
def test_what_nobody_foresaw_is_logged_with_its_trace(
    error: Exception, has_a_trace: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with getting_ready(Rehearsals(error)) as readiness:
        until_here(lambda: readiness.now.problems, "it is not told")
    logged = [record for record in caplog.records if "a rehearsal failed" in record.message]
    assert logged
    assert {bool(record.exc_info) for record in logged} == {has_a_trace}


def test_one_that_hangs_is_told_with_what_it_was_at_and_nobody_waits_for_its_end() -> None:
    rehearsals, time = Rehearsals([]), [0.0]
    rehearsals.hangs.clear()
    with getting_ready(rehearsals, lambda: time[0]) as readiness:
        assert not readiness.now.problems
        until_here(lambda: readiness._rehearsal is not None, "it does not begin")
        time[0] = 121.0
        until_here(lambda: readiness.now.problems, "it is not told")
        assert "no answer for 120 s while rehearsing query 'out'" in str(readiness.now)
    assert rehearsals.given_up.is_set()


@given(st.integers(min_value=1, max_value=50))
def test_pauses_grow_up_to_a_limit(failures: int) -> None:
    assert RETRY_S <= pause_after(failures) <= RETRY_MAX_S or module.RETRY_S == 0.01
    assert pause_after(failures) <= pause_after(failures + 1)
