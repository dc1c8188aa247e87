"""Runs the queries of a pipeline: starts each when it is due, looks at it, ends all together.

No Spark here: a query is whatever ``start`` returns. So the tests run this on a clock of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from ...errors import HeadraceError
from ...spark.lost_messages import Loss
from ..checkpoints.totals import Batch, Totals
from ..failures.causes import Cause, Poison, Verdict, cause_of
from ..failures.supervising import TOLD_AFTER_S, Again, JavaLost, Outage, Stop, Supervisor
from ..graph import upstream_of
from ..model import Declared, PipelineError, Problem, Sink
from ..standby.state import Ready
from ..triggers import Trigger

POLL_S: Final = 0.2
ASKING_S: Final = 0.3
"""A query that asks its sources may begin a batch; one that asks longer waits for something new."""

Phase = Literal["idle", "asking", "batch"]
"""What a query is at: nothing, asking its sources what is new, or a batch, from its offsets on."""
State = Literal["waiting", "running", "done", "failed", "not run", "stopped"]


class Query(Protocol):
    """A streaming query of Spark, as far as it is looked at."""

    def is_active(self) -> bool: ...
    def phase(self) -> Phase: ...
    def error(self) -> BaseException | None: ...
    def batches(self, after: int) -> list[Batch]:
        """The batches finished since the one of number ``after``."""

    def losses(self) -> list[Loss]:
        """Messages that its sources found missing, and that were not told before."""

    def finish(self) -> bool:
        """Begin no further batch; whether all its sources see to that."""

    def stop(self) -> None: ...


class Watcher(Protocol):
    """Who is told what happens."""

    def starting(self, what: str) -> None: ...
    def standby(self, holder: str, ready: Ready) -> None:
        """Another runner has the lease; ``""`` for one that is not known. Told anew when either changes."""

    def standing(self, ready: Ready) -> None:
        """This runner still stands by."""

    def active(self, token: int, nobody_s: float | None) -> None:
        """The lease is ours; the token grows with every holder.

        ``nobody_s``: how long ago the holder before us had said its last word; None where that is not known.
        """

    def started(self, query: str) -> None: ...
    def batch(self, batch: Batch, totals: Totals) -> None: ...
    def lost(self, query: str, loss: Loss) -> None:
        """Messages were gone before they were read, and the query goes on without them."""

    def waiting(self, query: str, why: str) -> None: ...
    def away(self, query: str, outage: Outage) -> None:
        """A server of the query is away, for some seconds by now, and is waited for."""

    def back(self, query: str) -> None:
        """That server is there again."""

    def restarting(self, query: str, attempt: int, cause: str, wait_s: float) -> None:
        """The query failed, and is begun again; ``attempt``: how often it was in this run, from 1."""

    def poison(self, query: str, poison: Poison, *, quarantined: bool) -> None:
        """The query's code fails on this message, which then is left out, or ends the query."""

    def stopping(self, why: str) -> None: ...
    def ended(self, ended: Ended) -> None: ...


@dataclass(frozen=True)
class Ended:
    """How a query ended. ``problem``: why it failed, or was not run; ``batches``: finished in this run.

    ``restarts``: how often it was begun again after a failure.
    """

    query: str
    state: State
    totals: Totals
    batches: int
    rows: int
    problem: Problem | None = None
    restarts: int = 0


@dataclass
class _Run:
    """One sink's query, over and over if its trigger says so."""

    sink: Sink
    trigger: Trigger
    totals: Totals
    state: State = "waiting"
    query: Query | None = None
    due: float = 0.0
    waits_since: float | None = None
    seen: int = -1
    batches: int = 0
    rows: int = 0
    problem: Problem | None = None
    said: str = ""
    last_batch: int | None = field(default=None)
    restarts: int = 0
    again_at: float | None = None
    told_away: bool = False
    finishing: bool = False


