"""What the tests of members share."""

from __future__ import annotations

import pytest

from headrace.client import JetStream
from member_world import World


@pytest.fixture
def world(js: JetStream) -> World:
    return World(js)
