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


HEARS = """
import signal, subprocess, sys
from children import hear_ctrl_c

signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a script does to what it starts in its background
hear_ctrl_c()
waits = "import signal; print(flush=True); signal.pause()"
child = subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
child.stdout.readline()
child.send_signal(signal.SIGINT)
print(child.wait())
"""


def test_what_is_started_hears_ctrl_c_though_the_suite_was_told_to_ignore_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEARS],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert done.stdout == f"{-signal.SIGINT}\n"
