"""One cluster for all tests of this room: hurt, and whole again or replaced before the next test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nats_cluster import Cluster, Clusters


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    with Clusters(tmp_path_factory.mktemp("clusters")) as those:
        yield those


@pytest.fixture
def cluster(clusters: Clusters) -> Cluster:
    return clusters.whole()
