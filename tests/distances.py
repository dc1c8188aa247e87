"""How far a server is in a test: beside it, and behind a link on which every answer takes a while."""

from __future__ import annotations

from typing import Final

import pytest

__all__ = ["FAR_S", "NEAR_AND_FAR"]

FAR_S: Final = 0.04

NEAR_AND_FAR: Final = pytest.mark.parametrize(
    "round_trip_s", [0.0, FAR_S], indirect=True, ids=["near", "far"]
)
"""For tests of what members tell each other by way of the server: in between, much goes on there."""
