"""One task: Arrow batches from Spark to messages in the stream."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import ConfigurationError
from ..links.outages import FIRST_CONNECT_S, ServerPatience
from .dead_letters import BadRows
from .fenced import FencedPublisher, Writer
from .keyed import KeyedPublisher
from .keyed import Writer as KeyWriter
from .last_of_key import Latest
from .layout import Layout
from .markers import MarkerStore, PlanId, StreamResetError
from .options import ACCEPTED, SinkOptions
from .rows import RowEncoder
from .target import Target, target_of
from .task import Links, TaskIdentity
from .versions import order_id
from .window import WindowPublisher

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger("headrace.spark")


@dataclass(frozen=True, slots=True)
class Written:
    """What one task did. ``found`` of the ``rows`` were stored before it came to them.

    With a key these are counts of keys; ``outrun`` of them keep a later value of another sink, ``late`` of
    them one that is later by the columns of the order.
    """

    partition: int
    rows: int
    found: int
    bad: int
    first_bad: str
    outrun: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """What every task of a batch is handed: what to write, and as which run.

    ``epoch`` is when the stream was created that the driver saw; "" if the server was away then. All tasks of
    a run write to that one: a partition that is done is not written again where the stream is made again.
    """

    options: SinkOptions
    layout: Layout
    plan: PlanId
    epoch: str = ""


def write_rows(job: Job, task: TaskIdentity, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of a task, all of them or an error.

    Raises:
        HeadraceError: they cannot be written, or a server stayed away.
    """
    options = job.options
    batch = options.batch_id if options.batch_id is not None else task.batch
    links = Links(options.connection)
    # A query that never wrote has a wrong URL, more likely than a server that is away.
    is_first = not batch and not links.was_connected
    wait_s = options.reconnect_timeout_s
    first_s = min(wait_s, FIRST_CONNECT_S) if is_first else wait_s
    try:
        target = _target(job, links, ServerPatience(first_s, f"stream {options.stream!r}"))
        bad = BadRows(
            options.on_bad_row,
            _source(job, task, batch),
            links,
            ServerPatience(wait_s, "the stream of dead letters"),
        )
        patience = ServerPatience(wait_s, f"stream {options.stream!r}")
        written = _Writing(job, task, batch, links, target, bad, patience).run(batches)
    except BaseException:
        links.drop()  # something may be under way on it
        raise
    links.give_back()
    if bad.count:
        to = f"went to {options.on_bad_row.subject!r}" if options.on_bad_row.subject else "skipped"
        _LOG.warning("%d bad rows of this task: %s; the first is %s", bad.count, to, bad.first)
    return written


class _Writing:
    """The work of one task, once the stream is known."""

    def __init__(
        self,
        job: Job,
        task: TaskIdentity,
        batch: int | None,
        links: Links,
        target: Target,
        bad: BadRows,
        patience: ServerPatience,
    ) -> None:
        self._job, self._task, self._batch = job, task, batch
        self._links, self._target, self._bad, self._patience = links, target, bad, patience

    def run(self, batches: Iterator[pa.RecordBatch]) -> Written:
        options = self._job.options
        if options.key:
            return self._run_keyed(batches)
        publisher = self._fenced() if options.delivery == "exactlyonce" else self._window()
        encoder = RowEncoder(
            options, self._job.layout, self._target.limits, self._id_prefix(), self._bad.take
        )
        if isinstance(publisher, FencedPublisher):
            publisher.begin()
        for batch in batches:
            rows = encoder.encode(batch)
            if isinstance(publisher, WindowPublisher):
                publisher.add(rows, encoder.numbers)
            else:
                publisher.add(rows)
        publisher.finish()
        found = (
            publisher.found_stored
            if isinstance(publisher, FencedPublisher)
            else publisher.duplicates
        )
        return Written(
            self._task.partition, publisher.stored, found, self._bad.count, self._bad.first
        )

    def _run_keyed(self, batches: Iterator[pa.RecordBatch]) -> Written:
        job, options, task = self._job, self._job.options, self._task
        if self._batch is None and options.delivery == "exactlyonce":
            raise self._no_number()
        encoder = RowEncoder(options, job.layout, self._target.limits, "", self._bad.take)
        latest = Latest(encoder, job.layout, self._bad.take)
        sink = options.sink_id or task.query or job.plan.nonce
        exactly = options.delivery == "exactlyonce"
        publisher = KeyedPublisher(
            options.stream,
            KeyWriter(
                sink, self._batch or 0, job.plan, task.partition, exactly, order_id(options.order)
            ),
            latest,
            self._links,
            self._patience,
            self._bad,
            direct=self._target.direct,
            quiet_s=options.connection.request_timeout_s,
            mean_bytes=self._target.mean_bytes,
        )
        for batch in batches:
            latest.add(batch)
            publisher.store(at_end=False)
        publisher.store(at_end=True)
        if exactly:
            self._check_same_stream()
        return Written(
            task.partition,
            publisher.rows,
            publisher.found_stored,
            self._bad.count,
            self._bad.first,
            publisher.outrun,
            publisher.late,
        )

    def _check_same_stream(self) -> None:
        """Whether all that was stored is in the stream that the batch was planned for."""
        now = _target(self._job, self._links, self._patience).epoch
        if {now, self._target.epoch} != {self._job.epoch or now}:
            raise StreamResetError(
                f"jetstream sink: stream {self._job.options.stream!r} was deleted and made again while the "
                "batch was written; it has to run again"
            )

    def _no_number(self) -> ConfigurationError:
        return ACCEPTED.error(
            "this version of Spark does not tell tasks which batch they write, so delivery=exactlyOnce "
            "is not possible in writeStream; use foreachBatch and df.write with the option batchId"
        )

    def _id_prefix(self) -> str:
        """What begins the ids that dedupe gives to rows: the same when a task runs again."""
        options, task = self._job.options, self._task
        if options.delivery != "dedupe" or self._job.layout.message_id >= 0:
            return ""
        if self._batch is None:
            # A write that Spark does not number: its tasks may run again, it does not.
            return f"{self._job.plan.nonce}:{task.partition}:"
        return f"{options.sink_id or task.query}:{self._batch}:{task.partition}:"

    def _window(self) -> WindowPublisher:
        options = self._job.options
        return WindowPublisher(
            options.stream,
            self._links,
            self._patience,
            self._bad,
            max_in_flight=options.max_in_flight,
            quiet_s=options.connection.request_timeout_s,
        )

    def _fenced(self) -> FencedPublisher:
        options = self._job.options
        if self._batch is None:
            raise self._no_number()
        space = f"{options.marker_prefix}.{options.sink_id}"
        epoch = self._job.epoch or self._target.epoch
        return FencedPublisher(
            Writer(options.sink_id, self._batch, self._job.plan, self._task.partition),
            MarkerStore(options.stream, space, epoch, self._target.rolls_up),
            self._links,
            self._patience,
            epoch=epoch,
            rows_max=options.rows_per_atomic_batch,
            quiet_s=options.connection.request_timeout_s,
            wait_s=options.reconnect_timeout_s,
        )


def _target(job: Job, links: Links, patience: ServerPatience) -> Target:
    return patience.persist(
        lambda: target_of(links.get(), job.options, job.layout), let_go=links.drop
    )


def _source(job: Job, task: TaskIdentity, batch: int | None) -> str:
    """What dead letters say they are from: the same when the batch runs again."""
    name = job.options.sink_id or task.query or job.options.stream
    return f"{name}:{job.plan.nonce if batch is None else batch}:{task.partition}"
