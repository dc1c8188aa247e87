"""The worker side: one task reads its slice and yields Arrow batches.

A worker process runs many tasks, one after another, and keeps its connections between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from ...api.streams import StreamConfig
from ...subjects import is_subset
from ..columns import Wanted
from ..decoding.columns import Layout
from ..decoding.decoder import Decoder
from ..frames import Chunk, PayloadChunk
from ..links.link import Link
from ..links.outages import ServerPatience
from ..links.pool import POOL
from ..options import SourceOptions
from ..overflow.picking import pick
from ..positions import as_it_is_now
from ..reading.reader import ReadPlan, read_payloads, read_range
from ..reading.snapshot import SnapshotPlan, read_snapshot
from ..set_aside import Aside, Kind, file_beside, tell
from ..slices import Slice
from .bad_messages import BadMessages
from .batch_builder import BatchBuilder, Selection
from .routing import can_route, home_of, routed

if TYPE_CHECKING:
    import pyarrow as pa


EXECUTION_ID: Final = "spark.sql.execution.id"
"""Local property of the tasks of one use of a frame, or of one micro-batch."""


def current_job() -> str:
    """What the task of this process is part of: a use of a frame; "" where there is no task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return ""
    execution = context.getLocalProperty(EXECUTION_ID)
    return f"execution {execution}" if execution else f"stage {context.stageId()}"


def read_slice(
    options: SourceOptions,
    columns: Sequence[str | Wanted] | Layout,
    piece: Slice,
    job: str = "",
) -> Iterator[pa.RecordBatch]:
    """The rows of one task. ``job``: what it is part of; see ``open_ends``."""
    if options.group is not None:
        options = options.of_group(piece.stream, piece.subjects)
    elif piece.stream:
        options = options.of(piece.stream)
    planned = piece
    if piece.from_first or piece.plan:
        with POOL.lending(options.connection) as connect:
            piece = as_it_is_now(options, piece, connect, job, home_of("edges"))
    if piece.route and can_route():
        yield from _routed(options, columns, planned)
        # What came since it was planned each task reads for itself.
        piece = piece._replace(lo=planned.hi, route="")
    if piece.lo >= piece.hi and (planned.plan or planned.route):
        return
    with POOL.lending(options.connection) as connect:
        yield from _read(options, columns, piece, connect)


def _read(
    options: SourceOptions,
    columns: Sequence[str | Wanted] | Layout,
    piece: Slice,
    connect: Callable[[], Link],
) -> Iterator[pa.RecordBatch]:
    """The rows of one task that reads for itself."""
    bad = BadMessages(
        options.on_bad_message,
        options.stream,
        connect,
        ServerPatience(options.reconnect_timeout_s, "the stream of dead letters"),
    )
    layout = columns if isinstance(columns, Layout) else Layout(tuple(columns))
    decoder = layout.decoder(options, connect)
    builder = BatchBuilder(
        layout.columns,
        options.stream,
        partitions=options.partitions,
        rule=options.partition_rule,
        selection=Selection(options.subjects, piece.partitions),
        on_bad=bad.take,
        decoder=decoder,
        key_begins=len(f"$KV.{options.bucket}."),
        strip_partition=options.group is not None,
        leave_out_markers=not options.include_markers,
        null_deletions=bool(options.bucket) and not options.last_per_subject,
    )
    for chunk in _chunks(options, piece, connect, builder.needs_only_payloads):
        batch = (
            builder.build_of_payloads(chunk)
            if isinstance(chunk, PayloadChunk)
            else builder.build(chunk)
        )
        for first in range(0, batch.num_rows, options.rows_per_batch):
            yield batch.slice(first, options.rows_per_batch)
    bad.report()
    if decoder is not None:
        decoder.report()
    _tell_aside(options, piece, bad, decoder)


