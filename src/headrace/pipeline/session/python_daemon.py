"""Spark's daemon of Python workers, which leaves SIGTERM to the runner: a batch under way needs its workers.

It ends when Java closes its standard input, and its workers with it. SIGTERM is blocked, not ignored: Spark's
daemon sets handlers of its own, in itself and in each worker. Processes that a worker starts inherit that.
"""

from __future__ import annotations

import contextlib
import importlib
import signal

from pyspark.daemon import manager

PRELOADED = (
    "headrace.spark.source",
    "headrace.spark.sink.writer",
    "headrace.spark.tasks.read_slice",
    "headrace.spark.decoding.formats",
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "pyarrow.compute",
    "pandas",  # Arrow loads it with the first array that is made of values
)


def preload() -> None:
    """Import what every worker would import, once: they are forked off this process."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):  # the worker that needs it says so
            importlib.import_module(name)


if __name__ == "__main__":
    preload()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    manager()
