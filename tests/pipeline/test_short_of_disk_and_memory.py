"""Whole runs, in processes of their own, whose disk is full or whose Java has too little memory.

The error names the cause and what to do; done as it says, the next run goes on where the good one ended.
``make shortages`` plays all of it, the suite one full disk.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import peers
from headrace import sync

from .test_whole_runs import rows

EVERY = bool(os.environ.get("HEADRACE_SHORTAGES"))
pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.slow("tests/pipeline/failures"),
]
only_in_full = pytest.mark.skipif(
    not EVERY, reason="a run of some 20 s and more for each: make shortages"
)
SMALL = "3m"
LARGE = "200m"
EACH = 10  # messages of a batch

FILE = """
[pipeline]
name = "short"
checkpoint = "checkpoint"
fast_local_checkpoint = true
restart = {{ attempts = 20, backoff = "100ms" }}

[spark.conf]
"spark.driver.memory" = "{memory}"
"spark.sql.shuffle.partitions" = "1"
"spark.local.dir" = "{local}"

[sources.all]
options = {{ stream = "{stream}", servers = "{url}", maxOffsetsPerTrigger = {each} }}

[views.made]
{view}

[sinks.out]
from = "made"
format = "parquet"
options = {{ path = "out" }}
"""
# Its state is as large as its rows.
VIEWS = """
def made(all):
    return all.selectExpr("sequence", "data", "sequence AS number").dropDuplicates(["sequence", "data"])
"""
ARRAYS = "SELECT sequence, size(sequence(1, CAST(CAST(data AS string) AS int))) AS number FROM all"


def once(file: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "pipeline", "once", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def local_of(write: Callable[..., Path]) -> Path:
    """Where Spark's own files go: beside the pipeline's."""
    return write("", "empty").with_name("local")


@pytest.fixture(autouse=True)
def java() -> None:
    if not peers.java_is_there():
        peers.missing_peer("Java", "install a Java runtime, 17 or newer")


def mount(folder: Path, options: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "headrace-full", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small file system: {done.stderr.strip()}")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """``small(name)``: a folder beside the file that is a small disk. Needs root on Linux."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a small file system can be mounted by root on Linux only")
    made: list[Path] = []

    def make(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        mount(folder, f"size={SMALL}")
        made.append(folder)
        return folder

    yield make
    for each in made:
        subprocess.run(["umount", "-l", str(each)], check=False)


def publish(url: str, stream: str, payloads: list[bytes]) -> None:
    with sync.connect(url) as connection, connection.jetstream().publisher() as publisher:
        for each in payloads:
            publisher.send(f"{stream}.more", each)


@pytest.mark.parametrize(
    "full",
    [
        "checkpoint",
        pytest.param("out", marks=only_in_full),
        pytest.param("local", marks=only_in_full),
    ],
)
def test_a_full_disk_is_named_and_the_next_run_goes_on_when_there_is_room(
    url: str,
    stream: str,
    write: Callable[..., Path],
    small: Callable[[str], Path],
    full: str,
) -> None:
    disk = small(full)
    view = 'python = "views.py:made"'
    write(VIEWS, "views.py")
    settings = {"url": url, "stream": stream, "each": EACH, "local": local_of(write)}
    file = write(FILE.format(**settings, view=view, memory="1g"))
    noise = random.Random(0)
    publish(url, stream, [noise.randbytes(600_000) for _ in range(EACH)])

    status, said = once(file)
    assert status == 1, said
    assert "no space is left on the disk" in said
    assert str(disk) in said.partition("no space is left on the disk")[2], "which disk"
    assert rows(file.parent / "out") == [(n, n) for n in range(1, EACH + 1)], "the first batch"

    mount(disk, f"remount,size={LARGE}")
    status, said = once(file)
    assert status == 0, said
    assert rows(file.parent / "out") == [(n, n) for n in range(1, 2 * EACH + 1)]


@only_in_full
def test_java_without_memory_is_named_and_the_next_run_with_more_goes_on(
    url: str, stream: str, write: Callable[..., Path]
) -> None:
    large = 100_000_000  # numbers of 4 bytes
    publish(url, stream, [b"%d" % large])
    settings = {"url": url, "stream": stream, "each": EACH, "local": local_of(write)}
    small = FILE.format(**settings, view=f'sql = "{ARRAYS}"', memory="500m")
    file = write(small)

    status, said = once(file)
    assert status == 1, said
    print((file.parent / "checkpoint" / "short" / "spark.log").read_text()[-6000:])
    assert "Java has run out of memory" in said
    assert '"spark.driver.memory"' in said
    before = rows(file.parent / "out")
    assert [n for n, _ in before] == [*range(1, EACH + 1)], "the first batch"

    write(small.replace("500m", "2g"))
    status, said = once(file)
    assert status == 0, said
    assert rows(file.parent / "out") == [*before, (EACH + 1, large)]


@only_in_full
@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        ('"spark.driver.memory" = "200m"', "System memory"),
        # Spark has Java pass over options that it does not know.
        ('"spark.driver.extraJavaOptions" = "-agentlib:nonsense"', "JAVA_GATEWAY_EXITED"),
    ],
)
def test_settings_that_java_or_spark_refuse_are_told_in_a_sentence(
    url: str, stream: str, write: Callable[..., Path], setting: str, cause: str
) -> None:
    settings = {"url": url, "stream": stream, "each": EACH, "local": local_of(write)}
    text = FILE.format(**settings, view=f'sql = "{ARRAYS}"', memory="1g")
    file = write(text.replace('"spark.driver.memory" = "1g"', setting))
    status, said = once(file)
    assert status != 0
    assert "Traceback" not in said
    sentence = said[said.index("Spark does not start: ") :]
    assert cause in sentence, said
    assert "[spark.conf]" in sentence
