"""What a start of the broker does not do, because it takes its time."""

from __future__ import annotations

import subprocess
import sys

IMPORTING = """
import gc, sys
import headrace.cli
collected = []
gc.callbacks.append(lambda phase, info: collected.append(phase))
headrace.cli._imported(".serve")
later = [name for name in ("ctypes", "headrace.broker.core.net.inprocess") if name in sys.modules]
print(len(collected), gc.isenabled(), gc.get_freeze_count() > 0, later)
gc.collect()
print(len(collected) > 0)
"""


def test_nothing_is_collected_while_what_stays_is_imported() -> None:
    said = subprocess.run(
        [sys.executable, "-c", IMPORTING], check=True, capture_output=True, text=True
    ).stdout
    assert said.splitlines() == ["0 True True []", "True"]
