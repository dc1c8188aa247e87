"""Runs of a pipeline in a session of Spark, and its running queries as the runner looks at them."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError

from ...errors import ConfigurationError
from ...spark.ending import announce, forget
from ...spark.lost_messages import Loss, read_losses
from ..checking import backlog
from ..checking.plans import partial_windows, refuse_only_for_streams
from ..checking.refusals import refusal
from ..checkpoints.checkpoint import Start, checkpoint_of, exclusively, interrupted, notes_of
from ..checkpoints.fingerprints import plan_of
from ..checkpoints.folders import LocalFolder, is_local
from ..checkpoints.results_folder import SPARK_LOG, newest
from ..checkpoints.totals import Batch, Totals, ViewRows
from ..failures.causes import SparkGoneError, Verdict, gone, remedy
from ..failures.poison import Search
from ..failures.servers import Servers, servers_of
from ..failures.supervising import ONCE_WAITS_S, VARIABLE, JavaLost, Supervisor
from ..graph import streaming_of
from ..model import (
    DEFAULT_RESTARTS,
    NO_CONSENT,
    NO_RESTARTS,
    WRITTEN_AS_FILES,
    Consent,
    Declared,
    PipelineError,
    Problem,
    Sink,
)
from ..options import JETSTREAM, options_of_sink
from ..queries import conditions
from ..queries.frames import Frames, loaded, start
from ..queries.handlers import Replay, refuse_older_values
from ..resets import last_of, streams_of
from ..session.session import check_java, settings_of, start_session
from ..spark_errors import sentence_of
from ..triggers import Trigger
from .runner import Ended, Phase, Runner, Watcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


T = TypeVar("T")

_END_S: Final = 5.0  # how long a Java that answers no more may take to end
_ASKING: Final = "Getting offsets"


def status_of_java() -> int | None:
    """With what Spark's Java has ended; None if it was not started here, or does not end."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    try:
        return None if process is None else int(process.wait(_END_S))
    except subprocess.TimeoutExpired:
        return None


class SparkQuery:
    """One started query.

    ``again``: the batch that was interrupted before, and runs again. ``losses``: where its sources note what
    they found missing. ``on_first_batch``: called when one has ended. ``ended``: the status with which Java
    has ended. ``run``: what its sources know this start of it by; ``heeds``: whether they all are ours, and
    offer nothing more once the end is announced.
    """

    def __init__(
        self,
        declared: Declared,
        query: StreamingQuery,
        again: int | None = None,
        losses: Path | None = None,
        on_first_batch: Callable[[], object] | None = None,
        ended: Callable[[], int | None] = status_of_java,
        run: str = "",
        heeds: bool = False,
    ) -> None:
        self._declared = declared
        self._query = query
        self._again = again
        self._last = ""
        self._gone: SparkGoneError | None = None
        self._losses = losses
        self._on_first_batch = on_first_batch
        self._ended = ended
        self._run, self._heeds = run, heeds
        self._told: set[Loss] = set()
        self._read_up_to = read_losses(losses)[1] if losses is not None else 0

    def is_active(self) -> bool:
        return self._ask(lambda: bool(self._query.isActive), otherwise=False)

    def phase(self) -> Phase:
        def look() -> Phase:
            status = self._query.status
            if not status["isTriggerActive"]:
                return "idle"
            return "asking" if status["message"].startswith(_ASKING) else "batch"

        return self._ask(look, otherwise="idle")

    def error(self) -> BaseException | None:
        return self._ask(lambda: self._query.exception(), otherwise=None) or self._gone

    def batches(self, after: int) -> list[Batch]:
        return self._ask(lambda: self._batches(after), otherwise=[])

    def losses(self) -> list[Loss]:
        if self._losses is None:
            return []
        found, self._read_up_to = read_losses(self._losses, self._read_up_to)
        new = [each for each in dict.fromkeys(found) if each not in self._told]
        self._told.update(new)
        return new

    def finish(self) -> bool:
        if self._losses is None or not self._run:
            return False
        return announce(str(self._losses), self._run) and self._heeds

    def stop(self) -> None:
        self._ask(lambda: self._query.stop(), otherwise=None)
        if self._losses is not None and self._run:
            forget(str(self._losses))

    def _batches(self, after: int) -> list[Batch]:
        last = self._query.lastProgress
        if last is None or last.json == self._last:
            return []
        found = [json.loads(each.json) for each in self._query.recentProgress]
        ran = [each for each in found if "addBatch" in each["durationMs"]]
        self._last = last.json
        if ran and self._on_first_batch is not None:
            self._on_first_batch()
            self._on_first_batch = None
        return [
            batch_of(self._declared, each, self._again) for each in ran if each["batchId"] > after
        ]

    def _ask(self, ask: Callable[[], T], otherwise: T) -> T:
        """The answer; ``otherwise`` if Spark's process has gone, which then is the query's error."""
        if self._gone is not None:
            return otherwise
        try:
            return ask()
        except Py4JJavaError:
            raise
        except (Py4JError, OSError):  # no Java, or none that answers
            self._gone = gone(self._ended())
            return otherwise


def batch_of(declared: Declared, progress: Mapping[str, Any], again: int | None = None) -> Batch:
    """A finished batch, of what Spark reports about it.

    ``again``: the batch that was interrupted. If its sink has it already Spark runs it without a row.
    """
    sources = progress.get("sources", [])
    views: dict[str, ViewRows] = {}
    for name, observed in progress.get("observedMetrics", {}).items():
        if name in declared.views:
            views[name] = conditions.counted(declared.views[name].expectations, observed)
    distances = [behind(each.get("endOffset"), each.get("latestOffset")) for each in sources]
    known = [each for each in distances if each is not None]
    stateful = progress.get("stateOperators", [])
    number, rows = int(progress["batchId"]), int(progress.get("numInputRows", 0))
    return Batch(
        query=str(progress.get("name") or ""),
        number=number,
        rows=rows,
        seconds=progress["durationMs"].get("triggerExecution", 0) / 1000,
        ends=tuple(_text(each.get("endOffset")) for each in sources),
        behind=sum(known) if known else None,
        views=views,
        was_written=number == again and rows == 0,
        rows_out=_rows_out(declared, progress),
        late=sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in stateful),
        watermark=str(progress.get("eventTime", {}).get("watermark", "")),
    )


def _rows_out(declared: Declared, progress: Mapping[str, Any]) -> int | None:
    """The rows that the sink was handed: counted on the way there, or by the sink; None if by neither."""
    sink = declared.sinks.get(str(progress.get("name")))
    if sink is not None and conditions.is_counted(sink):
        # Spark leaves the counting out of a plan of which it sees that no row comes.
        counted = progress.get("observedMetrics", {}).get(conditions.OUT, {})
        return int(counted.get(conditions.ROWS) or 0)
    told = int(progress.get("sink", {}).get("numOutputRows", -1))
    return told if told >= 0 else None


def behind(end: Any, latest: Any) -> int | None:
    """How many sequences of its streams lie between two offsets; None where that cannot be told."""
    ends, last = _sequences(end), _sequences(latest)
    if not ends or not last:
        return None
    return sum(max(0, seq - ends.get(stream, 0)) for stream, seq in last.items())


def _sequences(offset: Any) -> dict[str, int]:
    """Of each stream; of one that is not named, "" is the name."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(offset, Mapping):
        return {}
    each = offset.get("s") or {"": offset}
    return {name: one["seq"] for name, one in each.items() if isinstance(one.get("seq"), int)}


def _text(offset: Any) -> str:
    if offset is None:
        return ""
    return offset if isinstance(offset, str) else json.dumps(offset, sort_keys=True)


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
