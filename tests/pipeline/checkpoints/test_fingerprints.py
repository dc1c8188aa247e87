from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.pipeline.checkpoints.checkpoint import checkpoint_of
from headrace.pipeline.checkpoints.fingerprints import FILE, Fingerprint, of_file, tell_changes
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.spark_errors import sentence_of

TEXT = """
[pipeline]
name = "orders"
checkpoint = "checkpoint"

[sources.orders]
options = { stream = "ORDERS", servers = "nats://u:secret@a:1", maxOffsetsPerTrigger = 5 }

[views.paid]
sql = "SELECT * FROM orders WHERE a > 1"

[views.tenfold]
python = "views.py:tenfold"     # def tenfold(paid)

[sinks.out]
from = "tenfold"
format = "noop"
"""
VIEWS = """
def tenfold(paid):
    return paid.limit(10)
"""


@pytest.fixture
def run(write: Callable[..., Path]) -> Callable[..., Path]:
    """Write the file, and what a run of it leaves in its checkpoint."""
    write(VIEWS, "views.py")

    def make(*state: str, spark: str = "4.2.0", batches: int = 1) -> Path:
        file = write(TEXT)
        declared = read(file)
        now = of_file(declared, declared.sinks["out"])
        folder = Path(checkpoint_of(declared, "out").current().path)
        (folder / "offsets").mkdir(parents=True)
        for number in range(batches):
            (folder / "offsets" / str(number)).write_text("v1\n{}")
        noted = Fingerprint(now.sources, now.views, now.sink, spark, state)
        (folder / FILE).write_text(noted.text)
        assert "secret" not in noted.text
        return file

    return make


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("a > 1", "a > 2"),
            "view 'paid' has changed; the rows from now on are made by the new ones",
        ),
        (("stream = ", 'subjects = "orders.x", stream = '), "source 'orders' has changed"),
        (('format = "noop"', 'format = "console"'), "format of the sink was noop"),
        (("sql =", 'expect = [{ check = "a > 1" }]\nsql ='), "view 'paid' has changed"),
        (("maxOffsetsPerTrigger = 5", "maxOffsetsPerTrigger = 6"), ""),
        (("secret", "other"), ""),
        (('a > 1"', 'a > 1  "'), ""),
    ],
)
def test_validate_says_what_has_changed_since_a_query_ran(
    run: Callable[..., Path],
    change: tuple[str, str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = run()
    file.write_text(TEXT.replace(*change))
    problems, found = tell_changes(read(file))
    assert problems == []
    assert (said in "".join(found)) and bool(found) == bool(said)
    assert main(["pipeline", "validate", "--no-server", str(file)]) == 0
    assert said in capsys.readouterr().out


def test_a_function_counts_by_its_code_and_not_by_its_comments(run: Callable[..., Path]) -> None:
    file = run("rows by k")
    views = file.with_name("views.py")
    views.write_text("# ten at most\n" + VIEWS.replace("10)", "10)  # few"))
    assert tell_changes(read(file)) == ([], [])
    views.write_text(VIEWS.replace("10", "20"))
    _, (said,) = tell_changes(read(file))
    assert "view 'tenfold' has changed" in said
    assert "it keeps state of rows by k, and --plan says whether that still fits" in said


def test_a_source_that_came_is_a_mistake_that_validate_finds(
    run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = run()
    more = '[sources.others]\noptions = { stream = "OTHERS" }\n'
    text = TEXT.replace("FROM orders", "FROM orders JOIN others USING (sequence)")
    file.write_text(text + more)
    assert main(["pipeline", "validate", "--no-server", str(file)]) == 1
    said = capsys.readouterr().err
    assert "reads 2 sources, and its checkpoint is of 1: 'others' came" in said
    assert f"headrace pipeline reset {file} --query out --to earliest" in said


def test_a_query_without_a_batch_or_a_readable_note_has_no_changes(
    run: Callable[..., Path],
) -> None:
    file = run(batches=0)
    file.write_text(TEXT.replace("a > 1", "a > 2"))
    assert tell_changes(read(file)) == ([], [])
    folder = Path(checkpoint_of(read(file), "out").current().path)
    (folder / "offsets" / "0").write_text("v1\n{}")
    assert tell_changes(read(file))[1]
    (folder / FILE).write_text('{"v": 2}')
    assert tell_changes(read(file)) == ([], [])


def test_a_note_that_is_missing_or_older_and_one_that_came_with_another_s_checkpoint(
    run: Callable[..., Path],
) -> None:
    file = run()
    declared = read(file)
    folder = Path(checkpoint_of(declared, "out").current().path)
    copy = replace(declared, name="copied")
    shutil.copytree(folder, checkpoint_of(copy, "out").current().path)
    file.write_text(TEXT.replace("a > 1", "a > 2"))
    for name in ("orders", "copied"):  # it is what ran before the change: of the copy, its model
        (said,) = tell_changes(replace(read(file), name=name))[1]
        assert "view 'paid' has changed" in said
    (folder / FILE).unlink()
    assert tell_changes(read(file)) == ([], []), "nothing is compared"


def test_what_spark_refuses_of_a_changed_query_is_told_with_the_remedy() -> None:
    counts = (
        "assertion failed: There are [1] sources in the checkpoint offsets and now there are [2] "
        "sources requested by the query. Cannot continue."
    )
    assert sentence_of(counts).startswith("the query read 1 sources when its checkpoint was made")
    schema = "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match"
    for text in (counts, schema):
        assert "headrace pipeline reset" in sentence_of(text)
