"""`bench/jobs_soak.py`, small: jobs come, are done and removed; none is lost or done twice, nothing grows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from postgres_server import require_postgres

SOAK = Path(__file__).parents[2] / "bench" / "jobs_soak.py"
JOBS = 20_000
SMALL = [
    "--ahead",
    "1000",
    "--keep-s",
    "0.1",
    "--prune-s",
    "0.2",
    "--vacuum-s",
    "1",
    "--every-s",
    "0.1",
]


def test_twenty_thousand_jobs_are_each_done_once_and_removed_in_tables_of_one_size() -> None:
    """In the last third of a run tables are a quarter larger than in the middle third, at most."""
    require_postgres()
    done = subprocess.run(
        [sys.executable, str(SOAK), "--jobs", str(JOBS), *SMALL],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    *samples, result = map(json.loads, done.stdout.splitlines())
    assert (result["jobs"], result["lost"], result["twice"]) == (JOBS, 0, 0), result
    assert result["left"] == {"messages": 0, "jobs": 0}, result
    assert result["grown"]["database_mib"] <= 1.25, samples
    assert done.returncode == 0, result
