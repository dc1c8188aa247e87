"""The tests' session of Spark has its readers of streams forked off a process that has all imported."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .sitecustomize import PLACE

__all__ = ["FOLDER", "PLACE", "serving"]

FOLDER = str(Path(__file__).parent)


@contextmanager
def serving(environment: Mapping[str, str]) -> Iterator[str]:
    """The place of a process that forks them; it has this environment."""
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:  # a socket's path is short
        place = f"{folder}/prefork"
        server = subprocess.Popen(
            [sys.executable, f"{FOLDER}/server.py", place],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        with server:
            assert server.stdout.readline() == b"ready\n"
            yield place
            server.stdin.close()
