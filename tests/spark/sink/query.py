"""A driver of its own: writes one stream to another exactly once, and the latest of each key beside it, to
the end of what is there.

Arguments: URL, source, target, checkpoint. Ends with 0, or with 1 when its query died.
"""

from __future__ import annotations

import os
import sys


def main(url: str, source: str, target: str, checkpoint: str) -> int:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("headrace kills")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "WARN")
        .getOrCreate()
    )
    df = (
        spark.readStream.format("jetstream")
        .option("servers", url)
        .option("maxOffsetsPerTrigger", 1000)
        .option("minMessagesPerTask", 300)
        .load(source)
    )
    query = (
        df.writeStream.format("jetstream")
        .option("servers", url)
        .option("stream", target)
        .option("subject", f"{target}.rows")
        .option("delivery", "exactlyOnce")
        .option("sinkId", "kills")
        .option("rowsPerAtomicBatch", 3)  # so that a task takes long enough to be killed in it
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    latest = (
        df.selectExpr("sequence", "data", "CAST(sequence % 50 AS int) AS k")
        .writeStream.format("jetstream")
        .option("servers", url)
        .option("stream", target)
        .option("subject", f"{target}.last.{{k}}")
        .option("key", "k")
        .option("checkpointLocation", f"{checkpoint}-latest")
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
        latest.awaitTermination()
    except StreamingQueryException as error:
        print(str(error)[:2000], flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
