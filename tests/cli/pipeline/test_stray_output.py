from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.pipeline.stray_output import apart

Run = Callable[..., Any]

PROGRAM = """
import os, subprocess, sys
from pathlib import Path
from headrace.cli.pipeline.stray_output import apart

print("before")
with apart(Path(sys.argv[1]), errors=sys.argv[2] == "both") as shown:
    print("a sink prints")
    print("an error of a sink", file=sys.stderr)
    subprocess.run([sys.executable, "-c", "print('a worker prints')"], check=True)
    os.write(1, b"Java prints\\n")
    print("shown", file=shown)
print("after")
"""


@pytest.mark.parametrize("errors", ["both", "out"])
def test_only_what_is_to_be_shown_reaches_standard_output(tmp_path: Path, errors: str) -> None:
    log = tmp_path / "folder" / "spark.log"
    command = [sys.executable, "-c", PROGRAM, str(log), errors]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "before\nshown\nafter\n"
    assert done.stderr == ("" if errors == "both" else "an error of a sink\n")
    said = log.read_text()
    for line in ("a sink prints", "a worker prints", "Java prints"):
        assert f"{line}\n" in said
    assert ("an error of a sink" in said) == (errors == "both")


def test_what_python_prints_is_kept_apart_where_standard_output_is_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "spark.log"
    before = sys.stdout, sys.stderr
    with pytest.raises(ValueError, match="boom"), apart(log, errors=True) as shown:
        print("printed")
        print("shown", file=shown)
        raise ValueError("boom")
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr() == ("shown\n", "")
    assert log.read_text() == "printed\n"


FILE = """
[pipeline]
name = "printing"
checkpoint = "checkpoint"
fast_local_checkpoint = true
[sources.rows]
format = "json"
schema = "n BIGINT"
options = { path = "rows" }
[sinks.printing]
from = "rows"
python = "sinks.py:printing"
[sinks.failing]
from = "rows"
python = "sinks.py:failing"
"""
SINKS = """
import subprocess

def printing(rows, number):
    print("printed by a sink", rows.count())
    subprocess.run(["echo", "printed by a program"], check=True)

def failing(rows, number):
    raise ValueError("boom")
"""


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_every_line_of_a_run_is_an_event_and_its_end_is_in_the_status(
    tmp_path: Path, headrace: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "1.json").write_text('{"n": 1}\n{"n": 2}\n')
    (tmp_path / "printing.toml").write_text(
        FILE.replace("[sources", 'on_failure = "continue"\n[sources', 1)
    )
    (tmp_path / "sinks.py").write_text(SINKS)
    once = [sys.executable, "-m", "headrace", "pipeline", "once", "printing.toml", "--json"]
    done = subprocess.run(once, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ended = {each["query"]: each for each in events if each["event"] == "ended"}
    assert {name: each["state"] for name, each in ended.items()} == {
        "printing": "done", "failing": "failed"
    }  # fmt: skip
    log = (tmp_path / "checkpoint" / "printing" / "spark.log").read_text()
    assert "printed by a sink 2\n" in log
    assert "printed by a program\n" in log
    time = r"(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.search(rf"{time} ERROR \[query failing\] \w+: Query failing ", log)
    assert re.search(rf"{time} PRINT ", log)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    printing, failing = headrace("pipeline", "status", "printing.toml", "--json").told
    assert (printing["state"], printing["rows_out"], printing["error"]) == ("done", 2, None)
    assert (failing["state"], failing["failures"]) == ("failed", 1)
    assert failing["error"] == ended["failing"]["problem"]
    assert "boom" in failing["error"]
    table = headrace("pipeline", "status", "printing.toml")
    assert table.status == 0
    assert "(+1 unfinished)" in table.out
    assert "under way" not in table.out
