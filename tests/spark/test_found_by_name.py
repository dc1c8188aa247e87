"""Source and sink in Spark Connect: found by name, nothing registered.

In Declarative Pipelines it is found by ``tests/acceptance/test_spark_pipelines.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import ON_OURS, Feed, require_java

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.slow("tests/spark/test_source.py"),
]

CONNECT = """
import sys

from pyspark.sql import SparkSession

url, stream, target = sys.argv[1:]
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

sink = {"servers": url, "stream": target, "markerPrefix": f"{target}._sink"}
once = {**sink, "delivery": "exactlyOnce"}
for part, options in (
    ("plain", sink),
    ("batch", {**once, "sinkId": "b", "batchId": "1"}),
    ("batch", {**once, "sinkId": "b", "batchId": "1"}),
):
    rows = batch.select("data").write.format("jetstream").mode("append").options(**options)
    rows.option("subject", f"{target}.{part}").save()
for _ in range(2):
    rows = reader.option("durable", "e").load(stream).select("data").writeStream
    rows = rows.format("jetstream").options(**once, sinkId="s", subject=f"{target}.stream")
    rows = rows.option("checkpointLocation", "checkpoint").trigger(availableNow=True)
    rows.start().awaitTermination()
try:
    batch.select("data").write.format("jetstream").mode("append").options(**sink).save()
except Exception as error:
    assert "subject" in str(error), error
else:
    raise AssertionError("rows without a subject were written")
spark.stop()
"""


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


@ON_OURS
def test_spark_connect_finds_source_and_sink_for_batches_and_streams(
    make_feed: Callable[..., Feed], tmp_path: Path
) -> None:
    feed, target = make_feed(), make_feed(allow_atomic=True)
    feed.publish_numbers(1, 5)
    (tmp_path / "query.py").write_text(CONNECT)
    for each in (feed, target):
        each.link.close()  # it would not answer the server's pings in all that time
    run([sys.executable, "query.py", feed.url, feed.name, target.name], tmp_path)
    for each in (feed, target):
        each.control.link = each.link = each.connect()
    assert all_is_shown_as_read(feed)
    last = target.control.stream_info().state.last_seq
    written: dict[str, list[bytes]] = {}
    for row in target.stored(range(1, last + 1)):
        written.setdefault(row.subject.decode().split(".")[1], []).append(row.payload)
    numbers = [b"m%d" % number for number in range(1, 6)]
    del written["_sink"]
    assert written == {"plain": numbers, "batch": numbers, "stream": numbers}
