"""The demo's directory: its layout, its ownership, and whether its parts match."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.demo.errors import DemoError
from headrace.demo.results import Workspace


def test_a_new_directory_is_made_and_found_again(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "a" / "b")
    space.open(reset=False)
    (space.directory / "broker").mkdir()
    space.open(reset=False)
    assert space.broker.exists()


def test_somebody_else_s_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    for reset in (False, True):
        with pytest.raises(DemoError, match="not the demo's"):
            Workspace(tmp_path).open(reset=reset)
    assert (tmp_path / "state").exists()
    (tmp_path / "file").touch()
    with pytest.raises(DemoError, match="is a file"):
        Workspace(tmp_path / "file").open(reset=False)


def test_reset_removes_the_demo_s_own_things_and_no_others(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "demo")
    space.open(reset=False)
    for name in ("broker", "checkpoint", "legs", "state"):
        (space.directory / name / "inside").mkdir(parents=True)
    (space.directory / "notes.txt").touch()
    space.picture.touch()
    space.open(reset=True)
    assert sorted(p.name for p in space.directory.iterdir()) == [".headrace-demo", "notes.txt"]


def test_results_whose_checkpoint_is_gone_are_not_counted_twice(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "demo")
    space.open(reset=False)
    space.prepare_results()
    (space.results.legs / "batch=00000").mkdir()
    space.checkpoint.mkdir()
    space.prepare_results()
    assert (space.results.legs / "batch=00000").exists()
    space.checkpoint.rmdir()
    space.prepare_results()
    assert not (space.results.legs / "batch=00000").exists()


def test_a_batch_that_runs_again_has_the_tasks_of_the_run_that_began(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "demo")
    space.open(reset=False)
    assert [space.tasks(wanted) for wanted in (2, 4)] == [2, 4], "nothing has begun"
    space.checkpoint.mkdir()
    assert [space.tasks(wanted) for wanted in (2, 8)] == [4, 4]
    space.open(reset=True)
    assert space.tasks(8) == 8
