"""What is said here is said by clients as libraries connect, and by ones that ask for every check.

What the first kind says goes ways of its own (publishes and acknowledgements in batches); it has to come to
the same. Where those ways are, each test is played in both manners; elsewhere half of the tests in each, and
all in both in ``make test-all``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from jetstream_world import World
from portions import one_way

MANNERS: Final = ("relaxed", "pedantic")
HERE: Final = Path(__file__).parent
WAYS_OF_THEIR_OWN: Final = ("api/test_direct_runs", "api/test_message_runs", "consumer", "publish")
"""Folders and files, or what their names begin with, where the manners take different ways."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    place = metafunc.definition.path.relative_to(HERE).as_posix()
    differ = place.startswith((*WAYS_OF_THEIR_OWN, "test_publish_together"))
    manners = MANNERS if differ else one_way(MANNERS, metafunc.function.__name__)
    metafunc.parametrize("_manner", manners, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def _manner(request: pytest.FixtureRequest) -> Iterator[None]:
    before, World.pedantic = World.pedantic, request.param == "pedantic"
    yield
    World.pedantic = before
