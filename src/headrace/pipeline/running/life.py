"""The life of a runner: session, queries, signals, end."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from ...errors import ConfigurationError
from ..checkpoints.checkpoint import checkpoint_of, interrupted
from ..failures.supervising import JavaLost
from ..lease import Standby
from ..model import NO_CONSENT, Consent, Declared, LeaseSettings, Problem, Sink
from ..standby.readiness import Readiness, in_turn
from ..standby.state import Ready
from .run import alone, run_here, session_of
from .runner import Ended, Runner, Watcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..standby.rehearsal import Rehearsal

LOOK_S: Final = 0.2
FIRST_S: Final = 1.0
"""A runner that gets its lease within this does not stand by."""
_REASONS: Final = {signal.SIGINT: "interrupted", signal.SIGTERM: "asked to end"}


class Life:
    """One runner of a pipeline, from its start to its end.

    Args:
        once: what is there now, then an end.
        consent: what the user has agreed to for this run.

    Attributes:
        signals: how often each signal came, by name.
        java_lost: how often Java was lost by now, where it was and everything is to be begun again.
    """

    def __init__(
        self,
        declared: Declared,
        watcher: Watcher,
        *,
        once: bool = False,
        consent: Consent = NO_CONSENT,
    ) -> None:
        self._declared = declared
        self._watcher = watcher
        self._once = once
        self._consent = consent
        self._runner: Runner | None = None
        self._why = ""
        self._lost_why = ""
        self.signals: dict[str, int] = {}
        self.java_lost: JavaLost | None = None

    @property
    def begins_anew(self) -> JavaLost | None:
        """Java was lost and nobody has asked for an end: another process is to take this one's place."""
        return self.java_lost if not self.signals else None

    def run(self) -> list[Ended]:
        """Run until the queries are done, or a signal came. Returns how each query ended.

        With a lease it waits for it first, the session warm; when the lease is lost, the queries end at once,
        and it stands by again. The first Ctrl-C or SIGTERM lets running batches finish, the second ends at
        once.

        Raises:
            ConfigurationError: there is no Java, or the pipeline runs already on this machine.
        """
        with self._signals(), alone(self._declared):  # said before Java has taken its seconds
            self._watcher.starting("Spark")
            try:
                spark = self._session()
            except (ConfigurationError, PySparkRuntimeError, Py4JError):
                if self._why:  # the same signal has reached Java before it was shielded
                    return []
                raise
            try:
                self._listen()  # Spark has put its own handler there
                if self._declared.lease is None:
                    return self._turn(spark)
                return self._turns_under(self._declared.lease, spark)
            finally:
                _stop(spark)

    def _session(self) -> SparkSession:
        """With a lease one runner of a machine starts at a time: an active one there needs its processors."""
        if self._declared.lease is None:
            return session_of(self._declared)
        with in_turn(lambda: bool(self._why), time.sleep, time.monotonic):
            return session_of(self._declared)

    def _turn(self, spark: SparkSession) -> list[Ended]:
        """The queries, until they are done or stopped."""
        if self._why:
            return []
        try:
            ended = run_here(
                self._declared,
                spark,
                self._watcher,
                once=self._once,
                consent=self._consent,
                on_runner=self._take,
                is_alone=True,
            )
            if self._runner is not None and self._runner.needs_new_java:
                self.java_lost = self._runner.java_lost
            return ended
        finally:
            self._runner = None

    def _turns_under(self, settings: LeaseSettings, spark: SparkSession) -> list[Ended]:
        """The queries whenever the lease is ours; the session is warm already when it is won."""
        name = self._declared.name
        ended: list[Ended] = []
        with Standby(settings, name, self._lost) as standby, self._ending_tasks(spark):
            while not self._why:
                token = self._wait(standby, spark)
                if not token:
                    break
                self._lost_why = ""
                self._watcher.active(token, standby.nobody_s())
                ended = self._turn(spark)
                if standby.token == token and not self._lost_why:
                    break
        return ended

    @contextmanager
    def _ending_tasks(self, spark: SparkSession) -> Iterator[None]:
        """End what a cut-off batch has left: Spark does not wait for its tasks when it stops a query.

        They would write on while another runner has the lease, so Spark ends before it is given back. That
        takes a moment, so it is done only where a batch is not finished, or that is not known.
        """
        is_over = False
        try:
            yield
            sinks = self._declared.sinks.values()
            is_over = self._declared.is_local_checkpoint and not any(map(self._is_cut_off, sinks))
        finally:
            if not is_over:
                _stop(spark)

    def _is_cut_off(self, sink: Sink) -> bool:
        return interrupted(checkpoint_of(self._declared, sink.name).current()) is not None

    def _wait(self, standby: Standby, spark: SparkSession) -> int:
        """Stand by, and get ready meanwhile. Returns the token; 0 if it is to end."""
        if token := standby.wait(FIRST_S):
            return token
        declared = self._declared
        readiness = Readiness(
            lambda: _rehearsal(declared, spark),
            lambda text: Problem(declared.place, text),
            time.time,
            time.monotonic,
        )
        said: tuple[str, Ready] | None = None
        with readiness:
            while not self._why:
                now = standby.holder(), readiness.now
                if said != now:
                    said = now
                    self._watcher.standby(*now)
                if token := standby.wait(LOOK_S):
                    return token
                self._watcher.standing(readiness.now)
        return 0

    def _lost(self, why: str) -> None:
        """On the lease's thread: what runs ends at once, before another runner begins."""
        self._lost_why = why
        if (runner := self._runner) is not None:
            runner.stop(why, at_once=True)

    def _take(self, runner: Runner) -> None:
        self._runner = runner
        if self._why or self._lost_why:
            runner.stop(self._why or self._lost_why)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        again = bool(self.signals)
        self.signals[name] = self.signals.get(name, 0) + 1
        self._why = self._why or _REASONS[signal.Signals(number)]
        if self._runner is not None:
            self._runner.stop(self._why, at_once=again)
        elif again:
            raise KeyboardInterrupt

    def _listen(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in _REASONS:
                signal.signal(number, self._on_signal)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {number: signal.getsignal(number) for number in _REASONS}
        self._listen()
        try:
            yield
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in before.items():
                    signal.signal(number, handler)


def _stop(spark: SparkSession) -> None:
    with contextlib.suppress(Py4JNetworkError, OSError):  # its process has gone already
        spark.stop()


def _rehearsal(declared: Declared, spark: SparkSession) -> Rehearsal:
    from ..standby.rehearsal import Rehearsal

    return Rehearsal(declared, spark)
