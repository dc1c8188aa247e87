"""One run of a pipeline's queries in a session of Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from . import backlog
from .checkpoints import checkpoint_of, exclusively
from .frames import start
from .model import Declared, Sink
from .queries import SparkQuery
from .running import Ended, Runner, Watcher
from .session import check_java, settings_of, start_session
from .totals import Totals
from .triggers import Trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def log_of(declared: Declared) -> Path:
    """Where Spark's own words go."""
    folder = declared.checkpoint_path if declared.is_local_checkpoint else declared.file.parent
    return folder / declared.name / "spark.log"


def session_of(declared: Declared) -> SparkSession:
    """A session for a pipeline. Raises ConfigurationError: there is no Java for it."""
    if declared.master.startswith("local"):
        check_java()
    return start_session(
        f"headrace pipeline {declared.name}",
        declared.master,
        settings_of(declared),
        log_of(declared),
        declared.file.parent.absolute(),
    )


def run_here(
    declared: Declared,
    spark: SparkSession,
    watcher: Watcher,
    *,
    once: bool = False,
    on_runner: Callable[[Runner], object] | None = None,
) -> list[Ended]:
    """Run a pipeline's queries in a session until they are done or stopped.

    Args:
        once: everything that is there, then an end, whatever the triggers say.
        on_runner: is handed the runner, which another thread may stop.

    Raises:
        ConfigurationError: the pipeline runs already on this machine.
    """
    runner = partial(_runner, declared, spark, watcher, once=once, on_runner=on_runner)
    if declared.lease is not None:
        return runner().run()  # the lease sees to it, and a frozen holder must not be waited for
    with exclusively(declared):
        return runner().run()


def _runner(
    declared: Declared,
    spark: SparkSession,
    watcher: Watcher,
    *,
    once: bool,
    on_runner: Callable[[Runner], object] | None,
) -> Runner:
    def begin(sink: Sink, trigger: Trigger) -> SparkQuery:
        generation = checkpoint_of(declared, sink.name).current()
        return SparkQuery(declared, start(spark, declared, sink, generation, trigger))

    def totals(sink: Sink) -> Totals:
        return Totals(checkpoint_of(declared, sink.name).current().totals)

    runner = Runner(
        declared,
        begin,
        totals,
        watcher,
        time.time,
        time.sleep,
        partial(backlog.of_sink, declared),
        once,
    )
    if on_runner is not None:
        on_runner(runner)
    return runner
