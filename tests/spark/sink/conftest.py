"""Connections that tasks keep end with each test, as they would with the worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.spark.sink.links import close_idle


@pytest.fixture(autouse=True)
def no_idle_links() -> Iterator[None]:
    yield
    close_idle()
