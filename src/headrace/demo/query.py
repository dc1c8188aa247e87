"""The Spark part: one streaming query from the stream into Parquet.

Structured streaming reads the available messages (``availableNow``) in micro-batches of exact ranges, split
by partition, so that one task sees all legs of its aircraft in order. ``foreachBatch`` follows the chains
and passes each batch to ``results``, which makes it visible by one rename.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .chains import LEG_COLUMNS, follow_batches
from .errors import DemoError
from .results import Results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

JAVA_MIN: Final = 17
PROGRESS_CONSUMER: Final = "delays"


def check_java() -> None:
    """Raise DemoError unless a Java runtime for Spark is installed."""
    remedy = (
        f"install a Java runtime, {JAVA_MIN} or newer (on Debian and Ubuntu: default-jre-headless)"
    )
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f" in JAVA_HOME={home}" if home else ""
        raise DemoError(f"Spark needs Java, and there is none{where}; {remedy}.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if found is None:
        raise DemoError(f"{java} does not say its version, so it is no Java for Spark; {remedy}.")
    if int(found[1]) < JAVA_MIN:
        raise DemoError(f"Spark needs Java {JAVA_MIN} or newer, {java} is {found[1]}; {remedy}.")


def start_spark(master: str, log: Path) -> SparkSession:
    """A small session whose output, and that of all its processes, goes to ``log``."""
    # Java starts Spark's workers, and would use any python3 it finds.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Spark's warning about the version of pandas, repeated by each of its modules.
    warnings.filterwarnings("ignore", category=FutureWarning, message="PySpark does not yet")
    with _output_to(log):
        from pyspark.sql import SparkSession

        return (
            SparkSession.builder.master(master)
            .appName("headrace demo")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "WARN")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            # The whole job is too short for Java's optimising compiler to pay off.
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(log.parent / "warehouse"))
            .config("spark.sql.streaming.stopTimeout", "5s")
            .getOrCreate()
        )


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Processes started meanwhile inherit ``log`` as their output."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for descriptor in (*kept, target):
            os.close(descriptor)


@dataclass
class ChainQuery:
    """The query over the messages that the stream holds now.

    ``on_batch(legs)`` is called after each completed batch with the number of its legs.
    """

    spark: SparkSession
    server: str
    stream: str
    partitions: int
    tasks: int
    batch_messages: int
    checkpoint: Path
    results: Results
    on_batch: Callable[[int], None]
    query: StreamingQuery | None = None
    failure: BaseException | None = None

    def run(self) -> int:
        """Process all new messages. Returns their number."""
        counted = 0

        def batch(df: DataFrame, number: int) -> None:
            nonlocal counted
            try:
                legs = self._process(df, number)
            except BaseException as error:
                self.failure = error  # the original; Spark would only keep its text
                raise
            counted += legs
            self.on_batch(legs)

        reader = self.spark.readStream.format("jetstream").schema("sequence bigint, data binary")
        source = reader.options(
            servers=self.server,
            stream=self.stream,
            durable=PROGRESS_CONSUMER,
            splitBy="partition",
            partitions=self.partitions,
            maxTasks=self.tasks,
            maxOffsetsPerTrigger=self.batch_messages,
        ).load()
        writer = source.writeStream.queryName("flight-chains").foreachBatch(batch)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        self.query = writer.trigger(availableNow=True).start()
        try:
            self.query.awaitTermination()
        except Exception as error:
            if self.failure is not None:
                raise self.failure from error
            raise
        return counted

    def stop(self) -> None:
        """End the query; a batch in progress leaves nothing that counts as complete."""
        if self.query is not None and self.query.isActive:
            self.query.stop()

    def _process(self, df: DataFrame, number: int) -> int:
        before = self.results.state_before(number)
        columns = ", ".join(f"{name} {kind}" for name, kind in LEG_COLUMNS.items())
        legs = df.mapInArrow(partial(follow_batches, before), columns)
        legs.write.mode("overwrite").parquet(str(self.results.scratch(number)))
        return self.results.complete(number, before)
