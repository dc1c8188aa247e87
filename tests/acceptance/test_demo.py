"""The flights demo as people run it: a command in a process of its own, on a cut of the data."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import java_start
import peers
from children import end_with_us
from headrace import sync
from headrace.cli import main
from waiting import until_here

DEADLINE_S = 240
AS_ITS_USERS = java_start.environment({}, interpreted=False)
"""In a demo of ``make test-all`` Spark runs the code that it makes of a query, as it does by itself;
``make test`` spares that."""
CUT = 6_000
BATCH = 4_000  # so that the cut is two micro-batches

Demo = Callable[..., subprocess.CompletedProcess[str]]


def command(directory: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "demo", "--dir", str(directory), *flags]


def demo(directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(directory, *flags),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, **AS_ITS_USERS},
    )


@pytest.fixture
def demo_here(capfd: pytest.CaptureFixture[str], logs_stay_as_they_were: None) -> Demo:
    """The same in this process, for what it says before it begins: another would first import much."""

    def run(directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
        arguments = ["demo", "--dir", str(directory), *flags]
        try:
            status = main(arguments)
        except SystemExit as end:  # by argparse
            assert isinstance(end.code, int)
            status = end.code
        said, errors = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, status, said, errors)

    return run


@contextmanager
def started(directory: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """The demo while it runs, with a quick Spark; killed at the end if it still does."""
    process = subprocess.Popen(
        command(directory, *flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=end_with_us,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(place: Path, process: subprocess.Popen[str]) -> None:
    def is_there() -> bool:
        assert process.poll() is None, process.communicate()
        return place.exists()

    until_here(is_there, f"{place} did not appear", within=DEADLINE_S)


def need_java() -> None:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        peers.missing_peer("Java", "install a Java runtime, 17 or newer")


def legs(directory: Path) -> pa.Table:
    """What other programs see: every Parquet file whose name and folder do not begin with a dot."""
    files = sorted((directory / "legs").glob("[!.]*/[!._]*.parquet"))
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files]).sort_by("sequence")


def batches(directory: Path) -> list[str]:
    return sorted(place.name for place in (directory / "legs").glob("batch=*"))


def one_sentence(result: subprocess.CompletedProcess[str]) -> str:
    """The error a person sees; fails if it is more than one line or looks like a program's."""
    assert result.returncode == 1, (result.returncode, result.stdout, result.stderr)
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("headrace demo: ")
    assert "Traceback" not in result.stdout
    return lines[0]


TWICE = """
import sys
from headrace.cli import main

directory, batch, *limits = sys.argv[1:]
for limit in limits:
    if main(["demo", "--dir", directory, "--batch", batch, "--limit", limit]) != 0:
        sys.exit(1)
    print("== done", flush=True)
"""
"""The command several times in one process: starting Java takes longer than all that it does here."""
REST = 2_000


