"""Results that were moved, and what a batch that was killed has left among them."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from headrace.cli import main
from headrace.errors import ConfigurationError
from headrace.files import write_whole
from headrace.pipeline.checkpoints.checkpoint import checkpoint_of
from headrace.pipeline.checkpoints.results_folder import SPARK_LOG, SinkLog, bind, tidy
from headrace.pipeline.declaring.reading import read

from ..conftest import ORDERS


@pytest.fixture
def url(either_url: str) -> str:
    return either_url


class Results:
    """A folder as Spark's file sink fills it."""

    def __init__(self, place: Path, *, partition: str = "") -> None:
        self.place = place
        self.partition = partition
        self.log = SinkLog(place, 1 if partition else 0)

    def file(self, text: str = "rows") -> Path:
        """A file of a task, which need not be in the log."""
        made = self.place / self.partition / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text)
        made.with_name(f".{made.name}.crc").write_text("sum")
        return made

    def batch(self, number: int, *files: Path, is_sum: bool = False) -> Path:
        """A finished batch, or the sum over all to it."""
        folder = self.place / SPARK_LOG
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"path": f"file://{quote(str(each))}", "size": 4, "action": "add"})
            for each in files
        ]
        note = folder / (f"{number}.compact" if is_sum else str(number))
        note.write_text("\n".join(["v1", *lines]))
        note.with_name(f".{note.name}.crc").write_text("sum")
        return note

    def named(self) -> set[Path]:
        """All files that Spark's readers would find."""
        known = self.log._known()
        assert known is not None
        return known

    def files(self) -> set[Path]:
        return set(self.place.rglob("part-*"))


@pytest.mark.parametrize("name", ["out", "a b %20 é"])
@pytest.mark.parametrize("partition", ["", "day=2026-01-01 10%3A00"])
def test_a_folder_that_was_moved_is_noticed_and_its_files_are_taken_where_they_lie(
    tmp_path: Path, name: str, partition: str
) -> None:
    old = Results(tmp_path / name, partition=partition)
    old.batch(0, old.file(), old.file())
    old.batch(1, is_sum=True, *old.named())  # noqa: B026
    old.batch(2, old.file())
    old.batch(3)  # a batch without rows
    assert old.log.root() is None
    assert old.log.relocate() == 0
    new = Results(tmp_path / "elsewhere" / name, partition=partition)
    shutil.copytree(old.place, new.place)
    assert new.log.root() == old.place
    assert new.log.remove_leftovers() == [], "of a log that has other files nothing is known"
    assert new.log.relocate() == 5, "two of them are in a batch and in the sum"
    assert new.log.root() is None
    assert new.named() == new.files()
    assert len(new.named()) == 3
    sums = {each.name for each in (new.place / SPARK_LOG).glob(".*.crc")}
    assert sums == set(), "Hadoop would compare them with what was there before"
    assert old.named() == old.files(), "a copy leaves what it is of"


def test_one_that_is_reached_by_another_path_was_not_moved(tmp_path: Path) -> None:
    old = Results(tmp_path / "out")
    old.batch(0, old.file())
    (tmp_path / "link").symlink_to(tmp_path / "out")
    assert SinkLog(tmp_path / "link", 0).root() is None
    assert SinkLog(tmp_path / "x" / ".." / "out", 0).root() is None


