"""A Spark query from a stream to a stream: how fast a sink with a key is beside one without.

``python bench/keyed.py [MESSAGES] [ROUNDS]``: rows a second, the best of the rounds, on our broker and on
nats-server; for few keys with many rows each, and for a key for each row, over the values of a batch before.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1] / "tests")

import peers  # noqa: E402
from spark.conftest import Feed  # noqa: E402

KEYS = 1000


def main(messages: int, rounds: int) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    for name, start in (
        ("headrace", peers.start_headrace),
        ("nats-server", peers.start_nats_server),
    ):
        with tempfile.TemporaryDirectory() as folder:
            server = start(Path(folder))
            try:
                _measure(spark, name, server.url, messages, rounds)
            finally:
                server.stop()
    spark.stop()


def _measure(spark: Any, name: str, url: str, messages: int, rounds: int) -> None:
    feed = Feed(url)
    feed.publish(["a"] * messages, lambda index: b'{"n":%d,"text":"%b"}' % (index, b"x" * 80))
    rows = spark.read.format("jetstream").options(servers=url, minMessagesPerTask=1).load(feed.name)
    rows = rows.selectExpr("sequence", "data", f"sequence % {KEYS} AS few", "sequence AS own")
    out = Feed(url, allow_direct=True, max_msgs_per_subject=1, storage="memory")
    plain = _rate(rows, url, out, "own", messages, rounds)
    few = _rate(rows, url, out, "few", messages, rounds, key="few")
    own = _rate(rows, url, out, "own", messages, rounds, key="own")
    print(
        f"{name}: without a key {plain:,.0f} rows/s; {KEYS} keys {few:,.0f} ({few / plain:.2f}); "
        f"a key for each row {own:,.0f} ({own / plain:.2f})"
    )
    for each in (feed, out):
        each.close()


def _rate(
    rows: Any, url: str, out: Feed, column: str, count: int, rounds: int, **key: str
) -> float:
    subject = f"{out.name}.{column}.{{{column}}}"
    best = 0.0
    for _ in range(rounds + 1):  # the first one is not counted: there are no values yet
        begin = time.perf_counter()
        writer = rows.write.format("jetstream").mode("append")
        writer.options(servers=url, subject=subject, **key).save(out.name)
        took = time.perf_counter() - begin
        if _:
            best = max(best, count / took)
    return best


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*(given + [200_000, 3][len(given) :]))
