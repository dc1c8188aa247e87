from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipeline.status.notes import (
    Notes,
    Process,
    QueryNotes,
    birth_of,
    read,
    this_process,
    write,
)

HERE = Process("here", 1)


def test_notes_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "orders" / "runner.json"
    notes = Notes(this_process(), 5.0, 6.0, token=3).with_query(
        "out", state="failed", since=5.5, error="f:3: boom", error_at=5.5, failures=2, behind=None
    )
    write(file, notes)
    assert read(file) == notes
    assert read(file.with_name("none.json")) is None


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", "{}", '{"process": 1, "queries": {}}', '{"process": {"x": 1}}']
)
def test_notes_that_are_not_understood_are_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "runner.json"
    file.write_text(text)
    assert read(file) is None


def test_a_process_is_told_by_its_number_and_its_birth() -> None:
    us = this_process()
    assert us.life(us) == "alive"
    if us.born:
        assert Process(us.host, us.number, "0").life(us) == "dead", "its number is another's now"
    assert Process("elsewhere", us.number).life(us) == "unknown"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    gone = Process(us.host, child.pid, birth_of(child.pid))
    assert gone.life(us) == "alive"
    child.communicate()
    assert gone.life(us) == "dead"
    assert Process(us.host, os.getppid()).life(us) == "alive", "where births are not told"


def test_a_runner_that_said_its_last_word_has_ended_wherever_it_was() -> None:
    elsewhere = Process("elsewhere", 1)
    assert Notes(elsewhere, 1.0).life(HERE) == "unknown"
    assert Notes(elsewhere, 1.0, ended=2.0).life(HERE) == "ended"
    assert Notes(elsewhere, 1.0).of("out") == QueryNotes()
