"""What each query reads of its streams: from where to where, which subjects, how much at a time.

Spark's own ``explain`` shows of a source in Python its name and columns, and nothing of this. It is asked of
the checkpoints and the servers, without Spark, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ...api.streams import StreamConfig
from ...errors import HeadraceError
from ...spark.batches.plans import counter
from ...spark.links.control import Control
from ...spark.links.link import Link
from ...spark.offsets import StreamHead
from ...spark.options import SourceOptions, StartPosition, parse_options
from ...spark.positions import locate
from ...spark.slices import counted_subjects
from ..checkpoints.checkpoint import checkpoint_of
from ..graph import quarantined, sources_of
from ..model import Declared, Sink, Source
from ..options import JETSTREAM, options_of_source
from . import backlog


@dataclass(frozen=True)
class Reads:
    """What a query reads of one stream, as it is now.

    ``first``, ``last``: the sequences of its first and last message, None where others decide that.
    ``because``: why it begins there. ``messages``: how many that are; None if it is not known. ``subjects``:
    none for all. ``at_a_time``: the most of one batch, "" without a limit. ``error``: why it cannot be told.
    """

    query: str
    source: str
    stream: str
    first: int | None = None
    last: int | None = None
    messages: int | None = None
    because: str = ""
    subjects: tuple[str, ...] = ()
    markers: bool = False
    at_a_time: str = ""
    error: str = ""

    def document(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def explain(declared: Declared) -> Iterator[Reads]:
    """Of each query and each stream that it reads, one after the other."""
    for sink in declared.sinks.values():
        for source in sources_of(declared, sink.of or quarantined(declared, sink)[0]):
            if source.format == JETSTREAM:
                yield from _of_source(declared, sink, source)


def _of_source(declared: Declared, sink: Sink, source: Source) -> Iterator[Reads]:
    generation = checkpoint_of(declared, sink.name).current()
    raw = options_of_source(declared, source, sink.name, generation)
    options = parse_options(raw, streaming=source.streaming)
    blank = Reads(
        sink.name,
        source.name,
        "",
        subjects=options.subjects,
        markers=options.include_markers,
        at_a_time=_at_a_time(options),
    )
    done = (
        {
            each.stream: each
            for each in backlog.of_sources(declared, sink)
            if each.source == source.name
        }
        if source.streaming
        else {}
    )
    shared = _shared(options)
    if shared:
        for state in done.values():
            waiting = None if state.error else state.waiting
            yield _with(blank, state.stream, messages=waiting, because=shared, error=state.error)
        return
    try:
        link = Link.open(options.connection)
    except HeadraceError as error:
        yield from (_with(blank, stream, error=str(error)) for stream in options.streams)
        return
    try:
        for each in options.each():
            known = done.get(each.stream)
            if known is not None and known.error:  # of its checkpoint, perhaps: it is not new
                yield _with(blank, each.stream, error=known.error)
                continue
            read_up_to = known.sequence if known is not None else 0
            try:
                found = _of_stream(each, Control(link, each.stream), read_up_to, source.streaming)
                yield _with(blank, each.stream, **found)
            except HeadraceError as error:
                yield _with(blank, each.stream, error=str(error))
    finally:
        link.close()


def _with(blank: Reads, stream: str, **found: Any) -> Reads:
    return Reads(**{**asdict(blank), "stream": stream, **found})


def _shared(options: SourceOptions) -> str:
    """Who hands out the messages, where it is not the query's own position."""
    if options.group is not None:
        return f"what group {options.group.name} gives it"
    if options.overflow is not None:
        return f"what consumer {options.overflow.consumer} gives it"
    return ""


def _of_stream(
    options: SourceOptions, control: Control, read_up_to: int, streaming: bool
) -> dict[str, Any]:
    head, config = control.head()
    if options.last_per_subject:
        everything = {"first": head.first_seq, "last": head.last_seq}
        return {**everything, "because": "a table: the latest of each subject, anew for each batch"}
    if not streaming:
        lo = locate(control, options.starting, head, as_end=False)
        hi = min(locate(control, options.ending, head, as_end=True), head.last_seq)
        return _range(
            options, control, head, config, lo, max(lo, hi), "a table: anew for each batch"
        )
    if read_up_to:
        lo, because = max(read_up_to, head.first_seq - 1), "its checkpoint"
    else:
        lo, because = _first_start(options, control, head)
    return _range(options, control, head, config, lo, max(lo, head.last_seq), because)


def _first_start(options: SourceOptions, control: Control, head: StreamHead) -> tuple[int, str]:
    """Where a query without a checkpoint begins."""
    start = options.starting
    shown = control.consumer_info(options.durable) if options.durable else None
    if start.kind == "latest" and shown is not None:
        seq = shown.ack_floor.stream_seq or shown.delivered.stream_seq
        return min(seq, head.last_seq), f"where its durable {options.durable} stands"
    return locate(control, start, head, as_end=False), f"it is new: {_words(start)}"


def _range(
    options: SourceOptions,
    control: Control,
    head: StreamHead,
    config: StreamConfig,
    lo: int,
    hi: int,
    because: str,
) -> dict[str, Any]:
    count = counter(control, head, config, counted_subjects(options, config))
    messages = count(lo, hi) if hi > lo else 0
    return {"first": lo + 1, "last": hi, "messages": messages, "because": because}


def _words(start: StartPosition) -> str:
    if start.kind == "sequence":
        return f"sequence {start.sequence}"
    return f"time {start.time}" if start.kind == "time" else start.kind


def _at_a_time(options: SourceOptions) -> str:
    pace = options.pace
    most = [
        f"{limit:,} {what}"
        for limit, what in ((pace.max_rows, "messages"), (pace.max_bytes, "bytes"))
        if limit
    ]
    return ", ".join(most)
