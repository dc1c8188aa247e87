"""How Java starts in tests: most of what a Spark of ours does there is starting, so that is made cheap.

Code is compiled quickly rather than well, and classes come, read and verified, out of an archive below the
Python environment. ``python tests/java_start.py`` writes it (``make test`` does so once): a session does
something of everything, and Java keeps the classes. Java passes over an archive that is missing, or does not
fit it or the jars; Spark then starts as it would without one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from peers import java_is_there

__all__ = ["ARCHIVE", "environment"]

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
# Of a query over some rows, most would be making code for it and compiling that. ``make test-all`` plays with
# what Spark does by itself; so does the demo, always.
INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
NONE = " -Xshare:auto"
"""Tests neither use nor make the archive of the user who runs them."""
WITHIN_S = 600.0


def environment(given: Mapping[str, str], *, interpreted: bool = True) -> dict[str, str]:
    """What makes every Java of Spark quick to start and over some rows, unless something is said already."""
    # One that does not fit would be complained of.
    archive = f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.is_file() else NONE
    wanted = {
        "SPARK_SUBMIT_OPTS": QUICK + archive + f" {INTERPRETED}" * interpreted,
        "SPARK_LAUNCHER_OPTS": QUICK,
    }
    return {name: value for name, value in wanted.items() if name not in given}


def _unchanged(frames: Iterator[Any]) -> Iterator[Any]:
    yield from frames


def exercise(spark: Any, home: Path, url: str) -> None:
    """A batch and two queries: our source, SQL, Python functions, files."""
    numbers = spark.read.format("jetstream").option("servers", url).load("NUMBERS")
    assert numbers.count() == 100
    numbers.createOrReplaceTempView("numbers")
    latest = (
        "SELECT subject, max(timestamp) AS last FROM numbers WHERE sequence > 3 GROUP BY subject"
    )
    spark.sql(latest).write.parquet(str(home / "batch"))
    assert spark.read.parquet(str(home / "batch")).count() == 2
    reader = spark.readStream.format("jetstream").option("servers", url)
    read = reader.load("NUMBERS").selectExpr("sequence", "subject", "CAST(data AS string) AS data")
    read = read.mapInArrow(_unchanged, read.schema)
    for name, kept in (("parquet", read), ("memory", read.groupBy("subject").count())):
        writer = kept.writeStream.format(name).queryName(name).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(home / f"{name}-checkpoint"))
        if name == "parquet":
            writer = writer.option("path", str(home / "stream"))
        else:
            writer = writer.outputMode("complete")
        assert writer.start().awaitTermination(WITHIN_S)


def write_archive(folder: Path) -> None:
    """Run a session of Spark Connect, which has all of Spark in it, and keep what it loaded."""
    from headrace import sync

    written = folder / ARCHIVE.name
    os.environ |= {
        "SPARK_SUBMIT_OPTS": f"{QUICK} -XX:ArchiveClassesAtExit={written} -Xlog:disable",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # Connect's local server takes any free port, not always the same
        "PYSPARK_PYTHON": sys.executable,
    }
    warnings.simplefilter("ignore")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with sync.Broker(store_dir=folder / "broker") as broker:
        with broker.connect() as connection:
            js = connection.jetstream()
            js.create_stream(name="NUMBERS", subjects=["numbers.*"])
            for number in range(100):
                js.publish(f"numbers.{number % 2}", b"%d" % number)
        builder = SparkSession.builder.remote("local[2]")
        for key, value in {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "OFF",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        exercise(spark, folder, broker.client_url)
        gateway: Any = SparkContext._gateway
        java: subprocess.Popen[bytes] = gateway.proc
        spark.stop()
        assert java.stdin is not None
        java.stdin.close()  # it ends, and writes
        java.wait(WITHIN_S)
    written.replace(ARCHIVE)


def main() -> None:
    if not java_is_there():
        return  # there is nothing to be started quickly
    print(f"{ARCHIVE}: keeping the classes of Spark, for tests to start it quickly", flush=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        write_archive(Path(folder))


if __name__ == "__main__":
    main()
