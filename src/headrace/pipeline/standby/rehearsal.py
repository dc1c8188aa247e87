"""A rehearsal: every query's own plan, once, over no rows, in the session that may have to run it.

Java has then loaded what the queries need, Spark has looked its sources and sinks up and planned, and the
Python workers are there. Views that are Python functions are called, as they are to build the graph; what
they hand to Spark for rows (``mapInArrow``, a UDF) is planned and not called, nor is a sink's function,
unless the file asks for it (``rehearse``): then they are called with no rows.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..checking.refusals import refusals
from ..checking.sources_and_sinks import check
from ..checkpoints.fingerprints import of_frame
from ..checkpoints.folders import is_local
from ..graph import upstream_of
from ..model import (
    FILE_SINKS,
    WRITTEN_AS_FILES,
    Declared,
    Function,
    PipelineError,
    Place,
    Problem,
    Sink,
    Source,
)
from ..options import options_of_sink
from ..queries import conditions
from ..queries.frames import Frames, counted, loaded
from ..queries.handlers import takes_run
from ..spark_errors import sentence_of
from .dry import DRY, STREAM_OF, TASKS, DrySource, unchanged
from .readiness import in_turn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JETSTREAM: Final = "jetstream"
LOOK_S: Final = 0.5
TASKS_MAX: Final = 8
"""Of workers that are kept: a driver of many cores needs few of them at once."""
FRONT: Final = "headrace-rehearsal-"
BATCH: Final = -1
RUN: Final = "rehearsal"
"""What a sink's function is called with in a rehearsal, if it asks to be called."""


class GivenUpError(Exception):
    """The rehearsal was told to end."""


