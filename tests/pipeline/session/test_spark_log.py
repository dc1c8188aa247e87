from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from headrace import files
from headrace.pipeline.session import spark_log as pump_module
from headrace.pipeline.session.spark_log import Pump, opened
from waiting import until_here

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_what_this_process_and_others_print_is_in_the_file(tmp_path: Path) -> None:
    log = tmp_path / "folder" / "spark.log"
    with Pump(log) as pump:
        os.write(pump.fileno(), b"one\n")
        until_here(lambda: log.exists() and b"one" in log.read_bytes(), "it is not written")
        descriptor = opened(log)
        command = [sys.executable, "-c", "print('two')"]
        subprocess.run(command, check=True, stdout=descriptor)
        os.close(descriptor)
        os.write(pump.fileno(), b"three, without an end")
    said = log.read_text()
    assert [word in said for word in ("one\n", "two\n", "three, without an end\n")] == [True] * 3
    assert " PRINT one\n" in said
    descriptor = opened(log)
    os.write(descriptor, b"later\n")
    os.close(descriptor)
    assert log.read_text() == said + "later\n"


def test_the_files_stay_small_and_few(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with Pump(log, bytes_max=10_000, kept=2) as pump:
        for number in range(3_000):
            os.write(pump.fileno(), b"2026-11-26T22:01:06Z ERROR line %d\n" % number)
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["spark.log", "spark.log.1", "spark.log.2"]
    # What comes at once is written at once, and is 64 KiB at most.
    assert all(each.stat().st_size <= 10_000 + 64 * 1024 for each in tmp_path.iterdir())
    assert "line 2999" in log.read_text()


def test_a_disk_that_takes_nothing_holds_nobody_up_and_that_is_said_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "spark.log"
    plain, is_full = files.opened, True

    def refusing(path: Path, *given: Any) -> Any:
        if is_full:
            raise OSError(28, "No space left on device")
        return plain(path, *given)

    with Pump(log) as pump:
        monkeypatch.setattr(pump_module, "open_file", refusing)
        for number in range(5_000):  # more than a pipe holds
            os.write(pump.fileno(), b"2026-11-26T22:01:06Z ERROR it is lost %d\n" % number)
        until_here(lambda: pump._lost > 200_000, "it is not counted")
        is_full = False
        os.write(pump.fileno(), b"2026-11-26T22:01:06Z ERROR it is there\n")
    monkeypatch.undo()
    assert "bytes could not be written here" in log.read_text()
    assert "it is there" in log.read_text()