def _tell_aside(
    options: SourceOptions, piece: Slice, bad: BadMessages, decoder: Decoder | None
) -> None:
    """Note what a task of a pipeline has set aside."""
    if not options.use.losses:
        return
    kind: Kind = "dead_letters" if options.on_bad_message.action == "deadletter" else "skipped"
    part = f"{piece.lo}-{piece.hi}:{','.join(map(str, piece.partitions))}"
    found = [Aside(kind, options.stream, part, bad.count)]
    if decoder is not None:
        found.append(Aside("malformed", options.stream, part, decoder.misfits))
    tell(found, file_beside(options.use.losses))


def _chunks(
    options: SourceOptions, piece: Slice, connect: Callable[[], Link], payloads_only: bool
) -> Iterator[Chunk] | Iterator[Chunk | PayloadChunk]:
    if piece.runs:
        patience = ServerPatience(options.reconnect_timeout_s, f"stream {options.stream!r}")
        return pick(connect, piece, options.rows_per_batch, options.read_timeout_s, patience)
    if options.last_per_subject:
        return read_snapshot(connect, _snapshot_plan(options, piece))
    plan = _range_plan(options, piece)
    return read_payloads(connect, plan) if payloads_only else read_range(connect, plan)


def _range_plan(options: SourceOptions, piece: Slice) -> ReadPlan:
    return ReadPlan(
        options.stream,
        piece.lo,
        piece.hi,
        partial(server_filter, options, piece),
        options.rows_per_batch,
        options.read_timeout_s,
        options.fail_on_data_loss,
        piece.since_ns,
        piece.epoch,
        options.on_stream_reset == "fail",
        options.reconnect_timeout_s,
        options.use.losses,
        piece.end,
    )


def _routed(
    options: SourceOptions, columns: Sequence[str | Wanted] | Layout, piece: Slice
) -> Iterator[pa.RecordBatch]:
    """The rows of one task that reads its range together with others."""
    layout = columns if isinstance(columns, Layout) else Layout(tuple(columns))
    with_partition = (*layout.columns, Wanted("route", "int", source="partition"))
    everything = layout._replace(columns=with_partition)
    partitions = tuple(chain(*piece.shares)) or tuple(range(options.partitions))

    def read(part: Slice) -> Iterator[pa.RecordBatch]:
        whole = part._replace(
            partitions=partitions,
            route="",
            tasks=0,
            shares=(),
            from_first=False,
            to_last=False,
            plan="",
        )
        return read_slice(options, everything, whole)

    yield from routed(piece, read, home_of("routes"))


def _snapshot_plan(options: SourceOptions, piece: Slice) -> SnapshotPlan:
    return SnapshotPlan(
        options.stream,
        options.subjects[0] if len(options.subjects) == 1 else ">",
        options.rows_per_batch,
        options.read_timeout_s,
        options.reconnect_timeout_s,
        piece.epoch,
    )


def server_filter(options: SourceOptions, piece: Slice, config: StreamConfig) -> str:
    """The one pattern by which a server may filter this task's messages, or "".

    Never several patterns: servers then search their subjects again for every message. Filtering by
    partition is possible only if the stream itself writes the partition into each subject. Otherwise a
    message outside all partitions must be read, so that it fails the task and is not lost.
    """
    if len(options.subjects) == 1:
        return options.subjects[0]
    token = options.partition_rule.token
    if options.subjects or len(piece.partitions) != 1 or not token:
        return ""
    if not writes_partition(config, options.partitions, token):
        return ""
    return ".".join(["*"] * (token - 1) + [str(piece.partitions[0]), ">"])


def writes_partition(config: StreamConfig, partitions: int, token: int) -> bool:
    """Whether the stream's subject transform makes the given token the partition of every message."""
    transform = config.subject_transform
    if transform is None or config.sources or config.mirror is not None:
        return False
    tokens = transform.dest.split(".")
    if len(tokens) <= token:
        return False
    written = re.fullmatch(r"\{\{\s*partition\(\s*(\d+)\s*[,)].*", tokens[token - 1], re.IGNORECASE)
    if written is None or int(written[1]) != partitions:
        return False
    source = transform.src.encode()
    return all(is_subset(subject.encode(), source) for subject in config.subjects)
