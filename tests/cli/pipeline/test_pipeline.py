"""`headrace pipeline`: mistakes told, what is shown of running queries, statuses."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import peers
from headrace import sync
from headrace.cli import main
from headrace.cli.pipeline.file import MISTAKEN
from headrace.cli.pipeline.screen import Lines, Picture
from headrace.pipeline.checkpoints.checkpoint import exclusively
from headrace.pipeline.checkpoints.totals import Batch, Totals, ViewRows
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.failures.causes import Poison
from headrace.pipeline.failures.supervising import Outage
from headrace.pipeline.model import Place, Problem
from headrace.pipeline.running.runner import Ended
from headrace.spark.lost_messages import Loss


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = peers.start_headrace(tmp_path_factory.mktemp("broker"), flags=["--sync", "os"])
    with sync.connect(server.url) as connection:
        js = connection.jetstream()
        js.create_stream(name="ORDERS", subjects=["orders.>"])
        js.publish("orders.new", b"1")
    yield server.url
    server.stop()


@pytest.fixture
def file(tmp_path: Path, url: str) -> Path:
    file = tmp_path / "orders.toml"
    file.write_text(
        f"""
[pipeline]
name = "orders"
checkpoint = "checkpoint"
[sources.orders]
options = {{ stream = "ORDERS", servers = "{url}" }}
[sinks.out]
from = "orders"
format = "noop"
"""
    )
    return file


def test_a_file_without_mistakes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "validate", str(file)]) == 0
    assert capsys.readouterr().out == (
        f"{file}: no mistakes found; 1 source, 0 views, 0 expectations, 1 sink\n"
        "  stream ORDERS has 1 messages\n"
    )


def test_mistakes_are_told_as_compilers_do(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(file.read_text().replace("format", "fromat"))
    assert main(["pipeline", "validate", str(file)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"{file}:7: sink 'out' has neither format and python\n"
        f"{file}:9: unknown key 'fromat'; did you mean 'format'?\n"
    )
    assert main(["pipeline", "validate", "--json", str(file)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["problems"][1]["line"] == 9
    for verb in ("run", "once"):
        assert main(["pipeline", verb, str(file)]) == MISTAKEN, "before Spark is started"
    capsys.readouterr()
    assert main(["pipeline", "run", "--json", str(file)]) == MISTAKEN
    event = json.loads(capsys.readouterr().out)
    assert (event["event"], event["problems"]) == ("refused", document["problems"])


def test_neither_validate_nor_status_imports_spark(file: Path) -> None:
    program = (
        "import sys; from headrace.cli import main\n"
        "for verb in ('validate', 'status'): assert main(['pipeline', verb, sys.argv[1]]) == 0\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j', 'pyarrow', 'pandas')]"
    )
    command = [sys.executable, "-c", program, str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_status_for_people_and_for_programs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", str(file)]) == 0
    said = "out    –      –        1      –  ORDERS 0 of 1    1     0         0"
    assert said in capsys.readouterr().out
    assert main(["pipeline", "status", "--json", str(file)]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["query"], document["waiting"]) == ("out", 1)


def test_a_reset_says_what_it_does(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["pipeline", "reset", str(file), "--to", "1"]
    assert main([*command, "--dry-run"]) == 0
    assert "would begin out again at sequence 1" in capsys.readouterr().out
    assert not (file.parent / "checkpoint").exists()
    assert main([*command, "--force"]) == 0
    said = "out: generation 1 begins orders at sequence 1; nothing was run before\n"
    assert capsys.readouterr().out == said
    assert main(["pipeline", "reset", str(file), "--to", "never", "--force"]) == 2
    assert "'never' is no place in a stream" in capsys.readouterr().err


def batch() -> Batch:
    views = {"v": ViewRows(10, {"a": 2, "b": 0})}
    return Batch("out", 3, 10, 0.5, ('{"seq": 4}',), behind=7, views=views)


def test_lines_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    totals = Totals(None)
    totals.add(batch())
    lines.batch(batch(), totals)
    lines.ended(Ended("out", "failed", totals, 1, 10, Problem(Place(Path("f"), 3), "boom")))
    lines.lost("out", Loss("S", 51, 700, 650))
    one, two, three = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert one.pop("time").endswith("Z")
    assert one == {
        "event": "batch",
        "query": "out",
        "batch": 3,
        "rows": 10,
        "rows_per_s": 20.0,
        "seconds": 0.5,
        "behind": 7,
        "ends": ['{"seq": 4}'],
        "failed": {"v": {"a": 2, "b": 0}},
        "total_rows": 10,
    }
    assert three.pop("time")
    assert three == {
        "event": "lost",
        "query": "out",
        "stream": "S",
        "first": 51,
        "last": 700,
        "messages": 650,
        "why": "up to 650 messages of stream 'S', sequences 51 to 700, were removed before they were read",
    }
    assert (two["state"], two["problem"], two["last_batch"]) == ("failed", "f:3: boom", 3)


def test_the_picture_shows_rates_lag_and_failed_expectations(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    console = Console(width=100, force_terminal=False)
    picture = Picture(console, read(file))
    totals = Totals(None)
    totals.add(batch())
    picture.starting("Spark")
    picture.started("out")
    picture.batch(batch(), totals)
    console.print(picture._draw())
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].split() == [
        *("query", "batch", "rows", "rows/s", "lag", "failed", "expectations")
    ]
    assert shown.splitlines()[2].split() == ["out", "3", "10", "20", "7", "a:", "2", "running"]
    picture.ended(Ended("out", "failed", totals, 1, 10, Problem(Place(Path("f"), 3), "boom")))
    console.print(picture._draw())
    failed = capsys.readouterr().out.splitlines()
    assert failed[2].split()[-1] == "failed"
    assert failed[3] == "f:3: boom"
    picture.lost("out", Loss("S", 51, 700, 650))
    picture.summary([Ended("out", "stopped", totals, 1, 10)])
    stopped, lost = capsys.readouterr().out.split("\n", 1)
    assert stopped == "out: stopped after batch 3; 10 rows in 1 batch"
    assert "up to 650 messages of stream 'S', sequences 51 to 700" in " ".join(lost.split())


def test_a_second_runner_is_refused_before_java_is_looked_for(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    for verb in ("run", "once"):
        with exclusively(read(file)):
            assert main(["pipeline", verb, str(file)]) == 2
        said = f"headrace: pipeline 'orders' is running already, as process {os.getpid()}\n"
        assert capsys.readouterr().err == said
        assert main(["pipeline", verb, str(file)]) == 2
        assert "Spark needs Java" in capsys.readouterr().err
        assert main(["pipeline", verb, "--json", str(file)]) == 2
        *_, refused = map(json.loads, capsys.readouterr().out.splitlines())
        assert refused["event"] == "refused"
        assert "Spark needs Java" in refused["problems"][0]["text"]
    assert main(["pipeline", "status", "--json", str(file)]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["failures"]) == ("failed", 4)
    assert "Spark needs Java" in shown["error"]


@pytest.mark.parametrize("lease", ["", '[lease]\nservers = "{away}"\n'], ids=["alone", "lease"])
def test_a_server_that_is_away_is_told_apart_from_a_mistake_of_the_file(
    file: Path, url: str, lease: str, capsys: pytest.CaptureFixture[str], free_port: int
) -> None:
    away = f"nats://127.0.0.1:{free_port}"
    good = file.read_text()
    file.write_text(good.replace(url, away) + lease.format(away=away))
    for verb in ("validate", "run", "once"):
        assert main(["pipeline", verb, str(file)]) == 3
        assert f"{file}:5: cannot reach a NATS server; {away}" in capsys.readouterr().err
    assert main(["pipeline", "validate", "--no-server", str(file)]) == 0
    capsys.readouterr()
    assert main(["pipeline", "status", str(file)]) == 0
    said = (
        f"out: orders: what waits in ORDERS could not be asked: cannot reach a NATS server; {away}"
    )
    assert said in " ".join(capsys.readouterr().out.split())
    assert main(["pipeline", "status", "--json", str(file)]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    (source,) = document["sources"]
    assert document["waiting"] is source["waiting"] is source["sequence"] is None
    file.write_text(good.replace("ORDERS", "NONE"))
    assert main(["pipeline", "validate", str(file)]) == 1
    for verb in ("run", "once"):
        status = main(["pipeline", verb, str(file)])
        assert status == MISTAKEN, "a stream that is not there is a mistake"


def test_a_second_replay_of_a_name_is_refused_and_one_beside_a_run_is_not(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    replay = ["pipeline", "replay", str(file), "--query", "out", "--from", "1", "--as", "again"]
    with exclusively(read(file), replay="out-again"):
        assert main(replay) == 2
    said = f"headrace: replay 'out-again' is running already, as process {os.getpid()}\n"
    assert capsys.readouterr().err == said
    with exclusively(read(file)):
        assert main(replay) == 2
    assert "Spark needs Java" in capsys.readouterr().err


def test_outages_restarts_and_poison_are_lines_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = Lines()
    lines.away("out", Outage("nats://a", 5.04, math.inf))
    lines.away("out", Outage("nats://a", 7.0, 113.0))
    lines.back("out")
    lines.restarting("out", 2, "it is lost", 4.0)
    place = Place(Path("views.py"), 3)
    found = Poison("orders", "ORDERS", 7, "orders.new", "v", "half", place, "boom")
    lines.poison("out", found, quarantined=True)
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for each in printed:
        assert each.pop("time")
    assert printed[0] == {
        "event": "waiting",
        "query": "out",
        "why": "for nats://a, which has been away for 5 s; it is waited for without end",
        "server": "nats://a",
        "away_s": 5.0,
        "left_s": None,
    }
    assert (printed[1]["left_s"], printed[2]["event"]) == (113.0, "back")
    assert printed[3] == {
        "event": "restarting",
        "query": "out",
        "attempt": 2,
        "cause": "it is lost",
        "wait_s": 4.0,
    }
    why = (
        "message 7 of stream 'ORDERS', subject 'orders.new', fails in view 'v', function half (views.py:3): "
        "boom"
    )
    assert printed[4] == {
        "event": "poison",
        "query": "out",
        "source": "orders",
        "stream": "ORDERS",
        "sequence": 7,
        "subject": "orders.new",
        "view": "v",
        "function": "half",
        "cause": "boom",
        "file": "views.py",
        "line": 3,
        "quarantined": True,
        "why": why,
    }
