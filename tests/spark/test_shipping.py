"""What executors import from what is sent to them, and what they are not told; without a cluster.

``make spark-cluster`` shows the same on a cluster (``test_spark_cluster.py``).
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import shipping
from headrace.errors import ConfigurationError
from headrace.pipeline.session import session
from headrace.spark.source import JetStreamDataSource
from sim.spark.engine import SCHEMA
from spark_standalone import spark_home
from token_forge import Key

from .conftest import ON_OURS, Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "correct-horse-battery"
TASK = """
import pickle, sys
import headrace, pyspark_headrace
reader, piece = pickle.load(open(sys.argv[1], "rb"))
rows = sum(batch.num_rows for batch in reader.read(piece))
print(headrace.__file__, rows)
"""


@ON_OURS
def test_a_task_runs_with_what_is_shipped_and_nothing_of_it_installed(
    feed: Feed, tmp_path: Path
) -> None:
    feed.publish_numbers(1, 7)
    options = {"servers": feed.url, "stream": feed.name, "includeHeaders": "true"}
    source = JetStreamDataSource(options)
    reader = source.reader(SCHEMA)
    (piece,) = reader.partitions()
    task = tmp_path / "task"
    task.write_bytes(pickle.dumps((reader, piece)))
    spark = [str(each) for each in (spark_home() / "python" / "lib").glob("*.zip")]

    zipped = shipping.zipped(tmp_path / "headrace.zip")
    python = shipping.bare_python(tmp_path / "bare")
    file, rows = run(python, task, [str(zipped), *spark])
    assert (Path(file).parents[1], rows) == (zipped, "7")

    made = shipping.archive(tmp_path / "made", tmp_path / "environment.tar.gz")
    unpacked = tmp_path / "executor" / "environment"
    unpacked.mkdir(parents=True)
    subprocess.run(["tar", "xzf", str(made), "-C", str(unpacked)], check=True)
    file, rows = run(unpacked / "bin" / "python", task, spark)
    assert (Path(file).is_relative_to(unpacked), rows) == (True, "7")


def run(python: Path, task: Path, paths: list[str]) -> tuple[str, str]:
    done = subprocess.run(
        [python, "-c", TASK, str(task)],
        cwd=task.parent,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    file, rows = done.stdout.split()
    return file, rows


@ON_OURS
def test_a_secret_is_in_no_offset_partition_or_text(feed: Feed) -> None:
    feed.publish_numbers(1, 7)
    host = feed.url.removeprefix("nats://")
    options = {
        "servers": f"nats://me:{SECRET}@{host}",
        "stream": feed.name,
        "user": "me",
        "password": SECRET,
        "includeHeaders": "true",
    }
    source = JetStreamDataSource(options)
    reader = source.streamReader(SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    pieces = reader.partitions(start, end)
    assert pieces
    for shown in (json.dumps([start, end]), repr(pieces), repr(reader), repr(reader._options)):
        assert SECRET not in shown
    assert SECRET.encode() not in pickle.dumps(pieces)
    reader.stop()


@pytest.mark.spark
@ON_OURS
def test_a_secret_is_in_no_plan(spark: SparkSession, feed: Feed) -> None:
    feed.publish_numbers(1, 7)
    seed = Key("U").seed
    host = feed.url.removeprefix("nats://")
    here = {"servers": feed.url}
    hidden: list[tuple[str, dict[str, str]]] = [
        (SECRET, {**here, "user": "me", "password": SECRET}),
        (SECRET, {**here, "token": SECRET}),
        (SECRET, {"url": f"nats://me:{SECRET}@{host}"}),
        (seed, {**here, "nkeySecret": seed}),
    ]
    for secret, options in hidden:
        assert secret not in plans(spark, feed, options), options.keys()
    # Names that Spark does not know: a pipeline tells it, others have to.
    told = [(SECRET, {"servers": f"nats://me:{SECRET}@{host}"}), (seed, {**here, "nkeySeed": seed})]
    key = "spark.sql.redaction.options.regex"
    assert all(secret in plans(spark, feed, options) for secret, options in told)
    spark.conf.set(key, session._ALWAYS[key])
    try:
        for secret, options in told:
            assert secret not in plans(spark, feed, options), options.keys()
    finally:
        spark.conf.unset(key)


def plans(spark: SparkSession, feed: Feed, options: dict[str, str]) -> str:
    """Everything that Spark shows of a read."""
    frame = spark.read.format("jetstream").options(**options).option("stream", feed.name).load()
    modes = ("simple", "extended", "codegen", "cost", "formatted")
    shown = [explained(spark, frame._jdf, mode) for mode in modes]
    reader = spark.readStream.format("jetstream").options(**options)
    streamed = reader.option("stream", feed.name).load()
    return "".join([*shown, str(streamed._jdf.queryExecution().toString())])


def explained(spark: SparkSession, frame: object, mode: str) -> str:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return str(jvm.PythonSQLUtils.explainString(frame.queryExecution(), mode))  # type: ignore[attr-defined]


def test_executors_of_a_cluster_and_the_driver_call_their_python_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    settings = {"spark.pyspark.python": "environment/bin/python"}
    with pytest.raises(ConfigurationError, match=r"has to be here, too.*: ln -s \S+ environment"):
        session._name_python("spark://master:7077", settings)
    shipping.bare_python(tmp_path / "environment")
    session._name_python("spark://master:7077", settings)
    assert os.environ["PYSPARK_PYTHON"] == "environment/bin/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "environment/bin/python"
