"""Everything here is played twice: by clients as libraries connect, and by ones that ask for every check.

What the first kind says goes ways of its own (publishes and acknowledgements in batches); it has to come to
the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jetstream_world import World


@pytest.fixture(scope="module", autouse=True, params=["relaxed", "pedantic"])
def _manner(request: pytest.FixtureRequest) -> Iterator[None]:
    before, World.pedantic = World.pedantic, request.param == "pedantic"
    yield
    World.pedantic = before
