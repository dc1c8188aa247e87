"""Runs of a pipeline in a session of Spark: its queries as declared, or a range of a stream once more."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...errors import ConfigurationError
from ..checking import backlog
from ..checking.refusals import refusal
from ..checking.replay_edges import partial_windows, refuse_only_for_streams
from ..checkpoints.bindings import newest
from ..checkpoints.checkpoint import Start, checkpoint_of, exclusively, interrupted, notes_of
from ..checkpoints.fingerprints import plan_of
from ..checkpoints.folders import LocalFolder, is_local
from ..checkpoints.sink_log import SPARK_LOG
from ..checkpoints.totals import Totals
from ..failures.findings import Verdict
from ..failures.java import VARIABLE, JavaLost
from ..failures.poison import Search
from ..failures.remedies import remedy
from ..failures.servers import Servers, servers_of
from ..failures.supervising import ONCE_WAITS_S, Supervisor
from ..graph import streaming_of
from ..model import (
    DEFAULT_RESTARTS,
    NO_CONSENT,
    NO_RESTARTS,
    WRITTEN_AS_FILES,
    Consent,
    Declared,
    Sink,
)
from ..options import JETSTREAM, options_of_sink
from ..problems import PipelineError, Problem
from ..queries.frames import Frames, loaded, start
from ..queries.handlers import Replay
from ..queries.numbered import refuse_older_values
from ..resets import last_of, streams_of
from ..session.session import check_java, settings_of, start_session
from ..spark_errors import sentence_of
from ..triggers import Trigger
from .query import SparkQuery
from .runner import Ended, Runner, Watcher

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
    consent: Consent = NO_CONSENT,
    on_runner: Callable[[Runner], object] | None = None,
    is_alone: bool = False,
) -> list[Ended]:
    """Run a pipeline's queries in a session until they are done or stopped.

    Args:
        once: everything that is there, then an end, whatever the triggers say.
        consent: what the user has agreed to for this run.
        on_runner: is handed the runner, which another thread may stop.
        is_alone: the caller has the pipeline's lock.

    Raises:
        ConfigurationError: the pipeline runs already on this machine.
    """
    runner = partial(
        _runner, declared, spark, watcher, once=once, consent=consent, on_runner=on_runner
    )
    with nullcontext() if is_alone else alone(declared), servers_of(declared, time.time) as servers:
        return runner(servers).run()


def supervisor_of(declared: Declared, servers: Servers, *, once: bool) -> Supervisor:
    """What becomes of failures and outages, as the file has it.

    Where it says nothing, ``run`` begins failed queries again and ``once`` does not; and a server that is
    away is waited for without end, by ``once`` for two minutes. With ``restart = false`` nothing is
    begun again.
    """
    restart = declared.restart or (NO_RESTARTS if once else DEFAULT_RESTARTS)
    wait_s = declared.wait_for_server_s or (ONCE_WAITS_S if once else math.inf)
    if declared.restart == NO_RESTARTS:
        wait_s = 0.0
    lost = JavaLost.read(os.environ.get(VARIABLE, ""))
    is_leased = declared.lease is not None
    return Supervisor(restart, servers, wait_s, time.time, lost, is_leased=is_leased)


def alone(declared: Declared) -> AbstractContextManager[None]:
    """While no other process on this machine runs the pipeline.

    With a lease it sees to that, and a frozen holder must not be waited for.
    """
    return exclusively(declared) if declared.lease is None else nullcontext()


def _runner(
    declared: Declared,
    spark: SparkSession,
    watcher: Watcher,
    servers: Servers,
    *,
    once: bool,
    consent: Consent,
    on_runner: Callable[[Runner], object] | None,
) -> Runner:
    def begin(sink: Sink, trigger: Trigger) -> SparkQuery:
        generation = checkpoint_of(declared, sink.name).current()
        if problem := refusal(declared, sink, again=consent.again):
            raise PipelineError([problem])
        twice = interrupted(generation)
        losses = notes_of(declared, generation, sink.name)
        query, note, run = start(spark, declared, sink, generation, trigger, consent=consent)
        heeds = all(each.format == "jetstream" for each in streaming_of(declared, sink))
        return SparkQuery(declared, query, twice, losses, note, run=run, heeds=heeds)

    def totals(sink: Sink) -> Totals:
        generation = checkpoint_of(declared, sink.name).current()
        return Totals(generation.totals, is_new=generation.is_new)

    def search(sink: Sink) -> Verdict:
        generation = checkpoint_of(declared, sink.name).current()
        return Search(spark, declared, sink, generation, lambda: runner.is_stopping).run()

    runner = Runner(
        declared,
        begin,
        totals,
        watcher,
        time.time,
        time.sleep,
        partial(backlog.of_sink, declared),
        once,
        supervisor_of(declared, servers, once=once),
        search,
        partial(remedy, declared),
    )
    if on_runner is not None:
        on_runner(runner)
    return runner


_DONE: Final = "_SUCCESS"
_GENERATION: Final = re.compile(r"g\d+")


def replay(
    declared: Declared,
    spark: SparkSession,
    sink: Sink,
    into: Sink,
    name: str,
    begin: Start,
    end: Start,
) -> list[str]:
    """Write the rows that ``sink`` would get of a fixed range, as one batch; its checkpoint is not touched.

    Args:
        into: whose format and options are used; ``sink`` itself, or another one.
        name: sets the results apart: files go to ``<path>-<name>``, a ``sinkId`` becomes ``<sinkId>-<name>``.
        begin, end: both inclusive; ``end`` may be ``latest``.

    Returns:
        What the rows lack beside those of the query: windows that the range begins or ends in.

    Raises:
        ConfigurationError: there are results of this name already, or a source cannot be read again, or Spark
            runs the query in streams only.
        PipelineError: it failed, in the line of what failed.
    """
    refuse_older_values(sink, into)
    if _GENERATION.fullmatch(name):
        raise ConfigurationError(
            f"the name {name!r} is that of a generation, whose results lie there; choose another name"
        )
    streams = streams_of(declared, sink)
    bounds = {each.name: _bounds(begin, end) for each in streams}
    again = Replay(declared, into, name) if into.function is not None else None
    if again is not None:
        asked = {"from": str(begin), "to": str(end), "of": sink.name}
        bounds = again.bounds(
            asked, lambda: {each.name: _bounds(begin, last_of(each, end)) for each in streams}
        )
    frame = Frames(spark, declared, sink.name, bounds=bounds).of_sink(sink)
    plan = plan_of(frame, spark)
    refuse_only_for_streams(declared, sink, plan)
    lacking = partial_windows(plan, streams, bounds)
    options = options_of_sink(declared, into, f"-{name}")
    if into.format == JETSTREAM and "sinkid" in {each.lower() for each in options}:
        options["batchId"] = "0"  # a replay is one batch, and again the same one if it was killed
    try:
        if into.function is not None and again is not None:
            again.call(into.function, loaded(into.function), frame)
            return lacking
        writer: Any = frame.write.format(into.format).mode(_mode(into, options)).options(**options)
        if into.partition_by:
            writer = writer.partitionBy(*into.partition_by)
        writer.save()
    except ConfigurationError:
        raise
    except Exception as error:
        raise PipelineError([Problem(into.place, sentence_of(error))]) from error
    return lacking


def _bounds(begin: Start, end: Start) -> dict[str, str]:
    options = begin.options({})
    if end.kind == "time":
        return options | {"endingTimestamp": end.value}
    return options | {"endingOffsets": end.value or end.kind}


def _mode(into: Sink, options: dict[str, str]) -> str:
    """Files of a replay that was killed are replaced; those of a finished one are not."""
    path = next((value for key, value in options.items() if key.lower() == "path"), "")
    if into.format.lower() not in WRITTEN_AS_FILES or not is_local(path):
        return "append"
    if (Path(path) / _DONE).exists():
        raise ConfigurationError(
            f"{path} has the results of an earlier replay; choose another name"
        )
    if newest(LocalFolder(Path(path)), SPARK_LOG) >= 0:
        raise ConfigurationError(f"{path} has the results of a query; choose another name")
    return "overwrite"
