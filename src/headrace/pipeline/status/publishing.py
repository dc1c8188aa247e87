"""Tells a server how a running pipeline is, for consoles and their metrics, on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...api import pipelines
from ...api.errors import Errors
from ...api.pipelines import PipelineRecord, QueryRecord
from ...client.blocking.connection import connect
from ...client.blocking.jetstream import JetStream
from ...errors import HeadraceError, JetStreamApiError
from ..drawing import graph_of, tree_of
from ..model import connect_options

if TYPE_CHECKING:
    from ..model import Declared, Publishing
    from .meter import Meter
    from .notes import Notes
    from .recorder import Recorder

_LOG: Final = logging.getLogger("headrace.pipeline")
SOONEST_S: Final = 1.0
"""What happens is told at most so often."""
LAST_WORD_S: Final = 5.0
"""So long a run that ends waits for its last word to be taken."""


class Publisher:
    """Hears the events of a run after recorder and meter, and publishes what these know.

    A server that is away or refuses it is said once in the log; the run goes on, and it is tried again.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        declared: Declared,
        recorder: Recorder,
        meter: Meter,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._declared = declared
        self._settings = declared.published
        self._recorder = recorder
        self._meter = meter
        self._clock = clock
        self._graph = tuple(tree_of(graph_of(declared))) if declared.published else ()
        self._news = threading.Event()
        self._end = threading.Event()
        self._record: PipelineRecord | None = None
        self._thread: threading.Thread | None = None
        self._said = ""

    def starting(self, what: str) -> None:
        if self._settings is not None and self._thread is None:
            self._thread = threading.Thread(
                target=self._tell, args=(self._settings,), name="headrace publisher", daemon=True
            )
            self._thread.start()
        self._heard()

    def standby(self, holder: str, ready: object) -> None:
        self._record = None  # the other runner's word is there now

    def _heard(self, *what: object, **more: object) -> None:
        if self._thread is not None and (notes := self._recorder.notes) is not None:
            self._record = self._record_of(notes)
            self._news.set()

    active = started = waiting = away = back = restarting = batch = lost = ended = _heard

    def close(self, *, is_over: bool = True) -> None:
        """Say the last word. ``is_over``: the run has ended; else another process takes its place."""
        if self._thread is None:
            return
        notes = self._recorder.notes or self._recorder.last
        if notes is not None and (self._record is not None or is_over):
            now = self._clock() if is_over else 0.0
            self._record = self._record_of(notes, ended=now)
        self._end.set()
        self._news.set()
        self._thread.join(LAST_WORD_S)
        self._thread = None

    def _record_of(self, notes: Notes, ended: float = 0.0) -> PipelineRecord:
        queries = {name: self._query(name, notes) for name in self._declared.sinks}
        return PipelineRecord(
            name=self._declared.name,
            host=notes.process.host,
            process=notes.process.number,
            since=notes.since,
            written=self._clock(),
            ended=ended,
            token=notes.token,
            graph=self._graph,
            queries=queries,
        )

    def _query(self, name: str, notes: Notes) -> QueryRecord:
        told, measured = notes.of(name), self._meter.measured(name)
        totals = measured.totals
        return QueryRecord(
            state=told.state,
            since=told.since,
            why=told.why,
            error=told.error,
            error_at=told.error_at,
            failures=told.failures,
            restarts=told.restarts,
            behind=told.behind,
            rows_per_s=told.rows_per_s,
            batch_s=told.batch_s,
            last_batch=measured.last_batch,
            batches=totals.batches,
            rows=totals.rows,
            rows_out=totals.rows_out,
            late=totals.late,
            lost=measured.lost,
        )

    # on the thread

    def _tell(self, settings: Publishing) -> None:
        while not self._end.is_set():
            try:
                with connect(
                    list(settings.servers),
                    **connect_options(
                        settings, f"headrace pipeline {self._declared.name}, published"
                    ),
                ) as connection:
                    self._tell_over(connection.jetstream())
            except HeadraceError as error:
                self._trouble(str(error) or type(error).__name__)
            self._end.wait(pipelines.EVERY_S)

    def _tell_over(self, js: JetStream) -> None:
        bucket = _bucket(js)
        while True:
            self._news.clear()
            is_last, record = self._end.is_set(), self._record
            if record is not None:
                leased = self._declared.lease is not None
                now = record.ended or self._clock()
                key = pipelines.key_of(record.name, record.host, leased=leased)
                bucket.put(key, pipelines.encode(msgspec.structs.replace(record, written=now)))
                self._said = ""
            if is_last:
                return
            self._end.wait(SOONEST_S)
            self._news.wait(pipelines.EVERY_S - SOONEST_S)

    def _trouble(self, said: str) -> None:
        if said != self._said:
            _LOG.warning("how the pipeline is cannot be published: %s", said)
            self._said = said


def _bucket(js: JetStream) -> Any:
    try:
        return js.create_key_value(
            pipelines.BUCKET,
            history=1,
            ttl=pipelines.KEPT_S,
            direct=True,  # a console reads all of it with one request
            max_bytes=pipelines.BUCKET_BYTES,
            max_value_size=pipelines.RECORD_BYTES_MAX,
            description="How running pipelines are, by headrace pipeline run",
        )
    except JetStreamApiError as error:
        if error.err_code != Errors.STREAM_NAME_EXISTS.err_code:
            raise
        return js.key_value(pipelines.BUCKET)
