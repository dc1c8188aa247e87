"""Which query a folder of results belongs to: noted in it before the first batch is written."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.cli.pipeline.file import MISTAKEN
from headrace.errors import ConfigurationError
from headrace.pipeline.checkpoints.checkpoint import Generation, Start, checkpoint_of
from headrace.pipeline.checkpoints.results_folder import (
    OF_CHECKPOINT,
    OF_RESULTS,
    SPARK_LOG,
    bind,
    check_results,
)
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Declared
from headrace.pipeline.options import place_of_results
from headrace.pipeline.resets import reset

from ..conftest import ORDERS


class Query:
    """A query as Spark leaves it on the disk: batches planned, finished, and written to results."""

    def __init__(self, declared: Declared, name: str = "out") -> None:
        self.declared = declared
        self.sink = declared.sinks[name]

    @property
    def generation(self) -> Generation:
        return checkpoint_of(self.declared, self.sink.name).current()

    @property
    def checkpoint(self) -> Path:
        return Path(self.generation.path)

    @property
    def results(self) -> Path:
        return Path(place_of_results(self.declared, self.sink, self.generation.suffix))

    def runs(self, batches: int, *, is_killed: bool = False) -> None:
        """What a run leaves: so many batches in all, the last not finished if it ``is_killed``."""
        assert self.refusal() == ""
        bind(self.declared, self.sink, self.generation, str(self.results))
        for folder in ("offsets", "commits"):
            (self.checkpoint / folder).mkdir(exist_ok=True)
        (self.results / SPARK_LOG).mkdir(exist_ok=True)
        for number in range(batches):
            end = f'v1\n{{}}\n{{"seq":{10 * number + 10}}}'
            (self.checkpoint / "offsets" / str(number)).write_text(end)
            (self.results / SPARK_LOG / str(number)).write_text("v1\n")
            if number < batches - is_killed:
                (self.checkpoint / "commits" / str(number)).write_text("v1\n{}")

    def refusal(self) -> str:
        found = check_results(self.declared, self.sink, self.generation, str(self.results))
        return found.text if found is not None else ""


@pytest.fixture
def declare(write: Callable[..., Path], url: str, stream: str) -> Callable[..., Declared]:
    def make(name: str = "orders", file: str = "orders.toml") -> Declared:
        text = ORDERS.replace('name = "orders"', f'name = "{name}"')
        text = text.replace('"ORDERS"', f'"{stream}", servers = "{url}"')
        return read(write(text, file))

    return make


@pytest.fixture
def query(declare: Callable[..., Declared]) -> Query:
    return Query(declare())


def commands(refusal: str) -> list[str]:
    return re.findall(r"headrace pipeline [^;]+", refusal)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_query_goes_on_in_its_own_results_also_after_a_kill(
    query: Query, is_killed: bool
) -> None:
    query.runs(1, is_killed=is_killed)
    query.runs(3, is_killed=is_killed)
    assert query.refusal() == ""
    notes = query.checkpoint / OF_CHECKPOINT, query.results / OF_RESULTS
    assert notes[0].read_text() == notes[1].read_text()


@pytest.mark.parametrize("is_killed", [False, True])
def test_results_from_before_there_were_notes_go_on_where_the_numbers_agree(
    query: Query, is_killed: bool
) -> None:
    query.runs(2, is_killed=is_killed)
    (query.checkpoint / OF_CHECKPOINT).unlink()
    (query.results / OF_RESULTS).unlink()
    query.runs(2)
    assert (query.results / OF_RESULTS).exists()


@pytest.mark.parametrize("batches", [1, 5])
@pytest.mark.parametrize("has_notes", [True, False])
def test_a_renamed_pipeline_is_told_its_name_whatever_number_its_results_have(
    query: Query, declare: Callable[..., Declared], batches: int, has_notes: bool
) -> None:
    query.runs(batches)
    if not has_notes:
        (query.checkpoint / OF_CHECKPOINT).unlink()
        (query.results / OF_RESULTS).unlink()
    renamed = Query(declare("purchases"))
    refusal = renamed.refusal()
    assert "if the pipeline was called 'orders', give it that name again" in refusal
    assert ("query 'out' of pipeline 'orders', generation 1" in refusal) == has_notes
    reset(renamed.declared, [renamed.sink], Start("earliest"))
    assert renamed.results.name == "out-g2", "the command leads on"
    renamed.runs(1)


def test_a_renamed_query_is_told_how_its_checkpoint_is_moved(
    query: Query, declare: Callable[..., Declared], write: Callable[..., Path]
) -> None:
    query.runs(1)
    renamed = Query(read(write(ORDERS.replace("[sinks.out]", "[sinks.rows]"))), "rows")
    found = re.search(r"if the query was called 'out': mv (\S+) ([^\s;]+)", renamed.refusal())
    assert found is not None, renamed.refusal()
    Path(found[1]).rename(found[2])
    renamed.runs(2)


@pytest.mark.parametrize("batches", [1, 2])
def test_a_deleted_checkpoint_is_refused_and_reset_leads_to_a_folder_of_its_own(
    query: Query, batches: int, capsys: pytest.CaptureFixture[str]
) -> None:
    query.runs(batches)
    shutil.rmtree(query.checkpoint)
    refusal = query.refusal()
    assert "has no checkpoint: Spark would skip the batches" in refusal
    assert main(["pipeline", "once", str(query.declared.file)]) == MISTAKEN, (
        "before Java is started"
    )
    assert refusal in capsys.readouterr().err
    (command,) = commands(refusal)
    sequences = command.replace("earliest", "1").split()
    assert main([*sequences[1:], "--force"]) == 0
    assert "out-g2" in capsys.readouterr().out
    query.runs(1)


def test_results_that_are_newer_than_their_checkpoint_are_refused(query: Query) -> None:
    query.runs(3)
    for number in (2, 1):
        (query.checkpoint / "commits" / str(number)).unlink()
    assert "results up to batch 2, and the checkpoint has finished batch 0" in query.refusal()


def test_one_batch_more_than_finished_is_no_kill_where_it_was_not_planned(query: Query) -> None:
    query.runs(3)
    (query.checkpoint / "commits" / "2").unlink()
    assert query.refusal() == "", "a kill"
    (query.checkpoint / "offsets" / "2").unlink()  # a copy from before that batch
    assert "Spark would skip" in query.refusal()


def test_results_that_are_missing_or_older_are_refused_and_told_how_to_go_on(query: Query) -> None:
    query.runs(4)
    newest = query.results / SPARK_LOG / "3"
    newest.unlink()
    assert "has finished batch 3, and" in query.refusal()
    assert "has only up to batch 2: results were removed" in query.refusal()
    shutil.rmtree(query.results)
    again, anew = commands(query.refusal())
    assert again.endswith("reset " + str(query.declared.file) + " --query out --to 41")
    assert anew.endswith("--to earliest")


def test_results_of_another_query_with_the_same_number_are_refused(
    query: Query, declare: Callable[..., Declared]
) -> None:
    query.runs(2)
    other = Query(declare("other", file="other.toml"))
    results = other.results.rename(other.results.with_name("kept"))
    other.runs(2)
    shutil.rmtree(other.results)
    results.rename(other.results)
    assert "query 'out' of pipeline 'other' has another checkpoint" in other.refusal()


def test_files_that_no_query_wrote_are_not_hidden_from_readers(query: Query) -> None:
    query.results.mkdir()
    (query.results / "_notes").touch()
    assert query.refusal() == ""
    (query.results / "part-0.parquet").touch()
    assert "has files that no query wrote" in query.refusal()
    bind(query.declared, query.sink, query.generation, str(query.results))
    assert query.refusal() == "", "a kill before the first batch was noted leaves such files, too"


def test_a_profile_is_part_of_the_commands(write: Callable[..., Path]) -> None:
    file = write(ORDERS + '[profiles.prod.pipeline]\ncheckpoint = "prod"\n')
    query = Query(read(file, "prod"))
    query.runs(1)
    shutil.rmtree(query.checkpoint)
    assert commands(query.refusal())[0].split()[3:6] == [str(file), "--profile", "prod"]


def test_two_sinks_do_not_share_a_folder(write: Callable[..., Path]) -> None:
    more = '[sinks.too]\nfrom = "orders"\nformat = "json"\noptions = { path = "out/" }\n'
    with pytest.raises(Exception, match="sinks 'out' and 'too' write to out/: a folder for each"):
        read(write(ORDERS + more))


def test_a_checkpoint_below_a_url_is_not_looked_for_without_spark(
    write: Callable[..., Path],
) -> None:
    declared = read(write(ORDERS.replace('"checkpoint"', '"hdfs://host/c"')))
    generation = checkpoint_of(declared, "out").current()
    assert check_results(declared, declared.sinks["out"], generation, "hdfs://host/out") is None
    with pytest.raises(ConfigurationError, match="needs a directory"):
        reset(declared, [declared.sinks["out"]], Start("earliest"))
