"""Prometheus' own checker, where it is: on PATH, as the Debian package prometheus installs it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

__all__ = ["check"]


def check(what: str, *arguments: str, page: str = "") -> None:
    """Run ``promtool check WHAT``; ``page`` is its standard input. Skips the test where there is none."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not here; Debian's package prometheus has it")
    done = subprocess.run(
        [found, "check", what, *arguments], input=page, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
