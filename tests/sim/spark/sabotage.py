"""What a sink must not do: each is found out by the simulation, or the simulation shows nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.spark.sink import fenced, keyed
from headrace.spark.sink.fenced import FencedPublisher, Tally
from headrace.spark.sink.markers import MarkerStore, next_plan
from headrace.spark.sink.versions import Verdict, judge

__all__ = ["KEYED_SABOTAGES", "SABOTAGES"]

Breaks = Callable[[pytest.MonkeyPatch], None]


def _no_fence_of_markers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MarkerStore, "marker_lines", lambda store, expected: b"")


def _nobody_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FencedPublisher, "_wait_for_others", lambda publisher: None)


def _nothing_is_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tally, "expect", lambda tally, marker: None)


def _a_later_run_is_not_minded(patch: pytest.MonkeyPatch) -> None:
    """A zombie takes the plan back."""
    really = next_plan

    def stubborn(found: Any, newest: Any, batch: int, mine: Any, sink: str) -> Any:
        mine = mine._replace(made_ns=mine.made_ns + 1_000_000)
        found = found and found._replace(batch=min(found.batch, batch))
        return really(found, None, batch, mine, sink)

    patch.setattr(fenced, "next_plan", stubborn)


def _no_comparison_of_what_is_stored(patch: pytest.MonkeyPatch) -> None:
    """A value is stored over whatever is there."""
    patch.setattr(keyed, "judge", lambda stored, mine, *, exactly: Verdict.STORE)


def _versions_of_runs_are_not_minded(patch: pytest.MonkeyPatch) -> None:
    """A batch or a run that was given up stores its rows."""
    really = judge

    def careless(stored: Any, mine: Any, *, exactly: bool) -> Any:
        alike = stored and stored._replace(batch=mine.batch, plan=mine.plan)
        verdict = really(alike, mine, exactly=exactly)
        return Verdict.STORE if stored and stored.batch != mine.batch else verdict

    patch.setattr(keyed, "judge", careless)


def _nothing_is_expected(patch: pytest.MonkeyPatch) -> None:
    """A value is stored though another one has come since the comparison."""
    patch.setattr(keyed, "_EXPECTED", b"X-Expected")


# Each with a seed that showed it when somebody looked last.
KEYED_SABOTAGES: dict[str, tuple[Breaks, int]] = {
    "no comparison": (_no_comparison_of_what_is_stored, 4),
    "runs are not minded": (_versions_of_runs_are_not_minded, 4),
    "nothing is expected": (_nothing_is_expected, 48),
}

SABOTAGES: dict[str, tuple[Breaks, dict[str, Any], int]] = {
    "no fence of markers": (_no_fence_of_markers, {}, 15),
    "nobody waits": (_nobody_waits, {"recut": 0.9, "faults": 12, "slots": 6}, 111),
    "nothing is compared": (_nothing_is_compared, {}, 5),
    "a later run is not minded": (_a_later_run_is_not_minded, {"faults": 14, "recut": 0.0}, 20),
}
