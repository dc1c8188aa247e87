"""Connections that tasks keep end with each test, as they would with the worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.spark.links.pool import POOL


@pytest.fixture(autouse=True)
def no_idle_links() -> Iterator[None]:
    yield
    POOL.close()
