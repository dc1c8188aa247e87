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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import java_start
import peers
from headrace import sync
from waiting import until_here

DEADLINE_S = 110
AS_ITS_USERS = java_start.environment({}, interpreted=False)
"""Here Spark runs the code that it makes of a query, as it does by itself; the other tests spare that."""
CUT = 6_000
BATCH = 4_000  # so that the cut is two micro-batches


def command(directory: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "demo", "--dir", str(directory), *flags]


def demo(directory: Path, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(directory, *flags),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, **AS_ITS_USERS, **env},
    )


@contextmanager
def started(directory: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """The demo while it runs; killed at the end if it still does."""
    process = subprocess.Popen(
        command(directory, *flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **AS_ITS_USERS},
        start_new_session=True,
        # A suite run in a shell's background ignores Ctrl-C, and its children would, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
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


@pytest.mark.spark
@pytest.mark.timeout(3 * DEADLINE_S)
def test_killed_in_the_middle_it_goes_on_with_exactly_the_rest_then_finds_nothing_new(
    tmp_path: Path,
) -> None:
    need_java()
    out = tmp_path / "demo"
    cut = ("--batch", str(BATCH), "--limit")
    with started(out, *cut, str(CUT)) as process:
        wait_for(out / "legs" / "batch=00000", process)
        process.kill()

    the_rest = demo(out, *cut, str(CUT + 2000))
    assert the_rest.returncode == 0, the_rest.stderr
    assert the_rest.stderr == ""
    assert f"{CUT:,} flights are published already" in the_rest.stdout
    assert re.search(r"Publish +━* +2,000 +messages|Publish +2,000 +\d", the_rest.stdout)
    assert re.search(
        rf"Row quality: of ({CUT + 2000:,}|{CUT + 2000 - BATCH:,}) flights", the_rest.stdout
    )
    assert (out / "delays.png").read_bytes().startswith(b"\x89PNG")
    table = legs(out)
    assert table["sequence"].to_pylist() == list(range(1, CUT + 2001))
    check_chains(table)
    assert published(out) == table["sequence"].to_pylist(), "each leg once, in the stream as well"
    done = batches(out)

    nothing_new = demo(out, *cut, str(CUT))
    assert nothing_new.returncode == 0, nothing_new.stderr
    assert "Nothing new since the last run" in nothing_new.stdout
    assert "Start Spark" not in nothing_new.stdout
    assert batches(out) == done


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


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    result = demo(tmp_path / "demo", JAVA_HOME=str(tmp_path / "none"))
    assert "Spark needs Java" in one_sentence(result)
    assert "default-jre-headless" in result.stderr
    assert not (tmp_path / "demo").exists(), "nothing is begun that cannot be finished"


def test_an_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    result = demo(tmp_path / "demo", JAVA_HOME=str(tmp_path / "jdk"))
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


def test_a_directory_with_other_things_is_left_alone(tmp_path: Path) -> None:
    need_java()
    (tmp_path / "thesis.txt").write_text("precious")
    result = demo(tmp_path, "--reset")
    assert "not the demo's" in one_sentence(result)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_wrong_numbers_are_refused_by_name(tmp_path: Path) -> None:
    for flags, said in (
        (("--limit", "0"), "not a number of flights"),
        (("--port", "70000"), "not a port"),
    ):
        result = demo(tmp_path / "demo", *flags)
        assert result.returncode == 2
        assert said in result.stderr
