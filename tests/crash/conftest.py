"""Here a test's folder lies on a disk: the room says what becomes of files there."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(on_disk: Path) -> Path:
    return on_disk