@pytest.mark.spark
@pytest.mark.timeout(2 * DEADLINE_S)
def test_it_goes_on_with_exactly_the_rest_then_finds_nothing_new(tmp_path: Path) -> None:
    need_java()
    out = tmp_path / "demo"
    done = subprocess.run(
        [sys.executable, "-c", TWICE, str(out), str(BATCH), *map(str, (CUT, CUT + REST, CUT))],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, the_rest, nothing_new, _ = done.stdout.split("== done\n")
    assert re.search(rf"Row quality: of {CUT:,} flights", first)
    check_the_rest(out, the_rest, CUT + REST)
    check_nothing_new(nothing_new)
    assert len(batches(out)) == 3, "two of the first run, one of the second"


@pytest.mark.spark
@pytest.mark.timeout(3 * DEADLINE_S)
@pytest.mark.slow(
    "tests/acceptance/test_demo.py::test_it_goes_on_with_exactly_the_rest_then_finds_nothing_new"
)
def test_killed_in_the_middle_it_goes_on_with_exactly_the_rest_then_finds_nothing_new(
    tmp_path: Path,
) -> None:
    """``make standby`` kills a runner of a pipeline in the middle (``tests/pipeline/test_whole_runs.py``)."""
    need_java()
    out = tmp_path / "demo"
    cut = ("--batch", str(BATCH), "--limit")
    with started(out, *cut, str(CUT)) as process:
        wait_for(out / "legs" / "batch=00000", process)
        process.kill()

    the_rest = demo(out, *cut, str(CUT + REST))
    assert the_rest.returncode == 0, the_rest.stderr
    assert the_rest.stderr == ""
    check_the_rest(out, the_rest.stdout, CUT + REST, CUT + REST - BATCH)
    done = batches(out)

    nothing_new = demo(out, *cut, str(CUT))
    assert nothing_new.returncode == 0, nothing_new.stderr
    check_nothing_new(nothing_new.stdout)
    assert batches(out) == done


def check_the_rest(out: Path, said: str, *counted: int) -> None:
    """What a run says that goes on, and what it leaves; the rows of a batch that was cut off may be counted
    twice or not at all."""
    assert f"{CUT:,} flights are published already" in said
    assert re.search(rf"Publish +━* +{REST:,} +messages|Publish +{REST:,} +\d", said)
    assert re.search(
        rf"Row quality: of ({'|'.join(f'{each:,}' for each in counted)}) flights", said
    )
    assert (out / "delays.png").read_bytes().startswith(b"\x89PNG")
    table = legs(out)
    assert table["sequence"].to_pylist() == list(range(1, CUT + REST + 1))
    check_chains(table)
    assert published(out) == table["sequence"].to_pylist(), "each leg once, in the stream as well"


def check_nothing_new(said: str) -> None:
    assert "Nothing new since the last run" in said
    assert "Start Spark" not in said


def published(directory: Path) -> list[int]:
    """The sequences of the legs in the stream of results."""
    with sync.Broker(store_dir=directory / "broker") as broker, broker.connect() as connection:
        stream = connection.jetstream().stream("LEGS")
        consumer = stream.ordered_consumer(filter_subjects=["legs.>"])
        total = sum(stream.info(subjects="legs.>").state.subjects.values())
        return sorted(
            json.loads(message.payload)["sequence"]
            for message in consumer.fetch(total, max_wait=30)
        )


def check_chains(table: pa.Table) -> None:
    """Every chain, found again by plain means over the whole table."""
    last: dict[str, dict[str, Any]] = {}
    across = 0
    for leg in table.to_pylist():
        before = last.get(leg["tailnum"])
        follows = before is not None and leg["scheduled"] - before["scheduled"] <= 36_000
        if leg["tailnum"] == "unknown" or not follows:
            assert (leg["leg"], leg["previous"], leg["carried"]) == (1, None, None)
        else:
            assert before is not None
            assert leg["leg"] == before["leg"] + 1
            assert leg["previous"] == before["sequence"]
            if before["arr_delay"] is not None and leg["dep_delay"] is not None:
                late = max(0, leg["dep_delay"])
                assert leg["carried"] == min(max(0, before["arr_delay"]), late)
                assert leg["added"] == late - leg["carried"]
            across += before["sequence"] <= CUT < leg["sequence"]
        last[leg["tailnum"]] = leg
    assert across > 0, "some chain goes on from one run to the next"


@pytest.mark.spark
def test_ctrl_c_ends_with_one_sentence_and_nothing_half_done(tmp_path: Path) -> None:
    need_java()
    out = tmp_path / "demo"
    with started(out, "--limit", "20000") as process:
        wait_for(out / "spark.log", process)
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all of its processes
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.strip() == (
        "headrace demo: interrupted; nothing is lost, the same command goes on from here."
    )
    assert batches(out) == []


def test_without_java_it_says_what_to_install(
    tmp_path: Path, demo_here: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    result = demo_here(tmp_path / "demo")
    assert "Spark needs Java" in one_sentence(result)
    assert "default-jre-headless" in result.stderr
    assert not (tmp_path / "demo").exists(), "nothing is begun that cannot be finished"


def test_an_old_java_is_named_with_its_version(
    tmp_path: Path, demo_here: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    result = demo_here(tmp_path / "demo")
    assert "Java 17 or newer" in one_sentence(result)
    assert "is 8;" in result.stderr


def test_a_busy_port_is_named_with_the_way_out(tmp_path: Path) -> None:
    need_java()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = demo(tmp_path / "demo", "--port", str(port), "--limit", "10")
    sentence = one_sentence(result)
    assert str(port) in sentence
    assert "--port" in sentence


def test_a_directory_with_other_things_is_left_alone(tmp_path: Path, demo_here: Demo) -> None:
    need_java()
    (tmp_path / "thesis.txt").write_text("precious")
    result = demo_here(tmp_path, "--reset")
    assert "not the demo's" in one_sentence(result)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_wrong_numbers_are_refused_by_name(tmp_path: Path, demo_here: Demo) -> None:
    for flags, said in (
        (("--limit", "0"), "not a number of flights"),
        (("--port", "70000"), "not a port"),
    ):
        result = demo_here(tmp_path / "demo", *flags)
        assert result.returncode == 2
        assert said in result.stderr
