from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.errors import ConfigurationError
from headrace.pipeline.checkpoints.checkpoint import (
    Start,
    checkpoint_of,
    exclusively,
    interrupted,
    losses_of,
    notes_of,
    read_end,
    read_log,
)
from headrace.pipeline.checkpoints.totals import Batch, Totals, ViewRows
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Declared
from headrace.spark.lost_messages import Loss, read_losses, tell

from ..conftest import ORDERS


@pytest.fixture
def declared(write: Callable[..., Path]) -> Declared:
    return read(write(ORDERS))


def test_a_new_generation_leaves_the_old_one_as_it_is(declared: Declared) -> None:
    checkpoint = checkpoint_of(declared, "out")
    first = checkpoint.current()
    assert (first.number, first.suffix, first.starts) == (1, "", {})
    (Path(first.path) / "offsets").mkdir(parents=True)
    added = checkpoint.add({"orders": Start("sequence", "7")})
    assert added == checkpoint.current()
    assert (added.number, added.suffix) == (2, "-g2")
    assert added.starts == {"orders": Start("sequence", "7")}
    assert (Path(first.path) / "offsets").is_dir()
    assert not Path(added.path).exists(), "Spark makes it"


def test_a_start_replaces_that_of_the_options() -> None:
    given = {"startingoffsets": "5", "STARTINGTIMESTAMP": "x", "stream": "S"}
    by_time = Start("time", "2026-01-01T00:00:00Z").options(given)
    assert by_time == {"stream": "S", "startingTimestamp": "2026-01-01T00:00:00Z"}
    assert Start("sequence", "9").options(given) == {"stream": "S", "startingOffsets": "9"}
    assert Start("earliest").options({}) == {"startingOffsets": "earliest"}


def test_what_a_query_notes_has_a_folder_also_with_a_checkpoint_elsewhere(
    declared: Declared,
) -> None:
    """Losses were not noted there: there was no folder, and the status had none of them."""
    elsewhere = replace(declared, checkpoint="s3a://bucket/checkpoints")
    generation = checkpoint_of(elsewhere, "out").current()
    losses = notes_of(elsewhere, generation, "out")
    assert losses == losses_of(elsewhere, generation, "out")
    tell(Loss("ORDERS", 1, 7, 7), str(losses))
    assert [each.last for each in read_losses(losses)[0]] == [7]
    blocked = replace(elsewhere, file=losses)  # a file where a folder would be
    notes_of(blocked, generation, "out")


def test_what_spark_has_written_is_read(declared: Declared) -> None:
    generation = checkpoint_of(declared, "out").current()
    assert read_log(generation, "offsets") is None
    assert interrupted(generation) is None
    assert read_end(generation) is None
    folder = Path(generation.path)
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    for batch, end in ((9, "10"), (10, '{"seq":20}')):
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{end}\n-")
    (folder / "offsets" / ".10.crc").write_text("x")
    (folder / "commits" / "9").write_text("v1\n{}")
    planned, ended = read_log(generation, "offsets"), read_end(generation)
    assert planned is not None
    assert planned.batch == 10
    assert planned.offsets == ('{"seq":20}', "")
    assert ended is not None
    assert (ended.batch, ended.offsets) == (9, ("10", ""))
    assert interrupted(generation) == 10
    (folder / "commits" / "10").write_text("v1\n{}")
    assert interrupted(generation) is None
    (folder / "offsets" / "11").write_text("v7\n")
    with pytest.raises(ConfigurationError, match="version 'v7'"):
        read_log(generation, "offsets")
    assert interrupted(generation) == 11, "a run needs no more than the number"


def test_a_root_that_is_a_url_is_left_to_spark(write: Callable[..., Path]) -> None:
    declared = read(write(ORDERS.replace('"checkpoint"', '"hdfs://host/c"')))
    checkpoint = checkpoint_of(declared, "out")
    assert checkpoint.current().path == "hdfs://host/c/orders/out/0001"
    with pytest.raises(ConfigurationError, match="needs a directory"):
        checkpoint.add({})


def test_only_one_process_runs_a_pipeline(declared: Declared) -> None:
    program = (
        "import sys; from pathlib import Path; from headrace.pipeline.declaring.reading import read\n"
        "from headrace.pipeline.checkpoints.checkpoint import exclusively\n"
        "with exclusively(read(Path(sys.argv[1]))): print('in')\n"
    )
    command = [sys.executable, "-c", program, str(declared.file)]
    with exclusively(declared):
        other = subprocess.run(command, capture_output=True, text=True)
    assert f"is running already, as process {os.getpid()}\n" in other.stderr
    assert subprocess.run(command, capture_output=True, text=True).stdout == "in\n"


