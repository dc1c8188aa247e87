"""Every scenario, over sockets, against nats-server and against ours: the transcripts must be equal.

What differs on purpose stands in ``docs/compatibility.md``, with its reason; a scenario listed there
must really differ, so that the list shrinks when the difference does.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import pytest

from conformance.listing import accepted_differences
from conformance.pool import Pool
from conformance.scenarios.everything import ALL
from conformance.table import Scenario


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    servers = Pool(tmp_path_factory.mktemp("conformance"))
    yield servers
    servers.close()


@pytest.mark.peer
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_both_servers_say_the_same(scenario: Scenario, pool: Pool) -> None:
    expected = pool.run("nats-server", scenario)
    actual = pool.run("headrace", scenario)
    difference = list(
        difflib.unified_diff(expected, actual, "nats-server", "headrace", n=4, lineterm="")
    )
    reason = accepted_differences().get(scenario.name)
    if reason is None:
        assert not difference, "\n" + "\n".join(difference)
    else:
        assert difference, f"no difference any more: take it off the list ({reason})"


def test_only_real_scenarios_are_listed_as_different() -> None:
    names = {scenario.name for scenario in ALL}
    assert set(accepted_differences()) <= names
