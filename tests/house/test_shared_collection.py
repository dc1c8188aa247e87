"""Processes that share the tests import each file in one of them, and again only where its tests are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from shared_collection import OnDemand, Postponed, SharedCollection, share_of_file

TESTS = Path(__file__).parents[1]
OF = 2
CONFTEST = f"""
import sys

sys.path.insert(0, {str(TESTS)!r})

from shared_collection import SharedCollection


def pytest_configure(config):
    shared = SharedCollection.of_process(config, list)
    if shared is not None:
        config.pluginmanager.register(shared)
"""
FILE = """
import os

import pytest

with open("told.txt", "a") as told:
    told.write(f"import {__name__} {os.getpid()}\\n")


@pytest.fixture(scope="module", autouse=True)
def around():
    with open("told.txt", "a") as told:
        told.write(f"set up {__name__}\\n")


@pytest.mark.parametrize("turn", [2, 1])
def test_one(turn): ...


class TestKind:
    def test_two(self): ...


def test_left_out(): raise AssertionError
"""


CHANGED = """
import pathlib

import pytest

place = pathlib.Path(__file__ + ".seen")
turn = place.exists()
place.touch()


@pytest.mark.parametrize("turn", [turn])
def test_changed(turn): ...
"""
"""Its test has another name when it is imported again."""


def shared_run(folder: Path, *arguments: str) -> str:
    """What a run of pytest says, by two processes in a folder with the plugin. It must have failures."""
    (folder / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", str(OF), "--dist", "loadfile"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_all_tests_are_run_and_each_file_is_imported_by_who_finds_and_who_runs_them(
    tmp_path: Path,
) -> None:
    names = [f"test_{letter}" for letter in "abcdefgh"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(FILE)
    assert {share_of_file(f"{name}.py", OF) for name in names} == set(range(OF))
    (tmp_path / "test_none.py").write_text("")
    (tmp_path / "test_broken.py").write_text("raise ValueError('broken')")
    changed = 16  # so many that hardly ever each is run by the process that found it
    for number in range(changed):
        (tmp_path / f"test_changed_{number}.py").write_text(CHANGED)
    said = shared_run(tmp_path, "-k", "not left_out")
    assert said.count("E   ValueError: broken") == 1  # told once, and the others are run
    found = re.search(r"(\d+) failed, (\d+) passed, 1 error", said)
    assert found is not None, said
    failed, passed = map(int, found.groups())
    assert failed > 0
    assert failed + passed == 3 * len(names) + changed
    assert said.count("was found by another process, and not by this one") >= failed
    told = Counter((tmp_path / "told.txt").read_text().splitlines())
    assert {f"set up {name}" for name in names} <= set(told)
    assert (
        max(told.values()) == 1
    )  # a process imports a file once, whose tests are run in one process
    imports = Counter(line.split()[1] for line in told if line.startswith("import"))
    assert set(imports) == set(names)
    assert max(imports.values()) <= OF


@pytest.mark.parametrize(
    ("given", "is_shared"),
    [
        ({}, True),
        ({"args": ["tests/wire", "tests/test_clock.py"]}, True),
        ({"args": ["tests/wire/test_parser.py::test_a"]}, False),  # by its name
        ({"lf": True}, False),  # by how it ended last
        ({"stepwise": True}, False),
        ({"basetemp": None}, False),  # on another machine
        ({"workerid": None}, False),  # alone
    ],
)
def test_tests_are_found_together_where_files_and_folders_are_asked_for(
    given: dict[str, Any], is_shared: bool
) -> None:
    class Config:
        args = given.get("args", ["tests"])
        option = SimpleNamespace(basetemp=given.get("basetemp", "/tmp/base/popen-gw1"))
        if given.get("workerid", "gw1"):
            workerinput: ClassVar = {"workerid": "gw1", "workercount": 4}

        def getoption(self, name: str, default: bool) -> object:
            return given.get(name, default)

    config: Any = Config()
    assert (SharedCollection.of_process(config, list) is not None) is is_shared


def test_a_file_is_found_once_where_one_of_its_tests_is_looked_at(
    request: pytest.FixtureRequest,
) -> None:
    mine: list[pytest.Item] = [request.node] * 3
    module = request.node.getparent(pytest.Module)
    stands_for = [
        Postponed.from_parent(module, name=name, nodeid=f"test_x.py::{name}") for name in "ab"
    ]
    asked: list[str] = []

    def find(item: Postponed) -> dict[str, pytest.Item]:
        asked.append(item.nodeid)
        return {f"test_x.py::{name}": mine[0] for name in "ab"}

    items = OnDemand([*mine, *stands_for], find)
    assert items[0] is mine[0]
    assert [item.nodeid for item in items][3:] == ["test_x.py::a", "test_x.py::b"]
    assert asked == []
    assert items[4] is mine[0]
    assert list(items) == [mine[0]] * 5
    assert items[3:] == [mine[0]] * 2
    assert asked == ["test_x.py::b"]


def test_what_stands_for_a_test_that_is_not_there_stays_and_fails(
    request: pytest.FixtureRequest,
) -> None:
    module = request.node.getparent(pytest.Module)
    gone = Postponed.from_parent(module, name="gone", nodeid="test_x.py::gone")
    items = OnDemand([gone], lambda _: {})
    assert [items[0], items[0]] == [gone, gone]
    with pytest.raises(RuntimeError, match="gone was found by another process"):
        gone.runtest()
