"""Where the folders of tests lie, and that somebody who says a place is obeyed."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

import memory_disk
from memory_disk import IN_MEMORY, ROOT_OF_FOLDERS, environment


def test_folders_are_made_in_memory_where_there_is_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        os, "statvfs", lambda place: SimpleNamespace(f_flag=0, f_bavail=9, f_frsize=9)
    )
    monkeypatch.setattr(memory_disk, "LEAST_BYTES", 0)
    assert environment({}, str(tmp_path)) == {ROOT_OF_FOLDERS: str(tmp_path)}
    monkeypatch.setattr(memory_disk, "LEAST_BYTES", 1 << 60)
    assert environment({}, str(tmp_path)) == {}
    assert environment({}, str(tmp_path / "none")) == {}


def test_where_no_program_can_be_run_folders_lie_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory_disk, "LEAST_BYTES", 0)
    found = SimpleNamespace(f_flag=os.ST_NOEXEC, f_bavail=9, f_frsize=9)
    monkeypatch.setattr(os, "statvfs", lambda place: found)
    assert environment({}, str(tmp_path)) == {}


def test_a_place_that_somebody_says_is_kept() -> None:
    assert environment({ROOT_OF_FOLDERS: "/elsewhere"}) == {}


def test_a_folder_on_disk_is_not_in_memory(on_disk: Path) -> None:
    assert on_disk.is_dir()
    assert not on_disk.is_relative_to(IN_MEMORY)
