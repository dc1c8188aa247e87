"""Each extra alone: a command runs, or says what to install so that it does; nobody sees a traceback."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cli.without_extras import packages_of
from headrace.cli.commands import COMMANDS, what_to_install

NOWHERE = ["--server", "nats://127.0.0.1:1", "--timeout", "100ms"]
FIRST_STEPS = [
    ["stream", "ls", *NOWHERE],
    ["pub", "a", "b", *NOWHERE],
    ["console", *NOWHERE],
    ["pipeline", "once", "missing.toml"],
    ["pipeline", "validate", "missing.toml"],
    ["demo", "--limit", "0"],
    ["jobs", "run"],
    ["jobs", "serve", "--config", "missing.toml"],
    ["jobs", "status", "--url", "http://127.0.0.1:1"],
    ["serve", "--version"],
    ["auth", "operator", "create", "ACME", "--dir", "auth"],
    ["--help"],
]
LINES = [[name, "--help"] for name in COMMANDS] + FIRST_STEPS
pytestmark = pytest.mark.timeout(900)  # one test plays the commands with several extras

PATH_OF_TESTS = str(Path(__file__).parent.parent)


@functools.cache
def modules() -> Mapping[str, Sequence[str]]:
    """The distributions that have a module."""
    return importlib.metadata.packages_distributions()


@functools.cache
def played(extras: str) -> dict[str, tuple[int, str]]:
    """What every line does with these extras, in one process: status and standard error."""
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [sys.executable, "-m", "cli.without_extras", extras],
            input=json.dumps({"lines": LINES, "modules": modules()}),
            capture_output=True,
            text=True,
            cwd=place,
            env={"PYTHONPATH": PATH_OF_TESTS, "PATH": "/usr/bin:/bin", "HOME": place},
            timeout=300,
            check=True,
        )
    return {
        " ".join(each["arguments"]): (each["status"], each["err"])
        for each in json.loads(done.stdout)
    }


@pytest.mark.parametrize("extras", ["", "cli", "server,cli", "spark", "jobs", "console", "demo"])
def test_a_command_runs_or_says_what_to_install(extras: str) -> None:
    there = packages_of(extras.split(","))
    for line, (status, told) in played(extras).items():
        assert "Traceback" not in told, (line, told)
        assert status in (0, 1, 2, 3, 4), (line, told)
        advised = re.search(r"'headrace\[([\w,-]+)\]'", told)
        if advised is not None:
            assert not packages_of(advised[1].split(",")) <= there, line
            # What is advised is enough for this command, not only for its first import.
            assert "needs" not in played(advised[1])[line][1], line
        elif line.endswith("--help"):
            assert (status, told) == (0, ""), line


@pytest.mark.parametrize(
    ("extras", "commands"),
    [
        ("server,cli", set(COMMANDS) - {"console", "demo", "jobs"}),
        ("console", {"console", "stream", "group"}),
        ("spark,cli", {"pipeline"}),
        ("jobs,cli", {"jobs"}),
        ("demo", {"demo", "pipeline"}),
    ],
)
def test_what_the_readme_installs_runs_with_it(extras: str, commands: set[str]) -> None:
    for name in commands:
        assert played(extras)[f"{name} --help"] == (0, "")


def test_a_package_that_is_not_ours_to_name_is_a_mistake_in_the_program() -> None:
    assert what_to_install("stream", "headrace.nonsense") == ""
    assert what_to_install("pipeline", "my_module") == ""
    assert "headrace[jobs,cli]" in what_to_install("jobs", "starlette.routing")
    assert "headrace[nkeys]" in what_to_install("pub", "cryptography.hazmat")
    assert "headrace[nkeys,cli]" in what_to_install("auth", "cryptography.hazmat")
    assert "headrace[console]" in what_to_install("console", "click")