class Runner:
    """The queries of one pipeline in one session.

    Args:
        start: starts a sink's query.
        totals: the sum of each query's batches so far.
        backlog: how many messages wait for a sink's query; for triggers by lag.
        clock, sleep: seconds since the epoch, and their passing.
        once: run what is there, whatever the triggers say.
        supervisor: what becomes of failures and outages; default: a query that fails has failed.
        search: looks for the message that a sink's query has failed on.
        remedy: what helps against a failure, as a clause.
    """

    def __init__(
        self,
        declared: Declared,
        start: Callable[[Sink, Trigger], Query],
        totals: Callable[[Sink], Totals],
        watcher: Watcher,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        backlog: Callable[[Sink], int] | None = None,
        once: bool = False,
        supervisor: Supervisor | None = None,
        search: Callable[[Sink], Verdict] | None = None,
        remedy: Callable[[Sink, Cause], str] | None = None,
    ) -> None:
        from ..triggers import AVAILABLE_NOW

        self._declared = declared
        self._start = start
        self._watcher = watcher
        self._clock = clock
        self._sleep = sleep
        self._backlog = backlog
        self._supervisor = supervisor or Supervisor()
        self._search = search
        self._remedy = remedy
        self._stop_why = ""
        self._at_once = False
        self._after_java: Again | Stop | None = None
        self._renew_at = math.inf
        self._runs = [
            _Run(sink, AVAILABLE_NOW if once else sink.trigger, totals(sink))
            for sink in declared.sinks.values()
        ]

    def stop(self, why: str, *, at_once: bool = False) -> None:
        """End the run: batches that are under way are finished, unless ``at_once``. From any thread."""
        self._at_once = self._at_once or at_once
        self._stop_why = self._stop_why or why

    def run(self) -> list[Ended]:
        """Run until everything is done, or has to stop. Returns how each query ended."""
        while not self._stop_why:
            for run in self._runs:
                self._look_at(run)
            if self.needs_new_java:
                return [self._ended(run) for run in self._runs]
            if all(run.state in ("done", "failed", "not run") for run in self._runs):
                break
            self._check_failures()
            if not self._stop_why:
                self._sleep(POLL_S)
        self._end()
        return [self._ended(run) for run in self._runs]

    @property
    def needs_new_java(self) -> bool:
        """Java was lost, and it is time to begin everything again: a new process is to run the queries."""
        return not self._stop_why and self._clock() >= self._renew_at

    @property
    def java_lost(self) -> JavaLost:
        """How often Java was lost in this run, those before included."""
        return self._supervisor.java_lost

    def _check_failures(self) -> None:
        failed = [run.sink.name for run in self._runs if run.state == "failed"]
        if failed and self._declared.on_failure == "stop":
            self.stop(f"query {failed[0]!r} failed")

    def _look_at(self, run: _Run) -> None:
        if run.state == "running" or run.again_at is not None:
            self._look_at_servers(run)
        if run.state == "waiting" and (failed := self._failed_before(run)):
            text = f"query {run.sink.name!r} was not run: it is after {failed}"
            run.problem, run.state = Problem(run.sink.place, text), "not run"
            self._watcher.ended(self._ended(run))
        elif run.state == "waiting" and math.isinf(self._renew_at) and self._is_due(run):
            self._begin(run)
        elif run.state == "running":
            assert run.query is not None
            is_active = run.query.is_active()  # before the batches, or the last would be missed
            self._count(run)
            if not is_active:
                self._over(run)

    def _look_at_servers(self, run: _Run) -> None:
        outage = self._supervisor.outage(run.sink.name)
        if outage is None:
            if run.told_away:
                run.told_away = False
                self._watcher.back(run.sink.name)
        elif outage.is_over_long:
            if run.query is not None:
                run.query.stop()
                self._count(run)
            text = (
                f"query {run.sink.name!r} failed: {outage.server} has been away for {outage.gone_s:.0f} s; "
                "wait_for_server says how long it is waited for"
            )
            self._failed(run, Problem(run.sink.place, text))
        elif outage.gone_s >= TOLD_AFTER_S and not run.told_away:
            run.told_away = True
            self._watcher.away(run.sink.name, outage)

    def _is_due(self, run: _Run) -> bool:
        if run.again_at is not None:
            is_there = self._supervisor.outage(run.sink.name) is None
            return is_there and self._clock() >= run.again_at
        if run.trigger.kind == "available now" and not self._are_done(run.sink.after):
            return False
        trigger, now = run.trigger, self._clock()
        if trigger.kind == "schedule":
            if not run.due:
                run.due = trigger.next_time(now)
                self._wait(run, "for its time")
            return now >= run.due
        if trigger.kind == "lag":
            return self._is_behind(run, now)
        return True

    def _failed_before(self, run: _Run) -> str:
        """A query that this one is to run after, and what became of it, if that was nothing good."""
        if run.trigger.kind != "available now":
            return ""
        words = {"failed": "which failed", "not run": "which was not run"}
        over = {each.sink.name: words[each.state] for each in self._runs if each.state in words}
        return next((f"{name!r}, {over[name]}" for name in run.sink.after if name in over), "")

    def _are_done(self, names: tuple[str, ...]) -> bool:
        """Whether these queries are over; one that never ends is not waited for."""
        return not any(
            run.sink.name in names
            and run.trigger.kind == "available now"
            and run.state in ("waiting", "running")
            for run in self._runs
        )

    def _is_behind(self, run: _Run, now: float) -> bool:
        """Whether enough waits, or something has waited for long enough."""
        trigger = run.trigger
        if now < run.due or self._backlog is None:
            return False
        run.due = now + trigger.poll_s
        try:
            waiting = self._backlog(run.sink)
        except HeadraceError as error:
            self._wait(run, f"for the server to say what waits: {error}")
            return False
        if waiting == 0:
            run.waits_since = None
        elif run.waits_since is None:
            run.waits_since = now
        late = run.waits_since is not None and bool(trigger.after_s)
        is_due = waiting >= trigger.mark or (late and now - run.waits_since >= trigger.after_s)  # type: ignore[operator]
        if not is_due:
            self._wait(run, f"for {trigger.mark:,} messages")
        return is_due

    def _wait(self, run: _Run, why: str) -> None:
        if run.said != why:
            run.said = why
            self._watcher.waiting(run.sink.name, why)

    def _begin(self, run: _Run) -> None:
        try:
            run.query = self._start(run.sink, run.trigger)
        except PipelineError as error:
            self._after_failure(run, cause_of(error), error.problems[0])
            return
        except HeadraceError as error:
            problem = Problem(run.sink.place, f"query {run.sink.name!r}: {error}")
            self._after_failure(run, cause_of(error), problem)
            return
        run.state, run.seen, run.said, run.again_at = "running", -1, "", None
        run.due, run.waits_since = 0.0, None
        self._watcher.started(run.sink.name)

    def _after_failure(self, run: _Run, cause: Cause, problem: Problem) -> None:
        """A query could not be started, or has failed: it is begun again, or stays failed."""
        if cause.kind == "java" and not self._stop_why:
            self._without_java(run, cause, problem)
            return
        name, said = run.sink.name, [problem.text]
        follows: Again | Stop = Stop()
        if not self._stop_why:
            at_once = cause.is_code and self._quarantines(run.sink)
            verdict = self._searched(run, cause) if at_once else None
            if verdict is None or not verdict.quarantined:
                follows = self._supervisor.after(name, cause, run.totals.last)
            if verdict is None and (isinstance(follows, Stop) or follows.times > 1):
                verdict = self._searched(run, cause)
            if verdict is not None and verdict.quarantined:
                self._restart(run, cause, 0.0)
                return
            if verdict is not None and verdict.failed is not None:
                follows = Stop(str(verdict.failed))
            said.append(verdict.why if verdict is not None else "")
        if isinstance(follows, Again):
            self._restart(run, cause, follows.wait_s)
            return
        said.append(self._remedy(run.sink, cause) if self._remedy is not None else "")
        text = "; ".join(filter(None, (said[0], follows.why, *said[1:])))
        self._failed(run, Problem(problem.place, text))

    def _without_java(self, run: _Run, cause: Cause, problem: Problem) -> None:
        """All queries have lost their Java: what follows is the same for each of them."""
        if self._after_java is None:
            has_worked = any(each.batches for each in self._runs)
            self._after_java = self._supervisor.after_java(has_worked=has_worked)
            if isinstance(self._after_java, Again):
                self._renew_at = self._clock() + self._after_java.wait_s
        follows = self._after_java
        if isinstance(follows, Again):
            run.query = None
            self._restart(run, cause, follows.wait_s)
        else:
            text = "; ".join(filter(None, (problem.text, follows.why)))
            self._failed(run, Problem(problem.place, text))

    def _restart(self, run: _Run, cause: Cause, wait_s: float) -> None:
        run.state, run.again_at = "waiting", self._clock() + wait_s
        run.restarts += 1
        self._watcher.restarting(run.sink.name, run.restarts, cause.text, wait_s)

    def _quarantines(self, sink: Sink) -> bool:
        """Whether a view that the query stands on puts messages into quarantine."""
        views = (self._declared.views.get(each) for each in upstream_of(self._declared, sink))
        return any(view is not None and view.otherwise == "quarantine" for view in views)

    def _searched(self, run: _Run, cause: Cause) -> Verdict | None:
        """What a search for the message says; None where there is nothing to search for."""
        if self._search is None or not (cause.is_code or cause.is_crash):
            return None
        verdict = self._search(run.sink)
        for each in verdict.quarantined:
            self._watcher.poison(run.sink.name, each, quarantined=True)
        if verdict.failed is not None:
            self._watcher.poison(run.sink.name, verdict.failed, quarantined=False)
        return verdict

    @property
    def is_stopping(self) -> bool:
        """Whether the run is to end."""
        return bool(self._stop_why)

    def _failed(self, run: _Run, problem: Problem) -> None:
        run.problem, run.state, run.query, run.again_at = problem, "failed", None, None
        self._watcher.ended(self._ended(run))

    def _count(self, run: _Run) -> None:
        assert run.query is not None
        for loss in run.query.losses():
            self._watcher.lost(run.sink.name, loss)
        for batch in run.query.batches(run.seen):
            run.seen = batch.number
            run.totals.add(batch)
            run.batches += 1
            run.rows += batch.rows
            self._watcher.batch(batch, run.totals)

    def _over(self, run: _Run) -> None:
        """A query has ended by itself."""
        assert run.query is not None
        error = run.query.error()
        run.query = None
        if error is not None:
            cause = cause_of(error)
            text = f"query {run.sink.name!r} failed: {cause.text}"
            self._after_failure(run, cause, Problem(run.sink.place, text))
            return
        if run.trigger.kind == "available now" and not run.finishing:
            run.state = "done"
        elif run.trigger.is_bounded and not run.finishing:
            run.state = "waiting"
            return
        else:
            run.state = "stopped"
            self.stop(f"query {run.sink.name!r} was stopped")
        self._watcher.ended(self._ended(run))

    def _end(self) -> None:
        """Stop what still runs: each between two of its batches."""
        running = [run for run in self._runs if run.state == "running"]
        if running or any(run.state == "waiting" for run in self._runs):
            self._watcher.stopping(self._stop_why)
        now = self._clock()
        deadline, asked_until = now + self._declared.stop_timeout_s, now + ASKING_S
        for run in running:
            run.finishing = run.query is not None and run.query.finish()
        while running:
            for run in list(running):
                assert run.query is not None
                before = run.batches
                is_active = run.query.is_active()
                self._count(run)
                phase = run.query.phase()
                between = phase == "idle" or (run.batches > before and not run.finishing)
                between = between or (phase == "asking" and self._clock() >= asked_until)
                if not is_active:
                    self._over(run)
                    running.remove(run)
                elif between or self._at_once or self._clock() >= deadline:
                    run.query.stop()
                    self._count(run)
                    self._stopped(run)
                    running.remove(run)
            if running:
                self._sleep(POLL_S / 4)
        for run in self._runs:
            if run.state == "waiting":
                self._stopped(run)

    def _stopped(self, run: _Run) -> None:
        run.state, run.query = "stopped", None
        self._watcher.ended(self._ended(run))

    def _ended(self, run: _Run) -> Ended:
        name, totals = run.sink.name, run.totals
        return Ended(name, run.state, totals, run.batches, run.rows, run.problem, run.restarts)
