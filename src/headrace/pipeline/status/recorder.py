"""Hears what happens in a run, and keeps the runner's notes of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from . import notes as files
from .notes import Notes, Process

if TYPE_CHECKING:
    from ..checkpoints.totals import Batch, Totals
    from ..model import Declared
    from ..running.runner import Ended, Watcher

_LOG: Final = logging.getLogger("headrace.pipeline")
EVERY_S: Final = 1.0
"""Batches are noted at most so often; how a query begins, waits and ends is noted at once."""


class Recorder:
    """Hears the events of a run, and writes its notes.

    With a lease nothing is written before it is ours: another runner's notes lie there. A disk that is full
    is said once in the log; the run goes on.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, declared: Declared, process: Process, clock: Callable[[], float]) -> None:
        self._file: Path = files.file_of(declared)
        self._names = tuple(declared.sinks)
        self._leased = declared.lease is not None
        self._process = process
        self._clock = clock
        self._notes: Notes | None = None
        self._due = 0.0
        self._said = False
        self.last: Notes | None = None
        """The last word, once the runner has ended."""

    @property
    def notes(self) -> Notes | None:
        """What was noted last; None while this runner has nothing to say."""
        return self._notes

    # what happens in a run

    def starting(self, what: str) -> None:
        if not self._leased:
            self._begin(token=0)

    def standby(self, holder: str, ready: object) -> None:
        self._notes = None  # the other's notes are there now

    def active(self, token: int, nobody_s: float | None) -> None:
        self._begin(token)

    def started(self, query: str) -> None:
        self._turn(query, "running")

    def waiting(self, query: str, why: str) -> None:
        self._turn(query, "waiting", why=why)

    def away(self, query: str, outage: object) -> None:
        """A server is away, and is waited for."""
        self._turn(query, "waiting", why=str(outage))

    def back(self, query: str) -> None:
        self._turn(query, "running")

    def restarting(self, query: str, attempt: int, cause: str, *more: object) -> None:
        """A query failed, and will be started again."""
        if self._notes is not None:
            count = self._notes.of(query).restarts + 1
            self._failed(query, "restarting", cause, restarts=count)

    def batch(self, batch: Batch, totals: Totals) -> None:
        if self._notes is None:
            return
        self._notes = self._notes.with_query(
            batch.query,
            rows_per_s=round(batch.rows_per_s, 1),
            batch_s=batch.seconds,
            behind=batch.behind,
            failures=0,
            error="",
            error_at=0.0,
        )
        if self._clock() >= self._due:
            self._write()

    def ended(self, ended: Ended) -> None:
        if ended.problem is not None:
            self._failed(ended.query, ended.state, str(ended.problem))
        else:
            self._turn(ended.query, ended.state)

    # how a run ends

    def refused(self, problem: str) -> None:
        """The run does not begin: a mistake of the file, a server that is away."""
        found = files.read(self._file)
        if found is not None and found.life(self._process) in ("alive", "unknown"):
            return  # another runner's notes, who lives
        self._begin(found.token if found is not None else 0)
        self.broke(problem)

    def broke(self, problem: str) -> None:
        """The run ended without the queries' own words. One that has not begun is not ours: another runs."""
        if self._notes is None:
            return
        for name in self._names:
            self._failed(name, "failed", problem)
        self.over()

    def over(self) -> None:
        """The runner is about to end."""
        if self._notes is not None:
            self._notes = replace(self._notes, ended=self._clock())
            self._write()
            self.last, self._notes = self._notes, None

    def _begin(self, token: int) -> None:
        """Take the place of the notes that are there. The last failure of a query is kept."""
        now = self._clock()
        before = files.read(self._file)
        notes = Notes(self._process, now, token=token)
        for name in self._names:
            old = before.of(name) if before is not None else files.QueryNotes()
            kept = {"error": old.error, "error_at": old.error_at, "failures": old.failures}
            if before is not None and before.process == self._process:  # it has taken its own place
                kept["restarts"] = old.restarts
            notes = notes.with_query(name, state="starting", since=now, **kept)
        self._notes = notes
        self._write()

    def _turn(self, query: str, state: str, **changes: Any) -> None:
        if self._notes is None:
            return
        given = {"why": "", **changes}
        if self._notes.of(query).state != state:
            given["since"] = self._clock()
        self._notes = self._notes.with_query(query, state=state, **given)
        self._write()

    def _failed(self, query: str, state: str, error: str, **changes: Any) -> None:
        if self._notes is not None:
            failures = self._notes.of(query).failures + 1
            told = {"error": error, "error_at": self._clock(), "failures": failures}
            self._turn(query, state, **told, **changes)

    def _write(self) -> None:
        assert self._notes is not None
        now = self._clock()
        self._due = now + EVERY_S
        self._notes = replace(self._notes, written=now)
        try:
            other = files.read(self._file) if self._leased else None
            if other is not None and other.token > self._notes.token:
                return  # a later holder of the lease writes here
            files.write(self._file, self._notes)
        except OSError as error:
            if not self._said:
                _LOG.warning("%s is not written: %s", self._file, error.strerror or error)
                self._said = True


class _Told:
    """Hands each event to all who know it."""

    def __init__(self, *all_: object) -> None:
        self._all = all_

    def __getattr__(self, event: str) -> Callable[..., None]:
        heard = [getattr(each, event) for each in self._all if hasattr(each, event)]
        if not heard:
            raise AttributeError(event)

        def tell(*what: Any, **named: Any) -> None:
            for each in heard:
                each(*what, **named)

        return tell


def told(watcher: Watcher, *others: object) -> Watcher:
    """A watcher, and others who hear those of its events for which they have a method."""
    return cast("Watcher", _Told(watcher, *others))