class Rehearsal:
    """Rehearses a pipeline in a session of its own, which shares Java and Python with the runner's.

    Attributes:
        step: what it is at, for people.
    """

    def __init__(self, declared: Declared, spark: SparkSession) -> None:
        self._declared = declared
        self._session = spark.newSession()
        _register(self._session)
        self._given_up = threading.Event()
        self.step = ""

    def give_up(self) -> None:
        """End soon; from any thread."""
        self._given_up.set()

    def run(self) -> list[Problem]:
        """Rehearse. Returns why this runner could not take over, as far as is seen now.

        Raises:
            GivenUpError: it was told to end.
        """
        self.step = "waiting for its turn"
        waiting = self._given_up
        with in_turn(waiting.is_set, waiting.wait, time.monotonic), _active(self._session):
            return self._run()

    def keep_warm(self) -> None:
        """Use each kind of Python worker once: Spark ends those that have had nothing to do for a minute."""
        with _active(self._session):
            self._use_workers()

    def _run(self) -> list[Problem]:
        declared = self._declared
        self.step = "looking at the file, its servers and its checkpoints"
        problems = check(declared)[0] or refusals(declared)
        problems += _folders(declared)
        for sink in declared.sinks.values():
            self._go_on()
            self.step = f"rehearsing query {sink.name!r}"
            try:
                self._rehearse(sink)
            except PipelineError as error:
                problems += error.problems
        if not problems:
            self.step = "starting Python workers"
            self._use_workers()
        self.step = ""
        return list(dict.fromkeys(problems))

    def _use_workers(self) -> None:
        tasks = min(TASKS_MAX, int(self._session.sparkContext.defaultParallelism))
        rows = self._session.read.format(DRY).option(TASKS, str(tasks)).load()
        if any(view.function for view in self._declared.views.values()):
            rows = rows.mapInArrow(unchanged, rows.schema)  # workers of users' code are others
        rows.write.format(DRY).mode("append").save()

    def _rehearse(self, sink: Sink) -> None:
        """Raises PipelineError: the query would not run."""
        try:
            if sink.function is not None:
                loaded(sink.function)
            tasks = 1 if self._may_call(sink) else 0
            frame = _DryFrames(self._session, self._declared, sink.name, tasks).of_sink(sink)
            of_frame(self._declared, sink, frame, self._session)
            if conditions.is_counted(sink):
                frame = counted(frame)
            self._go_on()
            self._look_up(sink)
            with _scratch() as folder:
                self._run_once(sink, frame, folder)
        except (PipelineError, GivenUpError):
            raise
        except Exception as error:
            raise PipelineError([Problem(sink.place, sentence_of(error))]) from error

    def _may_call(self, sink: Sink) -> bool:
        """Whether the query may run a task: it calls what Python functions have made, also without rows."""
        views = self._declared.views
        used = [views[name] for name in upstream_of(self._declared, sink) if name in views]
        return all(view.rehearse for view in used if view.function is not None)

    def _look_up(self, sink: Sink) -> None:
        """Whether Spark knows the sink's format. Raises what Spark says."""
        if sink.format and sink.format != JETSTREAM:
            spark: Any = self._session
            state = spark._jsparkSession.sessionState()
            found = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource
            found.lookupDataSource(sink.format, state.conf())

    def _run_once(self, sink: Sink, frame: DataFrame, folder: Path) -> None:
        if not self._declared.master.startswith("local"):  # executors have no such folder
            executed: Any = frame
            executed._jdf.queryExecution().executedPlan()
            return
        writer: Any = frame.writeStream.outputMode(sink.mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        options = options_of_sink(self._declared, sink, "")
        if sink.format == JETSTREAM and sink.mode == "append":
            writer = writer.format(DRY).options(**options, **{STREAM_OF: "1"})
        elif sink.format == JETSTREAM:
            writer = writer.foreachBatch(partial(_write_dry, options))
        elif sink.format.lower() in FILE_SINKS:
            kept = {name: text for name, text in options.items() if name.lower() != "path"}
            writer = writer.format(sink.format).options(**kept, path=str(folder / "files"))
            if sink.partition_by:
                writer = writer.partitionBy(*sink.partition_by)
        elif sink.function is not None:
            writer = writer.foreachBatch(
                _called_dry(sink.function) if sink.rehearse else _write_nowhere
            )
        else:
            writer = writer.format("noop")
        query = writer.start()
        try:
            while not query.awaitTermination(LOOK_S):
                self._go_on()
        finally:
            if query.isActive:
                query.stop()

    def _go_on(self) -> None:
        if self._given_up.is_set():
            raise GivenUpError


class _DryFrames(Frames):
    """The frames of a query whose sources are looked up, then replaced by ones of the same columns."""

    def __init__(self, spark: SparkSession, declared: Declared, query: str, tasks: int) -> None:
        super().__init__(spark, declared, query)
        self._tasks = tasks

    def _read(self, source: Source) -> DataFrame:
        schema = super()._read(source).schema
        session: Any = self._spark
        reader = session.readStream if source.streaming else session.read
        dry: DataFrame = reader.format(DRY).schema(schema).option(TASKS, str(self._tasks)).load()
        return dry


def _register(session: SparkSession) -> None:
    """Let a session know ``DrySource`` as one that Spark has found by its name, as ``jetstream`` is.

    Spark hands those another environment than the ones that are registered, and keeps Python workers apart
    by it: the workers that a rehearsal leaves are then those that the pipeline's own batches need.
    """
    from pyspark.serializers import CloudPickleSerializer

    spark: Any = session
    apache = spark._jvm.org.apache.spark
    pickled: Any = CloudPickleSerializer().dumps(DrySource)  # type: ignore[no-untyped-call]
    python = getattr(getattr(apache.api.python, "PythonUtils$"), "MODULE$")
    function = python.createPythonFunction(bytearray(pickled))
    found = apache.sql.execution.datasources.v2.python.UserDefinedPythonDataSource(function)
    spark._jsparkSession.dataSource().registerPython(DRY, found)


@contextmanager
def _active(session: SparkSession) -> Iterator[None]:
    """Spark finds sources of the session by their names meanwhile, on this thread."""
    spark: Any = session
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _write_dry(options: dict[str, str], frame: DataFrame, _batch: int) -> None:
    kept = {name: text for name, text in options.items() if name.lower() != "mode"}
    frame.write.format(DRY).options(**kept, **{STREAM_OF: "1"}).mode("append").save()


def _called_dry(function: Function) -> Callable[[DataFrame, int], None]:
    """A sink's function, with a number and a run that no batch ever has."""
    call = loaded(function)
    run = [RUN] if takes_run(function) else []
    return lambda frame, _batch: call(frame, BATCH, *run)


def _write_nowhere(frame: DataFrame, _batch: int) -> None:
    frame.write.format("noop").mode("overwrite").save()


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=FRONT))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folders(declared: Declared) -> Iterator[Problem]:
    """Folders of this machine that the queries could not write into."""
    if declared.is_local_checkpoint:
        yield from _unwritable(declared.checkpoint_path.absolute(), declared.place, "checkpoints")
    for sink in declared.sinks.values():
        if sink.format.lower() in WRITTEN_AS_FILES:
            options = options_of_sink(declared, sink, "")
            path = next((text for name, text in options.items() if name.lower() == "path"), "")
            if path and is_local(path):
                yield from _unwritable(Path(path.removeprefix("file:")), sink.place, "files")


def _unwritable(folder: Path, place: Place, what: str) -> Iterator[Problem]:
    there = next((each for each in (folder, *folder.parents) if each.exists()), None)
    if there is None or not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield Problem(place, f"{what} cannot be written into {folder}: {there} cannot be written")
