"""Whether a query would write rows again that it has written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import sync
from headrace.cli import main
from headrace.cli.pipeline.file import MISTAKEN
from headrace.pipeline.checking.refusals import keeps_no_record, refusal
from headrace.pipeline.checkpoints.checkpoint import checkpoint_of
from headrace.pipeline.checkpoints.totals import Batch, Totals
from headrace.pipeline.declaring.reading import read
from headrace.spark.batches.driver import Driver
from headrace.spark.links.control import Control
from headrace.spark.links.link import Link
from headrace.spark.options import Connection, parse_options

from ..conftest import ORDERS


@pytest.fixture
def url(either_url: str) -> str:
    return either_url


class Query:
    """A query as its runs leave it: Spark's log, the sums, and where its durable stands."""

    def __init__(self, file: Path, url: str, stream: str) -> None:
        self.file = file
        self.url = url
        self.stream = stream

    @property
    def folder(self) -> Path:
        return Path(checkpoint_of(read(self.file), "out").current().path)

    def runs(self, *ends: int) -> None:
        """One batch up to each of these sequences, as the source shows them."""
        options = {"stream": self.stream, "servers": self.url, "durable": "shown"}
        driver = Driver(parse_options(options, streaming=True))
        at = driver.initial_offset()
        for kind in ("offsets", "commits"):
            (self.folder / kind).mkdir(parents=True, exist_ok=True)
        for number, end in enumerate(ends):
            at = at._replace(seq=end)
            text = f"v1\n{{}}\n{json.dumps(at.to_dict())}"
            (self.folder / "offsets" / str(number)).write_text(text)
            (self.folder / "commits" / str(number)).write_text("v1\n{}")
            driver.look(at)
            totals = Totals(checkpoint_of(read(self.file), "out").current().totals)
            totals.add(Batch("out", number, 5, 0.1))
        driver.close()

    def refusal(self, *, again: bool = False) -> str:
        declared = read(self.file)
        found = refusal(declared, declared.sinks["out"], again=again)
        return found.text if found is not None else ""

    def loses_everything(self) -> None:
        shutil.rmtree(self.file.parent / "checkpoint")


@pytest.fixture
def query(write: Callable[..., Path], url: str, stream: str) -> Iterator[Query]:
    options = f'stream = "{stream}", servers = "{url}", durable = "shown"'
    text = ORDERS.replace('stream = "ORDERS"', options)
    write("def add(rows, number, run):\n    pass\n", "sinks.py")
    sink = 'format = "parquet"\noptions = { path = "out" }'
    assert sink in text
    yield Query(write(text.replace(sink, 'python = "sinks.py:add"')), url, stream)


def test_a_query_that_goes_on_is_not_asked(query: Query) -> None:
    assert query.refusal() == ""
    query.runs(4, 10)
    assert query.refusal() == ""


def test_a_checkpoint_that_is_newer_than_durable_and_sums_is_not_asked(query: Query) -> None:
    query.runs(4)
    ended = (query.folder / "offsets" / "0").read_text()
    (query.folder / "offsets" / "1").write_text(ended.replace('"seq": 4', '"seq": 10'))
    (query.folder / "commits" / "1").write_text("v1\n{}")
    assert query.refusal() == ""


def test_a_checkpoint_that_is_gone_is_noticed_by_the_durable_and_asked_for(
    query: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    query.runs(4, 10)
    query.loses_everything()
    said = query.refusal()
    assert "query 'out' ran before, and its checkpoint is gone: durable 'shown'" in said
    assert "stands at sequence 10, and the query would go on after 0: 10 messages again" in said
    assert f"headrace pipeline run {query.file} --again (or once)" in said
    assert query.refusal(again=True) == ""
    for verb, status in (("once", MISTAKEN), ("validate", 1)):
        assert main(["pipeline", verb, str(query.file)]) == status, "before Java is started"
        assert said in capsys.readouterr().err
    assert "or begin behind them, if the query keeps no state: headrace" in said
    command = said.rpartition("keeps no state: headrace ")[2].split()
    assert main([*command, "--force"]) == 0
    assert query.refusal() == "", "a reset is an answer"


def test_a_checkpoint_that_is_gone_is_noticed_by_the_sums(query: Query) -> None:
    query.file.write_text(query.file.read_text().replace(', durable = "shown"', ""))
    query.runs(4, 10)
    shutil.rmtree(query.folder)
    assert "its checkpoint is gone: the sums of its batches have 10 rows" in query.refusal()


def test_a_checkpoint_that_is_an_older_copy_is_noticed(query: Query) -> None:
    query.runs(4, 10)
    for kind in ("offsets", "commits"):
        (query.folder / kind / "1").unlink()
    said = query.refusal()
    assert "its checkpoint is an older copy" in said
    assert "the query would go on after 4: 6 messages again" in said


@pytest.mark.parametrize("keeps_state", [True, False])
def test_only_a_query_without_state_is_told_to_begin_behind_what_it_wrote(
    query: Query, keeps_state: bool
) -> None:
    query.runs(4, 10)
    for kind in ("offsets", "commits"):
        (query.folder / kind / "1").unlink()
    if keeps_state:
        (query.folder / "state" / "0").mkdir(parents=True)
    said = query.refusal()
    assert "6 messages again" in said
    assert ("begin behind them: headrace pipeline reset" in said) is not keeps_state


def test_a_query_that_read_nothing_or_begins_where_its_durable_stands_is_not_asked(
    query: Query,
) -> None:
    query.runs()
    query.loses_everything()
    assert query.refusal() == ""
    query.runs(10)
    query.loses_everything()
    text = query.file.read_text()
    query.file.write_text(text.replace("durable =", 'startingOffsets = "7", durable ='))
    assert "would go on after 6: 4 messages again" in query.refusal()
    query.file.write_text(text.replace("durable =", 'startingOffsets = "latest", durable ='))
    assert query.refusal() == "", "its durable says where it goes on"


def test_what_the_stream_has_removed_is_not_written_again(query: Query) -> None:
    query.runs(8)
    query.loses_everything()
    with sync.connect(query.url) as connection:
        connection.jetstream().stream(query.stream).purge(below=7)
    assert "after 6: 2 messages again" in query.refusal()
    link = Link.open(Connection(servers=(query.url,)))
    assert Control(link, query.stream).consumer_info("shown") is not None, "nothing was changed"
    link.close()


@pytest.mark.parametrize(
    ("sink", "is_asked"),
    [
        ('format = "noop"', False),
        ('format = "parquet"\noptions = { path = "out" }', False),
        ('format = "delta"\noptions = { path = "out" }', True),
        ('format = "jetstream"\noptions = { stream = "S" }', True),
        (
            'format = "jetstream"\noptions = { stream = "S", delivery = "exactlyOnce", sinkId = "a" }',
            False,
        ),
    ],
)
def test_sinks_that_keep_a_record_or_nothing_are_not_asked(
    write: Callable[..., Path], sink: str, is_asked: bool
) -> None:
    text = ORDERS.replace('format = "parquet"\noptions = { path = "out" }', sink)
    assert keeps_no_record(read(write(text)).sinks["out"]) == is_asked
