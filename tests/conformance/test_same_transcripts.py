"""Every scenario, over sockets, against nats-server and against ours: the transcripts must be equal.

What differs on purpose stands in ``docs/compatibility.md``, with its reason; a scenario listed there
must really differ, so that the list shrinks when the difference does.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from conformance.listing import accepted_differences
from conformance.pool import Pool
from conformance.scenarios.everything import ALL
from conformance.table import Scenario

ATTEMPTS = 3
DIFFERENCES = accepted_differences([scenario.name for scenario in ALL])


@pytest.fixture(scope="module")
def pool(request: pytest.FixtureRequest, quick_path_of_module: Path) -> Iterator[Pool]:
    """Plays ahead what this run of pytest will ask for."""
    servers = Pool(quick_path_of_module)
    servers.play_ahead(_asked_for(request.session.items))
    yield servers
    servers.close()


def _asked_for(items: Iterable[pytest.Item]) -> Iterator[Scenario]:
    for item in items:
        if isinstance(item, pytest.Function) and item.function is test_both_servers_say_the_same:
            scenario = item.callspec.params["scenario"]
            assert isinstance(scenario, Scenario)
            yield scenario


@pytest.mark.peer
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_both_servers_say_the_same(scenario: Scenario, pool: Pool) -> None:
    reason = DIFFERENCES.get(scenario.name)
    ours: list[list[str]] = []
    # nats-server answers some calls on threads of its own, so that now and then two replies swap, or
    # a stream made anew starts late. It may hesitate between attempts; ours must not, but for once where
    # a busy machine lets a time of some milliseconds pass.
    for _ in range(ATTEMPTS):
        expected, transcript = pool.run_both(scenario)
        ours.append(transcript)
        others = [each for each in ours if each != ours[-1]]
        assert len(others) <= 1, "\n" + "\n".join(_difference(others[0], ours[-1]))
        if (ours[-1] == expected) is (reason is None):
            break  # also a difference of times shows only now and then
    difference = _difference(expected, ours[-1])
    if reason is None:
        assert not difference, "\n" + "\n".join(difference)
    else:
        assert difference, f"no difference any more: take it off the list ({reason})"


def _difference(expected: list[str], actual: list[str]) -> list[str]:
    return list(difflib.unified_diff(expected, actual, "nats-server", "headrace", n=4, lineterm=""))


def test_some_scenarios_are_listed_as_different_and_most_are_not() -> None:
    assert 50 < len(DIFFERENCES) < len(ALL) / 4
