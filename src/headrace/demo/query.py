"""The Spark part: the declared pipeline ``flights.toml``, run until nothing is left to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import ConfigurationError
from ..pipeline.declaring.reading import read
from ..pipeline.failures.causes import Poison
from ..pipeline.failures.supervising import Outage
from ..pipeline.model import Declared, PipelineError
from ..pipeline.running.run import run_here
from ..pipeline.session.session import check_java as _check_java
from ..pipeline.session.session import settings_of, start_session
from ..pipeline.standby.rehearsal import GivenUpError, Rehearsal
from ..pipeline.standby.state import Ready
from ..pipeline.status.status import status_of
from .errors import DemoError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline.checkpoints.totals import Batch, Totals, ViewRows
    from ..pipeline.failures.supervising import Outage
    from ..pipeline.running.runner import Ended, Runner
    from ..spark.lost_messages import Loss

FILE: Final = Path(__file__).with_name("flights.toml")
VIEW: Final = "checked"


def check_java() -> None:
    """Raise DemoError unless a Java runtime for Spark is installed."""
    try:
        _check_java()
    except ConfigurationError as error:
        raise DemoError(str(error)) from error


def declare(directory: Path, server: str, master: str, tasks: int, batch: int) -> Declared:
    """The pipeline of the demo, with its places and sizes filled in."""
    variables = {
        "DIRECTORY": str(directory.absolute()),
        "SERVER": server,
        "MASTER": master,
        "TASKS": str(tasks),
        "BATCH": str(batch),
    }
    return read(FILE, environment=variables)


def start_spark(declared: Declared, log: Path) -> SparkSession:
    """A small session whose output, and that of all its processes, goes to ``log``."""
    return start_session("headrace demo", declared.master, settings_of(declared), log)


class Start:
    """Starts Spark, and rehearses the query: Java loads what it needs, and the Python workers are there.

    What the rehearsal finds wrong the run finds, too, and says.
    """

    def __init__(self, declared: Declared, log: Path) -> None:
        self._declared = declared
        self._log = log
        self._rehearsal: Rehearsal | None = None
        self._is_hurried = False

    def run(self) -> SparkSession:
        """Returns the session."""
        spark = start_spark(self._declared, self._log)
        self._rehearsal = Rehearsal(self._declared, spark)
        if not self._is_hurried:
            with contextlib.suppress(GivenUpError):
                self._rehearsal.run()
        return spark

    def hurry(self) -> None:
        """Rehearse no longer: there is something to do. From any thread."""
        self._is_hurried = True
        if self._rehearsal is not None:
            self._rehearsal.give_up()


def is_done(declared: Declared) -> bool:
    """Whether nothing is left to read, by the checkpoint and the server alone."""
    (status,) = status_of(declared)
    return status.finished == status.planned >= 0 and status.waiting == 0


def quality(declared: Declared) -> ViewRows | None:
    """The rows that were checked in all runs, and how many failed each expectation."""
    (status,) = status_of(declared)
    return status.totals.views.get(VIEW)


class FlightQuery:
    """One run of the pipeline. ``on_batch(legs)`` is called after each batch that is complete."""

    def __init__(
        self, declared: Declared, spark: SparkSession, on_batch: Callable[[int], None]
    ) -> None:
        self._declared = declared
        self._spark = spark
        self._on_batch = on_batch
        self._runner: Runner | None = None

    def run(self) -> int:
        """Process all new messages. Returns their number.

        Raises:
            PipelineError: the query failed; its line and one sentence.
        """
        (ended,) = run_here(self._declared, self._spark, self, on_runner=self._take)
        if ended.problem is not None:
            raise PipelineError([ended.problem])
        return ended.rows

    def stop(self) -> None:
        """End it; a batch in progress leaves nothing that counts as complete."""
        if self._runner is not None:
            self._runner.stop("interrupted", at_once=True)

    def _take(self, runner: Runner) -> None:
        self._runner = runner

    # What the runner tells

    def batch(self, batch: Batch, totals: Totals) -> None:
        self._on_batch(batch.rows)

    def starting(self, what: str) -> None: ...
    def standby(self, holder: str, ready: Ready) -> None: ...
    def standing(self, ready: Ready) -> None: ...
    def active(self, token: int, nobody_s: float | None) -> None: ...
    def started(self, query: str) -> None: ...
    def lost(self, query: str, loss: Loss) -> None: ...
    def waiting(self, query: str, why: str) -> None: ...
    def away(self, query: str, outage: Outage) -> None: ...
    def back(self, query: str) -> None: ...
    def restarting(self, query: str, attempt: int, cause: str, wait_s: float) -> None: ...
    def poison(self, query: str, poison: Poison, *, quarantined: bool) -> None: ...
    def stopping(self, why: str) -> None: ...
    def ended(self, ended: Ended) -> None: ...
