"""Processes that share the tests import each file in one of them, and again only where its tests are run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from shared_collection import OnDemand, Postponed, share_of_file

TESTS = Path(__file__).parents[1]
OF = 3
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


def shared_run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest by three processes in a folder with the plugin."""
    (folder / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", str(OF), "--dist", "loadfile"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_all_tests_are_run_and_each_file_is_imported_by_who_finds_and_who_runs_them(
    tmp_path: Path,
) -> None:
    names = [f"test_{letter}" for letter in "abcdefgh"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(FILE)
    assert {share_of_file(f"{name}.py", OF) for name in names} == set(range(OF))
    (tmp_path / "test_none.py").write_text("")
    done = shared_run(tmp_path, "-k", "not left_out")
    assert f"{3 * len(names)} passed" in done.stdout, done.stdout + done.stderr
    told = Counter((tmp_path / "told.txt").read_text().splitlines())
    assert {f"set up {name}" for name in names} <= set(told)
    assert (
        max(told.values()) == 1
    )  # a process imports a file once, whose tests are run in one process
    imports = Counter(line.split()[1] for line in told if line.startswith("import"))
    assert set(imports) == set(names)
    assert max(imports.values()) <= 2


def test_a_file_that_cannot_be_imported_is_told_and_the_others_are_run(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("raise ValueError('broken')")
    (tmp_path / "test_well.py").write_text("def test_well(): ...")
    done = shared_run(tmp_path)
    assert done.returncode, done.stdout
    assert done.stdout.count("E   ValueError: broken") == 1
    assert "1 passed, 1 error" in done.stdout


def test_a_test_that_only_another_process_finds_fails_and_the_others_are_run(
    tmp_path: Path,
) -> None:
    for letter in "abcdefgh":  # at least one is run by a process that did not find it
        text = "import os, pytest\n\n@pytest.mark.parametrize('by', [os.getpid()])\ndef test_it(by): ..."
        (tmp_path / f"test_{letter}.py").write_text(text)
    (tmp_path / "test_well.py").write_text("def test_well(): ...")
    done = shared_run(tmp_path)
    assert done.returncode == 1, done.stdout
    assert "was found by another process, and not by this one" in done.stdout
    assert "INTERNALERROR" not in done.stdout


def test_tests_that_are_asked_for_by_their_names_or_their_last_end_are_found(
    tmp_path: Path,
) -> None:
    for name in ("test_a", "test_b", "test_c"):
        (tmp_path / f"{name}.py").write_text(FILE)
    done = shared_run(tmp_path, "test_a.py::TestKind::test_two", "test_b.py::test_left_out")
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    done = shared_run(tmp_path, "--lf")
    assert "1 failed in" in done.stdout, done.stdout + done.stderr


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
