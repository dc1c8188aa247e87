"""Which messages the batch has that a query failed on, read from its checkpoint."""

from __future__ import annotations

from typing import NamedTuple

from ...documents import read_json
from ...spark.offsets import Offset, read_offsets
from ..checkpoints.checkpoint import Generation, LogEntry, interrupted, read_end, read_log
from ..graph import quarantined, sources_of
from ..model import Declared, Sink, Source
from ..options import JETSTREAM, source_options


class NotSearchedError(Exception):
    """The messages of the batch cannot be tried one by one; the text says why."""


class Range(NamedTuple):
    """Sequences ``first`` to ``last`` of a stream, as a source of the pipeline reads it."""

    source: str
    stream: str
    first: int
    last: int


def failed_batch(declared: Declared, sink: Sink, generation: Generation) -> list[Range]:
    """What the batch reads that was planned and is not finished.

    Raises:
        NotSearchedError: it is not known.
    """
    if "://" in generation.path:
        raise NotSearchedError("the checkpoint is below a URL, which is not read here")
    if interrupted(generation) is None:
        raise NotSearchedError("no batch was planned")
    planned, done = read_log(generation, "offsets"), read_end(generation)
    assert planned is not None
    sources = [
        each
        for each in sources_of(declared, sink.of or quarantined(declared, sink)[0])
        if each.streaming
    ]
    for each in sources:
        options = source_options(each) if each.format == JETSTREAM else None
        if options is None or options.group is not None or options.overflow is not None:
            raise NotSearchedError(f"source {each.name!r} cannot be read again by sequence")
    found = []
    for index, source in in_order(sources, planned):
        ends = _offsets(source, planned, index)
        begins = _offsets(source, done, index) if done is not None else {}
        for stream, end in ends.items():
            first = _first(source, stream, begins.get(stream), end, generation)
            found.append(Range(source.name, stream, first, end.seq))
    return [each for each in found if each.first <= each.last]


def in_order(sources: list[Source], planned: LogEntry) -> list[tuple[int, Source]]:
    """The sources by the place that Spark gives each of them, which their offsets name."""
    by_name = {each.name: each for each in sources}
    if len(sources) == len(planned.offsets) == 1:
        return [(0, sources[0])]
    named = [read_json(text).get("source", "") if text else "" for text in planned.offsets]
    if any(text and name not in by_name for text, name in zip(planned.offsets, named, strict=True)):
        raise NotSearchedError("the checkpoint does not name the sources of the query")
    return [(index, by_name[name]) for index, name in enumerate(named) if name]


def _offsets(source: Source, entry: LogEntry, index: int) -> dict[str, Offset]:
    text = entry.offsets[index] if index < len(entry.offsets) else ""
    return read_offsets(read_json(text), source_options(source).streams) if text else {}


def _first(
    source: Source, stream: str, before: Offset | None, end: Offset, generation: Generation
) -> int:
    """The first sequence that the batch reads of a stream."""
    if end.begin is not None:
        return end.begin + 1
    if before is not None:
        return before.seq + 1
    starting = source_options(source).of(stream).starting
    if source.name in generation.starts:
        start = generation.starts[source.name]
        if start.kind == "sequence" and start.value.isdecimal():
            return int(start.value)
        if start.kind != "earliest":
            raise NotSearchedError("it is the first batch, and where that begins is not kept")
        return 1
    if starting.kind == "sequence":
        return max(1, starting.sequence)
    if starting.kind != "earliest":
        raise NotSearchedError("it is the first batch, and where that begins is not kept")
    return 1