def test_a_lock_names_no_process_that_is_dead(declared: Declared) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    file = declared.checkpoint_path / declared.name / "running.lock"
    with exclusively(declared):
        file.write_text(str(dead.pid))
        with pytest.raises(ConfigurationError, match=f"not seen from here .*{dead.pid}"):
            exclusively(declared).__enter__()
        late = threading.Timer(0.1, file.write_text, [str(os.getpid())])
        late.start()
        with pytest.raises(ConfigurationError, match=f"as process {os.getpid()}$"):
            exclusively(declared).__enter__()
        late.join()
    assert file.read_text() == ""


def test_sums_outlive_the_run_and_count_each_batch_once(tmp_path: Path) -> None:
    file = tmp_path / "q" / "0001.totals.json"
    totals = Totals(file)
    assert totals.missed == 0
    totals.add(Batch("q", 0, 10, 0.5, views={"v": ViewRows(10, {"a": 1})}))
    totals.add(Batch("q", 0, 10, 0.5, views={"v": ViewRows(10, {"a": 1})}))
    totals.add(Batch("q", 1, 5, 0.5, views={"v": ViewRows(5, {"a": 0, "b": 2})}))
    again = Totals(file)
    assert (again.rows, again.batches, again.last, again.missed) == (15, 2, 1, 0)
    assert again.views == {"v": ViewRows(15, {"a": 1, "b": 2})}
    again.add(Batch("q", 3, 1, 0.5))
    assert Totals(file).missed == 1, "batch 2 finished as a runner was killed"
    again.add(Batch("q", 4, 0, 0.1, was_written=True))
    again.add(Batch("q", 5, 2, 0.1))
    assert Totals(file).missed == 2, "the rows of batch 4 were written, and not counted"
    assert Totals(file).rows == 18
    known = ["last", "batches", "rows", "seconds", "rows_out", "late", "watermark", "views"]
    assert list(json.loads(file.read_text())) == known


def test_sums_know_what_they_do_not_know(tmp_path: Path) -> None:
    totals = Totals(tmp_path / "0001.totals.json")
    totals.add(Batch("q", 0, 10, 0.5, rows_out=8, late=1, watermark="2026-01-01T00:00:00Z"))
    totals.add(Batch("q", 1, 0, 0.5, was_written=True))
    totals.add(Batch("q", 2, 10, 0.5, rows_out=0))
    assert (totals.rows_out, totals.late, totals.watermark) == (8, 1, "2026-01-01T00:00:00Z")
    totals.add(Batch("q", 3, 10, 0.5))
    assert totals.rows_out is None, "that sink did not tell"
    before = tmp_path / "of an earlier release.json"
    before.write_text('{"last": 0, "batches": 1, "rows": 10, "seconds": 0.5, "views": {}}')
    totals = Totals(before)
    totals.add(Batch("q", 1, 10, 0.5, rows_out=8, late=1))
    assert (totals.rows, totals.rows_out, totals.late) == (20, None, None)


@pytest.mark.parametrize(
    ("kind", "said"),
    [("offsets", "batch 2 is planned anew"), ("commits", "batch 2 runs again")],
)
def test_a_log_that_was_cut_off_is_told_with_what_to_delete(
    declared: Declared, kind: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(checkpoint_of(declared, "out").current().path)
    batches = {"offsets": 3, "commits": 2 if kind == "offsets" else 3}
    for each, count in batches.items():
        (folder / each).mkdir(parents=True)
        for number in range(count):
            (folder / each / str(number)).write_text("v1\n{}\n-")
    (folder / kind / "2").write_text("")
    (folder / kind / ".2.crc").write_text("sum of the whole file")
    assert main(["pipeline", "validate", "--no-server", str(declared.file)]) != 0
    told = capsys.readouterr().err
    assert f"{folder / kind / '2'} is empty: a power cut or a full disk cut it off" in told
    assert said in told
    command = told.partition(f"{said}: ")[2].strip().splitlines()[0]
    subprocess.run(command, shell=True, check=True)
    found = read_end(checkpoint_of(declared, "out").current())
    assert found is not None
    assert found.batch == 1
    assert interrupted(checkpoint_of(declared, "out").current()) == (
        None if kind == "offsets" else 2
    )
    assert not (folder / kind / ".2.crc").exists()


def test_an_end_that_was_lost_after_its_batch_is_not_to_be_deleted(declared: Declared) -> None:
    generation = checkpoint_of(declared, "out").current()
    for kind in ("offsets", "commits"):
        (Path(generation.path) / kind).mkdir(parents=True)
        (Path(generation.path) / kind / "0").write_text("" if kind == "offsets" else "v1\n{}")
    with pytest.raises(ConfigurationError, match="put the checkpoint back from a copy"):
        read_end(generation)