def test_a_move_into_itself_and_one_that_was_broken_off_come_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Results(tmp_path / "out")
    for number in range(3):
        old.batch(number, old.file())
    shutil.copytree(old.place, tmp_path / "kept")
    shutil.rmtree(old.place)
    new = Results(tmp_path / "out" / "inside")
    shutil.copytree(tmp_path / "kept", new.place)
    really, calls = write_whole, 0

    def fails_then_works(file: Path, text: str, access: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("disk is full")
        really(file, text, access)

    monkeypatch.setattr(
        "headrace.pipeline.checkpoints.results_folder.write_whole", fails_then_works
    )
    with pytest.raises(OSError, match="disk is full"):
        new.log.relocate()
    assert new.log.root() == old.place
    assert new.log.relocate() == 2
    assert new.named() == new.files()


@pytest.mark.parametrize("partition", ["", "day=1"])
@pytest.mark.parametrize("has_sum", [True, False])
def test_what_a_killed_batch_has_left_is_removed_and_nothing_else(
    tmp_path: Path, partition: str, has_sum: bool
) -> None:
    results = Results(tmp_path / "out", partition=partition)
    foreign = results.file()
    os.utime(foreign, (1, 1))  # from before the newest batch
    results.batch(0, results.file())
    if has_sum:
        results.batch(1, is_sum=True, *results.named())  # noqa: B026
    else:
        results.batch(1, results.file())
    named = results.named()
    mine = results.place / partition / "part-of-mine.parquet"
    mine.write_text("rows")
    left = results.file(), results.file()
    assert set(results.log.remove_leftovers()) == set(left)
    assert results.files() == {*named, foreign, mine}
    assert not any(each.with_name(f".{each.name}.crc").exists() for each in left)
    assert results.log.remove_leftovers() == []


def test_of_the_first_batch_all_is_removed_and_of_a_log_with_a_hole_nothing(tmp_path: Path) -> None:
    results = Results(tmp_path / "out")
    results.file()
    assert len(results.log.remove_leftovers()) == 1
    for number in range(3):
        note = results.batch(number, results.file())
        if number == 1:
            hole = note
    hole.unlink()
    before = results.files()
    results.file()
    assert results.log.remove_leftovers() == []
    assert results.files() > before


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    results = Results(tmp_path / "out")
    note = results.batch(0, results.file())
    for line in ("{", "[]", '{"size":3}'):
        note.write_text(f"v1\n{line}")
        for look in (results.log.root, results.log.relocate, results.log.remove_leftovers):
            with pytest.raises(ConfigurationError, match=f"{note} is damaged"):
                look()


def test_a_pipeline_that_was_moved_is_refused_with_the_command_that_leads_on(
    write: Callable[..., Path],
    url: str,
    stream: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = write(ORDERS.replace('"ORDERS"', f'"{stream}", servers = "{url}"'))
    declared = read(file)
    sink = declared.sinks["out"]
    results = Results(file.parent / "out")
    bind(declared, sink, checkpoint_of(declared, "out").current(), str(results.place))
    folder = Path(checkpoint_of(declared, "out").current().path)
    for number in range(2):
        for kind in ("offsets", "commits"):
            (folder / kind).mkdir(exist_ok=True)
            (folder / kind / str(number)).write_text("v1\n{}")
        results.batch(number, results.file())
    assert main(["pipeline", "validate", "--no-server", str(file)]) == 0
    assert main(["pipeline", "relocate", str(file)]) == 0
    assert "out: nothing was moved" in capsys.readouterr().out
    there = tmp_path.with_name(f"{tmp_path.name}-there")
    shutil.move(file.parent, there)
    moved = there / file.name
    assert main(["pipeline", "validate", "--no-server", str(moved)]) != 0
    said = capsys.readouterr().err
    assert f"{there / 'out'} was moved, copied or mounted elsewhere" in said
    assert f"headrace pipeline relocate {moved} --query out" in said
    assert main(["pipeline", "relocate", str(moved), "--query", "out"]) == 0
    assert f"out: 2 files taken from {there / 'out'}" in capsys.readouterr().out
    assert main(["pipeline", "validate", "--no-server", str(moved)]) == 0
    left = Results(there / "out").file()
    tidy(read(moved).sinks["out"], str(there / "out"))
    assert not left.exists()
    shutil.rmtree(there / "checkpoint")
    assert main(["pipeline", "relocate", str(moved)]) != 0
    assert "whose checkpoint is not in" in capsys.readouterr().err
