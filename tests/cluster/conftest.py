"""One cluster for all tests of this room: it is hurt, and is whole again before the next test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nats_cluster import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started
