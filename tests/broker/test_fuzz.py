"""A running broker under fire for a moment, while a neighbour is served: see ``make fuzz-broker``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from portions import portion

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"
SECONDS = float(portion(2, 1))
SEED = 7

sys.path.insert(0, str(FUZZ))
service: Any = importlib.import_module("broker_service")
sys.path.remove(str(FUZZ))


async def test_what_strangers_send_ends_nothing_and_a_neighbour_is_served() -> None:
    fuzzed = service.Fuzzed(SEED)
    await fuzzed.run(SECONDS)
    assert fuzzed.connections > 5
    assert fuzzed.refusals > 0
    assert fuzzed.served > 0
