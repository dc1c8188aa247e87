"""Files as a whole, and private (`headrace.files`)."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import guides
from headrace.files import SHARED, opened, write_whole, writing


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("access", "mode"), [(0o600, 0o600), (SHARED, 0o644)])
def test_a_file_is_there_whole_and_as_private_as_asked(
    tmp_path: Path, access: int, mode: int
) -> None:
    path = tmp_path / "a"
    write_whole(path, "é", access)
    write_whole(path, b"\xff", access)
    assert path.read_bytes() == b"\xff"
    assert mode_of(path) == mode
    assert os.listdir(tmp_path) == ["a"]


def test_a_private_file_takes_the_place_of_one_that_others_could_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    write_whole(path, b"new")
    assert mode_of(path) == 0o600


def test_what_fails_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), writing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_call_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fails(*_: object) -> None:
        raise OSError(28, "no room")

    monkeypatch.setattr(os if call == "fsync" else Path, call, fails)
    with pytest.raises(OSError, match="no room"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_what_an_interrupted_writer_of_the_same_number_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / f".a.{os.getpid()}.part").write_bytes(b"left")
    write_whole(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == ["a"]


def test_what_is_appended_to_is_private_when_it_is_made(tmp_path: Path) -> None:
    for text in ("a", "b"):
        with opened(tmp_path / "log", "a") as file:
            file.write(text)
    assert (tmp_path / "log").read_text() == "ab"
    assert mode_of(tmp_path / "log") == 0o600


def test_nobody_else_writes_and_renames() -> None:
    """The store has files of its own kind; the demo writes results of Spark and pictures."""
    own = re.compile(r"fsync\(|\b(unfinished|partial)\.re(place|name)\(")
    allowed = ("files.py", "broker/store/", "demo/")
    source = guides.ROOT / "src" / "headrace"
    found = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if own.search(path.read_text())
    ]
    assert [each for each in found if not each.startswith(allowed)] == []
