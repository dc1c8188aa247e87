"""The collector's settings: a pass over what has grown does not stop everybody for long."""

from __future__ import annotations

import gc
import subprocess
import sys

PROGRAM = """
import gc
from headrace.cli.shared.collector import tune_collector

tune_collector()
passes = []
gc.callbacks.append(lambda phase, info: passes.append((phase, info["generation"])))
kept = [[] for _ in range(100_000)]
print(gc.get_freeze_count() > 0, gc.get_threshold(), {at for phase, at in passes if phase == "start"})
"""


def test_many_objects_that_stay_are_passed_over_in_small_passes_and_never_all_at_once() -> None:
    before = gc.get_threshold()
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "True (2000, 2, 125000) {0, 1}\n"
    assert gc.get_threshold() == before
