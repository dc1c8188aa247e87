from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import until_here

TESTS = Path(__file__).resolve().parents[1]
SUITE = """
import subprocess, sys
from children import end_with_us

sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
child = subprocess.Popen(sleeper, start_new_session=True, preexec_fn=end_with_us)
print(child.pid, flush=True)
child.wait()
"""


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="the system ends them on Linux only")
def test_what_leads_a_session_of_its_own_ends_with_tests_that_are_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SUITE],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    ) as suite:
        assert suite.stdout is not None
        child = int(suite.stdout.readline())
        assert is_there(child)
        suite.send_signal(signal.SIGKILL)
        suite.wait()
    until_here(lambda: not is_there(child), "it outlives them")
