"""Tests of pipelines as their users have them: the command, the files it writes, the fixture."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipeline.scaffold import Draft, expected_of, given_of, text_of

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "pipeline_tests"
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

KINDS = """
[pipeline]
name = "kinds"
checkpoint = "checkpoint"
[sources.words]
options = { stream = "A,B", subjects = "words.>", includeHeaders = true, onBadMessage = "skip" }
[sources.last]
streaming = false
options = { bucket = "last" }
[sources.numbers]
format = "rate"
schema = "value BIGINT"
[views.joined]
sql = '''
SELECT words.stream, words.subject, CAST(words.data AS string) AS word, headers, words.sequence,
       CAST(last.data AS string) AS value FROM words LEFT JOIN last ON CAST(words.data AS string) = last.key
'''
[views.plus]
python = "plus.py:plus"
[[views.plus.expect]]
name = "small"
check = "value < 10"
otherwise = "fail"
[sinks.joined]
from = "joined"
format = "noop"
[sinks.plus]
from = "plus"
python = "plus.py:never"
"""
PLUS = """
def plus(numbers):
    return numbers.selectExpr("value + 1 AS value")


def never(rows, number):
    raise AssertionError("a sink is not called")
"""
TESTS = """
from pathlib import Path

import pytest
from headrace.errors import ConfigurationError
from headrace.pipeline import PipelineError

def test_orders(headrace_pipeline):
    orders = headrace_pipeline("orders.toml")
    orders.check()
    expected = Path("orders.tests/amounts/views/paid.jsonl")
    expected.write_text(expected.read_text().replace('"amount": 3', '"amount": 4'))
    orders.check("returns")
    with pytest.raises(AssertionError, match="1 row missing, 1 row not expected"):
        orders.check("amounts")
    came = orders.rows("paid", {"orders": [{"data": {"user": "eve", "amount": 2}}], "names": []})
    assert came == [{"timestamp": "2026-01-01T00:00:00Z", "user": "eve", "name": None, "amount": 2.0}]
    with pytest.raises(ConfigurationError, match="did you mean 'paid'"):
        orders.rows("payd", {})
    with pytest.raises(ConfigurationError, match="no source 'order'; did you mean 'orders'"):
        orders.rows("paid", {"order": []})

def test_drafts_pass_their_own_tests(headrace_pipeline):
    headrace_pipeline("text.toml").check()
    headrace_pipeline("fields.toml").check()

def test_kinds_of_sources(headrace_pipeline):
    kinds = headrace_pipeline("kinds.toml")
    words = [
        {"subject": "words.1", "data": "a", "headers": {"H": ["x", 1]}, "sequence": 7},
        {"subject": "words.2", "data": "b", "stream": "B"},
        {"subject": "others", "data": "a"},
        {"subject": "words.3", "base64": "Yw=="},
    ]
    last = [{"key": "a", "data": "old"}, {"key": "a", "data": "new"}]
    came = kinds.rows("joined", {"words": words, "last": last})
    assert sorted(came, key=lambda row: row["subject"]) == [
        {"stream": "A", "subject": "words.1", "word": "a", "headers": {"H": ["x", "1"]}, "sequence": 7,
         "value": "new"},
        {"stream": "B", "subject": "words.2", "word": "b", "headers": {}, "sequence": 1, "value": None},
        {"stream": "A", "subject": "words.3", "word": "c", "headers": {}, "sequence": 3, "value": None},
    ]
    assert kinds.rows("plus", {"numbers": [{"value": 1}]}) == [{"value": 2}]
    with pytest.raises(PipelineError, match="fails the expectation 'small'"):
        kinds.rows("plus", {"numbers": [{"value": 9}]})
    for row, said in (
        ({"dta": 1}, "a message has no 'dta'; did you mean 'data'"),
        ({"stream": "C"}, "the source does not read a stream 'C'; it reads A, B"),
        ({"timestamp": "noon"}, "timestamp is 'noon'; accepted: 2026-01-01T00:00:00Z"),
        ({"headers": {"a:b": 1}}, "a:b"),
        ({"base64": "?"}, "base64 is no text in base64"),
        ({"subject": 3}, "a subject is a text"),
    ):
        with pytest.raises(PipelineError, match=said):
            kinds.rows("joined", {"words": [row]})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    for name, fields in (("text", {}), ("fields", {"user": "STRING", "amount": "DOUBLE"})):
        draft = Draft(name, "ORDERS", "nats://127.0.0.1:4222", fields=fields)
        sources = tmp_path / f"{name}.tests" / "first" / "sources" / "orders.jsonl"
        views = tmp_path / f"{name}.tests" / "first" / "views" / "rows.jsonl"
        for file, text in ((sources, given_of(draft)), (views, expected_of(draft))):
            file.parent.mkdir(parents=True)
            file.write_text(text)
        (tmp_path / f"{name}.toml").write_text(text_of(draft))
    (tmp_path / "kinds.toml").write_text(KINDS)
    (tmp_path / "plus.py").write_text(PLUS)
    return tmp_path


def run(folder: Path, *command: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


BOTH = """
import contextlib, io, json, sys
from headrace.cli import main

told = []
for arguments in ([], ["--update", "--json"]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["pipeline", "test", "orders.toml", *arguments])
    told.append([status, out.getvalue(), err.getvalue()])
json.dump(told, sys.stdout)
"""
"""The command twice, in one process: starting Java takes longer than all that it does here."""


def test_a_wrong_row_is_shown_and_written_anew(folder: Path) -> None:
    expected = folder / "orders.tests" / "amounts" / "views" / "paid.jsonl"
    expected.write_text(expected.read_text().replace('"amount": 3', '"amount": 4'))
    missing = folder / "orders.tests" / "returns" / "sinks" / "paid.jsonl"
    missing.unlink()
    done = subprocess.run(
        [sys.executable, "-c", BOTH],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    )
    (status, said, wrong), (updated, told, _) = json.loads(done.stdout)
    assert (status, updated, done.stderr) == (1, 0, ""), "Java says nothing"
    assert said == (
        "amounts: FAILED\n"
        "  orders.tests/amounts/views/paid.jsonl: 1 row missing, 1 row not expected\n"
        '    - {"user": "bob", "amount": 4, "timestamp": "2026-05-01T10:00:00Z"}\n'
        '    + {"user": "bob", "amount": 3.0, "timestamp": "2026-05-01T10:00:00Z"}\n'
        "returns: FAILED\n"
        "0 passed, 2 failed\n"
    )
    assert wrong == (
        f"{folder}/orders.tests/returns: nothing is expected: write views/NAME.jsonl or "
        "sinks/NAME.jsonl, or use --update\n"
    ).replace(f"{folder}/", "")
    document = json.loads(told)
    assert document["ok"]
    written = {each["file"]: each["written"] for each in document["cases"][1]["checked"]}
    assert written == {
        "orders.tests/returns/sinks/paid.jsonl": 0,
        "orders.tests/returns/sinks/rejected.jsonl": 1,
    }
    assert missing.read_text() == ""
    assert '"amount": 3.0' in expected.read_text()
    assert not list(folder.glob("checkpoint*")), "a test leaves nothing else behind"


@pytest.mark.slow(
    "tests/pipeline/testing/test_trial.py::test_a_wrong_row_is_shown_and_written_anew"
)
def test_the_fixture_gives_rows_to_every_kind_of_source(folder: Path) -> None:
    (folder / "test_orders.py").write_text(TESTS)
    run(folder, "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py")
