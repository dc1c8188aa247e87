"""The pages about pipelines whose commands and files are played in order, in the session that is there."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import peers
import roles
from guides import ROOT
from headrace import sync
from headrace.api.pipelines import BUCKET
from headrace.cli import main
from headrace.errors import BucketNotFoundError
from headrace.pipeline.checking.plans import told_of_order
from headrace.pipeline.checking.sources_and_sinks import check
from headrace.pipeline.checkpoints.fingerprints import plan_of
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.lease import Standby, holder_of, who_we_are
from headrace.pipeline.model import Declared
from headrace.pipeline.queries.frames import Frames
from headrace.pipeline.running.run import run_here
from headrace.pipeline.running.runner import Ended
from headrace.pipeline.status.meter import Meter
from headrace.pipeline.status.notes import this_process
from headrace.pipeline.status.publishing import Publisher
from headrace.pipeline.status.recorder import Recorder, told
from readers import Piece, pieces_of
from waiting import until_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOW_TO = ROOT / "docs" / "how-to"


class Heard:
    """Hears how the queries of a run ended."""

    def __getattr__(self, name: str) -> object:
        return lambda *_: None


@pytest.fixture
def server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server_kind: str
) -> Iterator[peers.ServerProcess]:
    """One that the page has for itself, and its folder."""
    found = peers.start_either(server_kind, tmp_path / "server")
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NATS_URL", found.url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    yield found
    found.stop()


@pytest.fixture(params=peers.PLAYED_ON)
def server_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_window_is_written_when_the_watermark_has_passed_it_and_a_join_tells_its_order(
    spark: SparkSession, server: peers.ServerProcess
) -> None:
    assert server.url
    revenue, commands, shown, join, told = pieces_of(HOW_TO / "event-time.md")
    file = Path("revenue.toml").absolute()
    file.write_text(revenue.text)
    play(commands, spark)
    assert lines_of(Path("minutes")) == [json.loads(shown.text)]
    assert main(["pub", "orders.new", '{"id": 4, "amount": 9, "at": "2026-01-01T12:04:00Z"}']) == 0
    assert main(["pub", "orders.new", '{"id": 5, "amount": 9, "at": "2999-01-01T12:04:00Z"}']) == 0
    once(file, spark)
    assert lines_of(Path("minutes")) == [json.loads(shown.text)], "it is late, or of the future"

    with sync.connect(server.url) as connection:
        connection.jetstream().create_key_value("settled")
        connection.jetstream().create_stream(name="PAYMENTS", subjects=["payments.>"])
    file.write_text(revenue.text + join.text)
    both = read(file)
    sink = both.sinks["settled"]
    frame = Frames(spark, both, "settled").of_sink(sink)
    plan = plan_of(frame, spark)
    assert told_of_order(sink, plan, frame.columns) == told.text.strip()
    options = {key: value for key, value in sink.options.items() if key != "order"}
    unordered = told_of_order(replace(sink, options=options), plan, frame.columns)
    assert unordered.startswith(f"warning: {sink.place}: {told.text.strip()}; give sink 'settled'")


def test_a_rejected_row_is_mended_by_the_program_of_the_page_and_goes_through(
    spark: SparkSession, server: peers.ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    orders, commands, shown, program, again = pieces_of(HOW_TO / "rejected-rows.md")
    Path("orders.toml").write_text(orders.text)
    play(commands, spark)
    viewed = capsys.readouterr().out
    assert lines_of(Path("amounts")) == [{"sequence": 1, "amount": 3.0}]
    with sync.connect(server.url) as connection:
        rejected = connection.jetstream().stream("REJECTED")
        (message,) = rejected.scan()
        assert json.loads(message.payload) == json.loads(shown.text)
        assert message.payload.decode() in viewed
        Path(program.file).write_text(program.text)
        play(again, spark)
        assert lines_of(Path("amounts")) == [
            {"sequence": 1, "amount": 3.0},
            {"sequence": 3, "amount": 4.0},
        ]
        assert list(rejected.scan()) == []
    assert capsys.readouterr().out.splitlines() == program.shown


PAID = """
[pipeline]
name = "paid"
checkpoint = "checkpoint"
[sources.orders]
options = {{ stream = "ORDERS", durable = "paid", servers = "{url}" }}
[views.paid]
sql = "SELECT concat('paid.', sequence) AS subject, data FROM orders"
[sinks.paid]
from = "paid"
format = "jetstream"
options = {{ stream = "PAID", delivery = "exactlyOnce", sinkId = "paid", servers = "{url}" }}
[lease]
servers = "{url}"
[metrics]
servers = "{url}"
"""


def test_a_pipeline_needs_no_more_than_the_page_of_permissions_says(
    spark: SparkSession, tmp_path: Path, server_kind: str
) -> None:
    server = roles.start_with_page(server_kind, tmp_path / "server")
    try:
        with sync.connect(roles.url_of(server, roles.ADMIN)) as connection:
            js = connection.jetstream()
            js.create_stream(name="ORDERS", subjects=["orders.*"])
            subjects = ["paid.*", "_sink.PAID.>"]
            js.create_stream(name="PAID", subjects=subjects, allow_atomic=True)
            js.publish("orders.1", b"1")
        url = roles.url_of(server, "pipeline")
        file = tmp_path / "paid.toml"
        file.write_text(PAID.format(url=url))
        assert check(read(file))[0] == []
        lease = read(file).lease
        assert lease is not None
        with Standby(lease, "paid", lambda why: None) as leased:
            assert leased.wait(20)
            assert holder_of(lease, "paid") == who_we_are()
        declared = read(file)
        recorder = Recorder(declared, this_process(), time.time)
        meter = Meter(declared, recorder)
        publisher = Publisher(declared, recorder, meter)
        telling = told(Heard(), recorder, meter, publisher)  # type: ignore[arg-type]
        telling.starting("Spark")
        telling.active(1, None)
        once(file, spark, telling)
        until_here(lambda: pipelines_told(server), "the run tells nobody how it is", within=60)
        publisher.close()
        with sync.connect(roles.url_of(server, roles.ADMIN)) as connection:
            js = connection.jetstream()
            assert js.stream("PAID").get_last_message("paid.1").payload == b"1"
        assert [
            line for line in server.log_text().splitlines() if "Permissions Violation" in line
        ] == []
    finally:
        server.stop()


def pipelines_told(server: peers.ServerProcess) -> list[str]:
    """The pipelines that have told the server how they are."""
    with sync.connect(roles.url_of(server, roles.ADMIN)) as connection:
        try:
            return list(connection.jetstream().key_value(BUCKET).keys())
        except BucketNotFoundError:
            return []


def play(piece: Piece, spark: SparkSession) -> None:
    """The commands of a page; a run of the pipeline is one in the session that is there."""
    for line in piece.text.splitlines():
        program, *words = shlex.split(line)
        if words[:2] == ["pipeline", "once"]:
            once(Path(words[2]).absolute(), spark)
        elif program == "python":
            done = subprocess.run(
                [sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True
            )
            print(done.stdout, end="")
        else:
            assert program == "headrace"
            assert main(words) in (0, None), line


def once(file: Path, spark: SparkSession, hears: Any = None) -> None:
    declared: Declared = read(file)
    watcher: Any = hears or Heard()
    ended: list[Ended] = run_here(declared, spark, watcher, once=True)
    assert [each.problem for each in ended] == [None] * len(declared.sinks)


def lines_of(folder: Path) -> list[dict[str, object]]:
    files = [file for file in folder.glob("part-*") if file.is_file()]
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted(rows, key=str)
