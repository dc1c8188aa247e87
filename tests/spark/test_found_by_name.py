"""The source in Spark Connect: found by name, nothing registered.

In Declarative Pipelines it is found by ``tests/acceptance/test_spark_pipelines.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Feed, require_java

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

CONNECT = """
import sys

from pyspark.sql import SparkSession

url, stream = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
batch = spark.read.format("jetstream").option("servers", url).load(stream)
assert batch.count() == 5
reader = spark.readStream.format("jetstream").option("servers", url).option("durable", "d")
df = reader.load(stream).select("sequence")
writer = df.writeStream.format("memory").queryName("found").trigger(availableNow=True)
writer.start().awaitTermination()
found = sorted(row[0] for row in spark.sql("select * from found").collect())
assert found == [1, 2, 3, 4, 5], found
spark.stop()
"""


@pytest.fixture
def server_url(headrace_process: object) -> str:
    """One server is enough here."""
    return str(headrace_process.url)  # type: ignore[attr-defined]


def run(command: list[str], home: Path) -> None:
    require_java()
    import pyspark

    spark_home = Path(pyspark.__file__).parent
    ours = {
        "SPARK_HOME": str(spark_home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # Connect's local server takes any free port, not always the same
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        command, cwd=home, env={**os.environ, **ours}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def all_is_shown_as_read(feed: Feed) -> bool:
    shown = feed.control.consumer_info("d")
    return shown is not None and shown.num_pending == 0


def test_spark_connect_finds_the_source_for_batches_and_streams(feed: Feed, tmp_path: Path) -> None:
    feed.publish_numbers(1, 5)
    (tmp_path / "query.py").write_text(CONNECT)
    run([sys.executable, "query.py", feed.url, feed.name], tmp_path)
    assert all_is_shown_as_read(feed)
