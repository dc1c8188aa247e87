"""What the README tells people to type works as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    ("page", "mark"), [("README.md", "quickstart"), ("docs/index.md", "landing")]
)
def test_the_first_program_prints_the_message_it_published(
    tmp_path: Path, page: str, mark: str
) -> None:
    text = (ROOT / page).read_text()
    found = re.search(rf"<!-- {mark}: run by the tests -->\n```python\n(.*?)```", text, re.S)
    assert found, f"the program of {page} lost its mark"
    program = tmp_path / "quickstart.py"
    program.write_text(found[1])
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert "orders.1" in done.stdout
    assert "two apples" in done.stdout
    # A busy machine makes turns of the loop long, and -X dev tells of each.
    told = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
    assert not told
    assert (tmp_path / "data").is_dir(), "the quickstart stores on disk"


def test_the_quickstart_is_short() -> None:
    found = re.search(r"quickstart: run by the tests -->\n```python\n(.*?)```", README, re.S)
    assert found
    code = [line for line in found[1].splitlines() if line.strip()]
    assert len(code) <= 16


def test_the_make_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text()))
    named = set(re.findall(r"\bmake ([a-z]+)", README))
    assert named
    assert named <= targets
