"""What lies beside Spark's checkpoints, when it is older, newer, missing, damaged or another's.

Results, durables and the notes of queries have tests of their own (``test_bindings``, ``test_again``,
``test_fingerprints``); the table is in ``docs/how-to/changing-a-pipeline.md``, and ``test_page_of_changes``
says which test proves which of its fields.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.pipeline.checking.refusals import refusal
from headrace.pipeline.checkpoints.checkpoint import (
    Checkpoint,
    Skipped,
    Start,
    checkpoint_of,
    exclusively,
    read_skipped,
    skip,
)
from headrace.pipeline.checkpoints.results_folder import OF_CHECKPOINT, OF_RESULTS, SPARK_LOG
from headrace.pipeline.checkpoints.totals import Batch, Totals
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Declared
from headrace.pipeline.queries.handlers import Numbers
from headrace.pipeline.status.notes import Notes, file_of, this_process
from headrace.pipeline.status.notes import write as write_notes
from headrace.pipeline.status.status import status_of
from headrace.spark.set_aside import Aside, tell


@pytest.fixture
def url(either_url: str) -> str:
    return either_url


NOW = 1_700_000_000


@pytest.fixture
def declared(pipeline_file: Path) -> Declared:
    return read(pipeline_file)


def ran(declared: Declared, query: str, batches: int) -> Path:
    """A checkpoint with so many finished batches. Returns its folder."""
    folder = Path(checkpoint_of(declared, query).current().path)
    for kind in ("offsets", "commits"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for number in range(batches):
            (folder / kind / str(number)).write_text("v1\n{}\n-")
    return folder


def totals_of(declared: Declared, query: str = "seen") -> Path:
    totals = checkpoint_of(declared, query).current().totals
    assert totals is not None
    return totals


def count(file: Path, *numbers: int) -> None:
    for number in numbers:
        Totals(file).add(Batch("seen", number, 5, 0.1))


def test_sums_that_are_older_or_missing_are_told_as_such(declared: Declared) -> None:
    ran(declared, "seen", 3)
    file = totals_of(declared)
    count(file, 0, 1)
    _, seen = status_of(declared)
    assert (seen.totals.rows, seen.notes[0][:22]) == (10, "1 finished batches are")
    file.unlink()
    _, seen = status_of(declared)
    assert (seen.totals.rows, seen.notes[0][:22]) == (0, "3 finished batches are")


def test_sums_that_are_newer_count_nothing_twice(declared: Declared) -> None:
    file = totals_of(declared)
    count(file, 0, 1, 2, 1, 2)
    assert Totals(file).rows == 15


def test_sums_of_a_lost_checkpoint_are_replaced_by_the_first_batch(declared: Declared) -> None:
    ran(declared, "seen", 3)
    count(totals_of(declared), 0, 1, 2)
    shutil.rmtree(checkpoint_of(declared, "seen").current().path)
    generation = checkpoint_of(declared, "seen").current()
    anew = Totals(generation.totals, is_new=generation.is_new)
    assert Totals(generation.totals).rows == 15, "until then they show that the query ran"
    anew.add(Batch("seen", 0, 4, 0.1))
    assert Totals(generation.totals).rows == 4


@pytest.mark.parametrize("text", ["{", "[]"])
@pytest.mark.parametrize("name", ["0001.totals.json", "0001.start.json"])
def test_a_damaged_file_is_named(
    declared: Declared, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = totals_of(declared).with_name(name)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert main(["pipeline", "status", str(declared.file)]) == 2
    assert f"{file} is damaged" in capsys.readouterr().err


def test_a_start_of_a_source_that_is_not_read_any_more_is_refused(declared: Declared) -> None:
    checkpoint = checkpoint_of(declared, "seen")
    checkpoint.add({"purchases": Start("sequence", "7")})
    found = refusal(declared, declared.sinks["seen"])
    assert found is not None
    assert "is to begin purchases at sequence 7, and the query does not read that source" in (
        found.text
    )
    assert f"headrace pipeline reset {declared.file} --query seen --to WHERE" in found.text
    ran(declared, "seen", 1)
    assert refusal(declared, declared.sinks["seen"]) is None, "it has begun"


def test_a_start_that_is_missing_leaves_a_generation_that_has_begun_as_it_is(
    declared: Declared,
) -> None:
    checkpoint = checkpoint_of(declared, "seen")
    ran(declared, "seen", 1)
    checkpoint.add({"orders": Start("sequence", "7")})
    note = Path(f"{checkpoint.current().path}.start.json")
    ran(declared, "seen", 2)
    note.unlink()
    assert checkpoint.current().number == 2
    shutil.rmtree(checkpoint.current().path)
    assert checkpoint.current().number == 1, "with both gone it goes back"


def test_a_ledger_of_numbers_that_is_older_or_another_s_gives_none_again(
    declared: Declared,
) -> None:
    checkpoint = checkpoint_of(declared, "seen")
    numbers = Numbers(checkpoint, lambda: NOW)
    numbers.open()
    for batch in range(3):
        assert numbers.number_of("run", batch, 1) == batch
    ran(declared, "seen", 3)
    numbers.check("run", checkpoint.current())
    assert numbers.number_of("run", 3, 1) == 3, "it is as it should be"
    ran(declared, "seen", 5)
    numbers.check("run", checkpoint.current())
    assert numbers.number_of("run", 5, 1) == NOW, "it knows no batch 4"
    numbers.check("another run", checkpoint.current())
    assert numbers.number_of("another run", 6, 1) >= NOW


def test_a_ledger_of_numbers_that_is_newer_than_the_checkpoint_goes_on_behind_all_it_gave(
    declared: Declared,
) -> None:
    checkpoint = checkpoint_of(declared, "seen")
    numbers = Numbers(checkpoint, lambda: NOW)
    numbers.open()
    given = [numbers.number_of("run", batch, 1) for batch in range(5)]
    ran(declared, "seen", 3)  # a copy of the checkpoint from before batch 3
    numbers.check("run", checkpoint.current())
    again = [numbers.number_of("run", batch, 1) for batch in (3, 4)]
    assert given + again == [*range(7)]


def test_a_checkpoint_that_was_copied_does_not_write_to_the_results_of_its_model(
    declared: Declared,
) -> None:
    folder = ran(declared, "out", 2)
    results = declared.file.parent / "out"
    (results / SPARK_LOG).mkdir(parents=True)
    for number in range(2):
        (results / SPARK_LOG / str(number)).write_text("v1")
    assert refusal(declared, declared.sinks["out"]) is None
    note = '{"v": 1, "id": "a", "pipeline": "orders", "query": "out", "generation": 1}'
    (folder / OF_CHECKPOINT).write_text(note)
    (results / OF_RESULTS).write_text(note)
    copy = replace(declared, name="copied")
    shutil.copytree(folder, checkpoint_of(copy, "out").current().path)
    (results / SPARK_LOG / "2").write_text("v1")  # the model goes on
    found = refusal(copy, copy.sinks["out"])
    assert found is not None
    assert "Spark would skip the batches that are there" in found.text


def test_a_lock_that_a_dead_process_left_is_none(declared: Declared) -> None:
    lock = declared.checkpoint_path / declared.name / "running.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("1")
    with exclusively(declared):
        assert lock.read_text() != "1"


def test_notes_of_a_runner_that_are_missing_or_of_other_queries_tell_no_state(
    declared: Declared,
) -> None:
    assert [each.state for each in status_of(declared)] == ["", ""]
    others = replace(declared, name="others")
    notes = Notes(this_process(), 1.0, ended=2.0).with_query("theirs", state="failed", error="boom")
    write_notes(file_of(others), notes)
    shutil.copytree(file_of(others).parent, file_of(declared).parent)
    for each in status_of(declared):
        assert (each.state, each.told.error, each.notes) == ("", "", ())


def test_what_was_set_aside_is_told_as_far_as_its_file_goes(declared: Declared) -> None:
    file = Path(f"{checkpoint_of(declared, 'seen').current().path}.aside.jsonl")
    file.parent.mkdir(parents=True)
    tell([Aside("malformed", "S", "0-5:", 3)], str(file))
    older = file.read_text()
    tell([Aside("malformed", "S", "5-9:", 4)], str(file))
    assert status_of(declared)[1].aside == {"malformed": 7}
    file.write_text(older)
    assert status_of(declared)[1].aside == {"malformed": 3}
    file.unlink()
    assert status_of(declared)[1].aside == {}


@pytest.mark.parametrize("lost", [1, 2])
def test_messages_whose_line_was_lost_are_put_aside_again_and_no_other_checkpoint_s_are_left_out(
    declared: Declared, lost: int
) -> None:
    generation = checkpoint_of(declared, "seen").current()
    bad = [Skipped("orders", "S", number, "s", "v", "it is bad") for number in (1, 2)]
    for each in bad:
        skip(generation, each)
    file = Path(f"{generation.path}.skipped.jsonl")
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-lost]))
    assert read_skipped(generation) == bad[:-lost], "the others fail again"
    for each in bad[-lost:]:
        skip(generation, each)
    assert read_skipped(generation) == bad
    copy = replace(declared, name="copied")
    assert read_skipped(checkpoint_of(copy, "seen").current()) == []
    shutil.copytree(file.parent, Path(checkpoint_of(copy, "seen").current().path).parent)
    assert read_skipped(checkpoint_of(copy, "seen").current()) == bad, "it goes with the checkpoint"


def test_losses_that_are_missing_or_damaged_leave_the_status(
    declared: Declared, write: Callable[..., Path]
) -> None:
    checkpoint: Checkpoint = checkpoint_of(declared, "seen")
    file = Path(f"{checkpoint.current().path}.losses.jsonl")
    file.parent.mkdir(parents=True)
    good = '{"stream": "S", "first": 1, "last": 2, "messages": 2}\n'
    file.write_text("{\n[]\n" + good)
    _, seen = status_of(declared)
    assert [tuple(each) for each in seen.lost] == [("S", 1, 2, 2)]
    file.unlink()
    assert status_of(declared)[1].lost == ()
