"""Orders of a stream as a table, their totals, and the paid ones in another stream.

A Declarative Pipeline of Spark: the stream is a streaming source like any other, and a sink. See
docs/pipelines.md for how to run it.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
SERVERS = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")


@dp.table
def orders() -> DataFrame:
    """One row per message; each run reads what came since the last one."""
    stream = spark.readStream.format("jetstream").options(servers=SERVERS, stream="ORDERS")
    order = "from_json(CAST(data AS string), 'id int, paid boolean, amount double') AS o"
    return stream.load().selectExpr("sequence", order).select("sequence", "o.*")


@dp.materialized_view
def totals() -> DataFrame:
    """What was ordered, paid or not."""
    return spark.read.table("orders").groupBy("paid").agg({"amount": "sum", "id": "count"})


dp.create_sink(
    "paid_orders",
    "jetstream",
    {
        "servers": SERVERS,
        "stream": "PAID",
        "subject": "paid.{id}",
        "delivery": "exactlyOnce",
        "sinkId": "paid-orders",
    },
)


@dp.append_flow(target="paid_orders")
def paid() -> DataFrame:
    """Each paid order, once, as JSON."""
    return spark.readStream.table("orders").where("paid").select("id", "amount")
